"""Experiment: the encoder layer of BERT-Large that arXiv 2007.00072 measured on a V100, kernel by kernel.

The authors' benchmark (spcl/substation @e3b19ec, pytorch_profiling/transformer_layer.py) runs the
`torch.nn.TransformerEncoderLayer` of early 2020 in fp16, forward and backward, with batch 8, sequence 512, hidden size
1024, 16 heads, ReLU, and dropout in four places. Its kernels are read off PyTorch's sources of that time:

* `torch/nn/functional.py`: one GEMM for Q, K and V; a bias is a kernel of its own; Q is scaled before the scores; K and
  V are copied (Q is not: scaling it has made a dense tensor); no mask.
* The same file makes the mean of the dropped scores over the heads (`attn_output_weights.sum(dim=1) / num_heads`)
  unless the caller refuses it. The layer of that time does not, and uses it for nothing: it has no backward pass.
* `torch/nn/modules/transformer.py`: dropout of the attention, behind ReLU, and of the outputs of attention and MLP.
* `aten/src/ATen/native/cuda/layer_norm_kernel.cu`: LayerNorm in two kernels; backward in four, of which the one for
  weight and bias has a workgroup for each 32 columns, here 32 workgroups in all. Each lane has one element per access.
* `PersistentSoftmax.cuh`: a warp keeps a row of scores, one element per lane and access (two here: a warp of a row
  kernel keeps at most 8 accesses; its instructions are those of `tracer.operators.library`).
* `aten/src/ATen/native/cuda/SoftMax.cu`: the backward pass of softmax begins with `grad * output`, a kernel of its own.
* `torch/csrc/autograd/functions/accumulate_grad.h`, `torch/nn/modules/module.py`: `zero_grad` writes zeros, so each
  backward pass adds the gradients to what is there. The benchmark's input is fp32 and becomes fp16 once, so its
  gradient becomes fp32 and is added too. The zeros themselves are timed apart.

A kernel that reads two tensors and writes one has the traffic of a residual, and is one here.
Classes are those of the paper: the authors' operator `softmax` includes the dropout behind it
(config_selection/ops.py); sums over the tokens (gradients of biases) are reductions, and are counted to normalisation
(assumed).
"""

from functools import cache
from typing import NamedTuple

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, dirty_share, kernel_run
from sim.run.run import KernelRun, Run
from tracer.kernels import make_kernels
from tracer.operators.element_map import ElementMap
from tracer.operators.row_kernel import SCALAR_BYTES, RowKernel
from tracer.operators.tensor import FIRST_ADDRESS, Tensor, Use, regions
from traces.source import KernelSource
from traces.units import PS_PER_MS
from validation.experiments.experiment import Experiment, Results

ROWS, HIDDEN, INNER, SCORES, SEQUENCE = 4096, 1024, 4096, 65536, 512
"""Tokens, width, inner width; rows and columns of all scores."""
ELEMENT_BYTES = 2
MOMENT_WARPS, MAP_WARPS, COLUMN_WARPS = 16, 8, 16
"""Warps of a workgroup of LayerNorm's kernels: of row sums, of what uses them, of the column sums."""
SOFTMAX = {"library": "torch"}
COLUMN_GROUPS, COLUMN_ROWS = 32, 2
"""Workgroups of the column sums, and rows that a warp reads at a time."""


class Part(NamedTuple):
    """Equal kernels of the layer.

    Attributes:
        name: what they do. kind: class of arXiv 2007.00072. number: of kernels.
        text: kernel by name (`tracer.kernels`); "" = a key of OWN_KERNELS.
    """

    name: str
    kind: str
    number: int
    text: str = ""


CONTRACTION, NORMALISATION, ELEMENT = "contraction", "normalisation", "element-wise"


def _gemm(m: int, n: int, k: int, batch: int = 1) -> str:
    return f"gemm:m={m},n={n},k={k},dtype=fp16" + (f",batch={batch}" if batch > 1 else "")


def _rows(name: str, width: int, rows: int = ROWS, **options: object) -> str:
    return f"{name}:rows={rows},cols={width},dtype=fp16" + "".join(f",{key}={value}" for key, value in options.items())


FORWARD = (
    Part("queries, keys, values", CONTRACTION, 1, _gemm(ROWS, 3 * HIDDEN, HIDDEN)),
    Part("their bias", ELEMENT, 1, _rows("bias", 3 * HIDDEN)),
    Part("scale of Q, copies of K, V and of the context", ELEMENT, 4, _rows("copy", HIDDEN)),
    Part("scores", CONTRACTION, 1, _gemm(SEQUENCE, SEQUENCE, 64, 128)),
    Part("softmax", NORMALISATION, 1, _rows("softmax", SEQUENCE, SCORES, **SOFTMAX)),
    Part("dropout of the scores", NORMALISATION, 1, _rows("dropout", SEQUENCE, SCORES)),
    Part("context", CONTRACTION, 1, _gemm(SEQUENCE, 64, SEQUENCE, 128)),
    Part("head_sum", NORMALISATION, 1),
    Part("division by the number of heads", ELEMENT, 1, _rows("copy", SEQUENCE)),
    Part("output projection", CONTRACTION, 1, _gemm(ROWS, HIDDEN, HIDDEN)),
    Part("biases of the outputs of attention and MLP", ELEMENT, 2, _rows("bias", HIDDEN)),
    Part("their dropout", ELEMENT, 2, _rows("dropout", HIDDEN)),
    Part("residuals", ELEMENT, 2, _rows("residual", HIDDEN)),
    Part("layernorm", NORMALISATION, 2),
    Part("first linear layer", CONTRACTION, 1, _gemm(ROWS, INNER, HIDDEN)),
    Part("its bias", ELEMENT, 1, _rows("bias", INNER)),
    Part("ReLU", ELEMENT, 1, _rows("copy", INNER)),
    Part("dropout behind ReLU", ELEMENT, 1, _rows("dropout", INNER)),
    Part("second linear layer", CONTRACTION, 1, _gemm(ROWS, HIDDEN, INNER)),
)
ADDED = (
    Part("weights of Q, K and V, added", ELEMENT, 1, _rows("residual", HIDDEN, rows=3 * HIDDEN)),
    Part("weight of the output projection, added", ELEMENT, 1, _rows("residual", HIDDEN, rows=HIDDEN)),
    Part("weights of the linear layers, added", ELEMENT, 2, _rows("residual", HIDDEN, rows=INNER)),
    Part("biases of Q, K and V, added", ELEMENT, 1, _rows("residual", 3 * HIDDEN, rows=1)),
    Part("vectors of the LayerNorms, biases of width 1024, added", ELEMENT, 6, _rows("residual", HIDDEN, rows=1)),
    Part("bias of the first linear layer, added", ELEMENT, 1, _rows("residual", INNER, rows=1)),
)
"""Gradients of the parameters, added to what is there."""
BACKWARD = (
    Part("layernorm_back", NORMALISATION, 2),
    Part("dropout of the outputs", ELEMENT, 2, _rows("dropout", HIDDEN, backward="true")),
    Part("gradients of the outputs' biases", NORMALISATION, 2, _rows("bias", HIDDEN, backward="true")),
    Part("input of the second linear layer", CONTRACTION, 1, _gemm(ROWS, INNER, HIDDEN)),
    Part("its weight", CONTRACTION, 1, _gemm(INNER, HIDDEN, ROWS)),
    Part("dropout behind ReLU", ELEMENT, 1, _rows("dropout", INNER, backward="true")),
    Part("ReLU: gradient and output", ELEMENT, 1, _rows("residual", INNER)),
    Part("gradient of the first bias", NORMALISATION, 1, _rows("bias", INNER, backward="true")),
    Part("input of the first linear layer", CONTRACTION, 1, _gemm(ROWS, HIDDEN, INNER)),
    Part("its weight", CONTRACTION, 1, _gemm(HIDDEN, INNER, ROWS)),
    Part("sums of two gradients", ELEMENT, 2, _rows("residual", HIDDEN)),
    Part("input of the output projection", CONTRACTION, 1, _gemm(ROWS, HIDDEN, HIDDEN)),
    Part("its weight", CONTRACTION, 1, _gemm(HIDDEN, HIDDEN, ROWS)),
    Part("gradient of the dropped scores", CONTRACTION, 1, _gemm(SEQUENCE, SEQUENCE, 64, 128)),
    Part("gradients of V, Q and K", CONTRACTION, 3, _gemm(SEQUENCE, 64, SEQUENCE, 128)),
    Part("dropout of the scores", NORMALISATION, 1, _rows("dropout", SEQUENCE, SCORES, backward="true")),
    Part("softmax: gradient times output", NORMALISATION, 1, _rows("residual", SEQUENCE, SCORES)),
    Part("softmax", NORMALISATION, 1, _rows("softmax", SEQUENCE, SCORES, backward="true", **SOFTMAX)),
    Part("scale of Q", ELEMENT, 1, _rows("copy", HIDDEN)),
    Part("gradients of Q, K and V side by side", ELEMENT, 1, _rows("copy", 3 * HIDDEN)),
    Part("gradient of their bias", NORMALISATION, 1, _rows("bias", 3 * HIDDEN, backward="true")),
    Part("input of Q, K and V", CONTRACTION, 1, _gemm(ROWS, HIDDEN, 3 * HIDDEN)),
    Part("its weight", CONTRACTION, 1, _gemm(HIDDEN, 3 * HIDDEN, ROWS)),
    Part("gradient of the input to fp32", ELEMENT, 1, _rows("copy", HIDDEN, out="fp32")),
    Part("gradient of the input, added", ELEMENT, 1, f"residual:rows={ROWS},cols={HIDDEN},dtype=fp32"),
    *ADDED,
)


def layernorm() -> tuple[KernelSource, ...]:
    """PyTorch's LayerNorm: mean and deviation of each row, then the output."""
    row, size, scalar = HIDDEN * ELEMENT_BYTES, ROWS * HIDDEN * ELEMENT_BYTES, ROWS * SCALAR_BYTES
    x, y, weight, bias, mean, deviation = regions(FIRST_ADDRESS, (size, size, row, row, scalar, scalar))
    vectors = (Tensor(weight, ELEMENT_BYTES), Tensor(bias, ELEMENT_BYTES))
    return (
        _row_sums("layernorm_moments", (x,), (mean, deviation)),
        _row_map("layernorm_output", (x,), y, vectors, (mean, deviation)),
    )


def layernorm_back() -> tuple[KernelSource, ...]:
    """Its backward pass: two sums of each row, factors of each row, gradient of the input, those of weight and bias."""
    row, size, scalar = HIDDEN * ELEMENT_BYTES, ROWS * HIDDEN * ELEMENT_BYTES, ROWS * SCALAR_BYTES
    dy, x, dx, weight, *sums = regions(FIRST_ADDRESS, (size, size, size, row, *[scalar] * 4))
    factors = [Tensor(address, SCALAR_BYTES) for address in sums[:2]]
    factors += [Tensor(address, SCALAR_BYTES, Use.WRITE) for address in sums[2:]]
    inputs = (Tensor(dy, ELEMENT_BYTES), Tensor(x, ELEMENT_BYTES))
    columns = {"unroll": COLUMN_ROWS, "turns": ROWS // (COLUMN_GROUPS * COLUMN_ROWS // 2), "warps": COLUMN_WARPS}
    return (
        _row_sums("layernorm_sums", (dy, x), tuple(sums[:2])),
        ElementMap("layernorm_factors", 1, ROWS, tuple(factors), fma=8, vector=1, unroll=1),
        _row_map("layernorm_gradient", (dy, x), dx, (Tensor(weight, ELEMENT_BYTES),), tuple(sums[2:])),
        ElementMap("layernorm_columns", ROWS, HIDDEN, inputs, fma=4, vector=1, **columns),
    )


def head_sum() -> tuple[KernelSource, ...]:
    """The sum of the dropped scores over the heads of each sequence; a lane has one element."""
    plane = SEQUENCE * SEQUENCE * ELEMENT_BYTES
    heads = SCORES // ROWS
    scores, total = regions(FIRST_ADDRESS, (SCORES * SEQUENCE * ELEMENT_BYTES, ROWS * SEQUENCE * ELEMENT_BYTES))
    read = Tensor(scores, ELEMENT_BYTES, pitch_bytes=heads * plane, repeat=heads, step_bytes=plane)
    tensors, options = (
        (read, Tensor(total, ELEMENT_BYTES, Use.WRITE)),
        {"vector": 1, "unroll": 1, "warps": COLUMN_WARPS},
    )
    return (ElementMap("head_sum", ROWS // SEQUENCE, SEQUENCE**2, tensors, fma=heads, **options),)


def _row_sums(name: str, inputs: tuple[int, ...], sums: tuple[int, ...]) -> RowKernel:
    tensors = tuple(Tensor(address, ELEMENT_BYTES) for address in inputs)
    return RowKernel(
        name, ROWS, HIDDEN, tensors, scalars_out=sums, reductions=len(sums), vector=1, warps=MOMENT_WARPS,
        keep=False, shared_rows=True,
    )  # fmt: skip


def _row_map(
    name: str, inputs: tuple[int, ...], output: int, vectors: tuple[Tensor, ...], scalars: tuple[int, ...]
) -> RowKernel:
    """Output from inputs, vectors and two scalars of each row; no sums."""
    tensors = tuple(Tensor(address, ELEMENT_BYTES) for address in inputs)
    return RowKernel(
        name, ROWS, HIDDEN, tensors, (Tensor(output, ELEMENT_BYTES, Use.WRITE),), vectors, scalars, reductions=0,
        vector=1, warps=MAP_WARPS, shared_rows=True, fma=4,
    )  # fmt: skip


OWN_KERNELS = {"layernorm": layernorm, "layernorm_back": layernorm_back, "head_sum": head_sum}
"""Kernels that have no name in `tracer.kernels`."""


def kernels_of(part: Part, preset: Preset) -> tuple[KernelSource, ...]:
    """The kernels of one of a part's operators."""
    return make_kernels(part.text, gpu_facts(preset.machine)) if part.text else OWN_KERNELS[part.name]()


@cache
def _machine(name: str, overrides: tuple[str, ...]) -> tuple[Preset, float]:
    """A machine, and the share of the lines of its L2 that are dirty before a kernel of the layer."""
    preset = load_preset(name, overrides)
    return preset, dirty_share((part.number, kernels_of(part, preset)) for part in (*FORWARD, *BACKWARD))


class BertLayer(Experiment, tag="bert_layer", frozen=True, kw_only=True):
    """The layer on a machine, by class.

    Attributes:
        preset, overrides: the machine.
        accuracy: of the simulated times.
    """

    preset: str
    overrides: tuple[str, ...] = ()
    accuracy: float = 0.01

    def _run(self, part: Part) -> KernelRun:
        preset, dirty = _machine(self.preset, self.overrides)
        return kernel_run(preset, kernels_of(part, preset), L2State.USED, self.accuracy, dirty)

    def runs(self) -> list[Run]:
        return [self._run(part) for part in (*FORWARD, *BACKWARD)]

    def answers(self, results: Results) -> dict[str, float]:
        """`time_ms`, and `<class>_ms` and `<class>_share` in percent; a gap precedes each kernel."""
        preset, _ = _machine(self.preset, self.overrides)
        gap_ps = preset.machine.dispatch.gap_ps
        times = dict.fromkeys((CONTRACTION, NORMALISATION, ELEMENT), 0.0)
        for part in (*FORWARD, *BACKWARD):
            found = results[self._run(part).key].kernels[-len(kernels_of(part, preset)) :]
            times[part.kind] += part.number * sum(kernel.time_ps + gap_ps for kernel in found) / PS_PER_MS
        whole_ms = sum(times.values())
        answers = {"time_ms": whole_ms} | {f"{name}_ms": time_ms for name, time_ms in times.items()}
        return answers | {f"{name}_share": 100 * time_ms / whole_ms for name, time_ms in times.items()}
