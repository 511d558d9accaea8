"""Training on H100, H200, A100 and MI300X: blind predictions beside the throughput that others measured.

`python -m validation.against.training` writes `tables/training.md`. With `--predict` it first simulates the cases that
have no prediction yet (results in the store are used) and adds them to `predictions/training.csv`.

Cases are rows of the benchmark table of llm-foundry (scripts/train/benchmarking/README.md @8c8dd48: MPT with FSDP),
of torchtitan (docs/performance.md @395a526: Llama 2 with FSDP2) and of nanoGPT-amd (README.md @ccaddd8: GPT-2 on one
GPU): bf16, fused attention, gradients reduced in fp32, no compiler; and one by the author of nanoGPT-amd with
torch.compile on MI300X (ROCm/TransformerEngine, issue 79), with gradients reduced in bf16. When the predictions were
committed, only what says what ran had been read: of llm-foundry by a script, of the others by somebody else. Nothing
is calibrated with a row.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.model import ModelScenario
from sim.scenario.power import loaded_clock
from sim.scenario.result import SEQUENTIAL
from tracer.models.catalogue import load_model, models
from tracer.models.deployment import Deployment, ModelPhase, Recompute, Software
from tracer.models.schedule import OperatorClass
from tracer.models.shape import ModelShape
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.units import PS_PER_MS, PS_PER_S
from validation.against.model_predictions import classes
from validation.against.models import ACCURACY, whole
from validation.csv_file import read_csv, write_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
PREDICTIONS = HERE / "predictions" / "training.csv"
REFERENCE = HERE / "references" / "training.csv"
NOTES = HERE / "against" / "training_notes.md"
TABLE = HERE / "tables" / "training.md"
WIDTHS = {
    "mpt-7b": (32, 4096, 32), "mpt-13b": (40, 5120, 40), "mpt-30b": (48, 7168, 56), "gpt2-1.5b": (48, 1600, 25)
}  # fmt: skip
"""Layers, hidden size and heads of models with a plain MLP (llm-foundry, scripts/train/yamls/pretrain; nanoGPT-amd,
configs/gpt2-1.5b.json)."""
VOCAB = {"mpt": 50368, "gpt2": 50304}
SIZES: dict[str, tuple[str, dict[str, object]]] = {
    "llama-2-13b": ("llama-2-7b", {"layers": 40, "hidden": 5120, "intermediate": 13824, "heads": 40, "kv_heads": 40}),
    "llama-3-405b-16": ("llama-3-405b", {"kv_heads": 16, "vocab": 51200}),
    "llama-3-405b-16-7": ("llama-3-405b", {"kv_heads": 16, "vocab": 51200, "layers": 7}),
    "nemotron-4-15b": (
        "gpt-22b",
        {
            "layers": 32, "hidden": 6144, "intermediate": 24576, "heads": 48, "kv_heads": 8, "head_dim": 128,
            "vocab": 256000, "max_positions": 4096, "rotary": True, "bias": False, "tied": False,
        },
    ),
}  # fmt: skip
"""A model that the catalogue lacks -> one that it has, and what differs: torchtitan (torchtitan/models/llama); NVIDIA's
dgxc-benchmarking @5f23b67b (llama3.1_405b.yaml: 16 groups of keys, the vocabulary of GPT-2, also with 7 layers;
nemotron4-15b-synth.yaml, whose squared ReLU is a GELU here)."""
H100, H200, A100, MI300X = "h100_sxm", "h200", "a100_80g", "mi300x"


class Case(NamedTuple):
    """A row: preset, model, GPUs, tokens of a sequence, sequences of a micro-batch, micro-batches, whether the backward
    pass computes activations again, software, and whether the time has the optimizer in it; then fields of
    `Deployment`. All other GPUs are of data parallelism. Tensor-parallel ones divide norms and residuals."""

    machine: str
    model: str
    gpus: int
    sequence: int
    micro_batch: int
    micro_batches: int
    recompute: int
    software: str
    optimizer: int
    zero: int = 3
    replicas: int = 1
    tp: int = 1
    cp: int = 1
    pp: int = 1
    ep: int = 1
    interleave: int = 1

    @property
    def how(self) -> Deployment:
        return Deployment(
            phase=ModelPhase.TRAIN, tp=self.tp, cp=self.cp, pp=self.pp, dp=self.gpus // (self.tp * self.cp * self.pp),
            ep=self.ep, interleave=self.interleave, sequence_parallel=self.tp > 1, zero=self.zero,
            replicas=self.replicas, micro_batch=self.micro_batch, micro_batches=self.micro_batches,
            sequence=self.sequence, recompute=Recompute.FULL if self.recompute else Recompute.NONE,
            software=Software(self.software),
        )  # fmt: skip

    @property
    def tokens(self) -> float:
        """Of an iteration, divided by the GPUs."""
        return self.sequence * self.micro_batch * self.micro_batches * self.how.dp / self.gpus


FSDP1, FSDP2, COMPILED, FUSED = Software.EAGER_2023, Software.EAGER, Software.COMPILE, Software.FUSED
CASES = (
    *(Case(H100, "mpt-13b", gpus, 2048, 2, 1, 0, FSDP1, 1) for gpus in (8, 16, 32, 64)),
    Case(A100, "mpt-13b", 8, 2048, 2, 3, 0, FSDP1, 1),
    Case(H100, "mpt-7b", 8, 2048, 6, 1, 0, FSDP1, 1),
    Case(H100, "gpt2-1.5b", 1, 1024, 8, 1, 0, FSDP1, 0, zero=0),
    Case(A100, "llama-2-13b", 64, 4096, 2, 1, 0, FSDP2, 1),
    Case(A100, "mpt-7b", 8, 2048, 6, 2, 0, FSDP1, 1),
    Case(MI300X, "llama-3-8b", 8, 4096, 4, 1, 0, COMPILED, 0),
    *(Case(H100, "llama-3-8b", gpus, 8192, 1, 32, 0, FUSED, 1, zero=1, cp=2) for gpus in (8, 128)),
    *(
        Case(H100, "llama-3-70b", gpus, 8192, 1, 64, 0, FUSED, 1, zero=1, tp=4, cp=2, pp=4, interleave=5)
        for gpus in (64, 2048)
    ),
    *(Case(H100, "gpt-175b", gpus, 2048, 1, 64, 0, FUSED, 1, zero=1, tp=4, pp=8, interleave=6) for gpus in (128, 2048)),
    *(
        Case(H100, "llama-3-405b-16", gpus, 8192, 1, 63, 0, FUSED, 1, zero=1, tp=8, cp=2, pp=9, interleave=7)
        for gpus in (576, 2304)
    ),
    Case(H100, "llama-3-405b-16-7", 32, 8192, 1, 63, 0, FUSED, 1, zero=1, tp=8, cp=2),
    *(Case(H100, "nemotron-4-15b", gpus, 4096, 4, 4, 0, FUSED, 1, zero=1, tp=4) for gpus in (16, 2048)),
    Case(H100, "nemotron-4-15b", 16, 4096, 2, 4, 0, FUSED, 1, zero=1, tp=2),
    Case(H100, "qwen3-8b", 16, 4096, 1, 64, 0, FUSED, 1, zero=1),
    Case(H100, "qwen3-30b-a3b", 16, 4096, 1, 64, 0, FUSED, 1, zero=1, ep=16),
    Case(H200, "mixtral-8x7b", 256, 4096, 2, 2, 0, FUSED, 1, zero=1, ep=8),
    Case(H100, "llama-3-70b", 64, 8192, 1, 4, 1, COMPILED, 1, cp=2),
    Case(H100, "llama-2-7b", 96, 4096, 2, 1, 0, COMPILED, 1, replicas=12),
    Case(A100, "llama-2-7b", 128, 4096, 2, 1, 0, COMPILED, 1, replicas=16),
    Case(H100, "mpt-7b", 128, 2048, 6, 1, 0, FSDP1, 1),
    Case(H100, "mpt-30b", 128, 2048, 8, 1, 1, FSDP1, 1),
)
"""In the order in which they are simulated."""
IN_VIEW = "mpt-13b"
"""The model whose measured rows were known when the copies of FSDP were added. Predictions of all others are blind."""
RATE, CLOCK, LOADED = "tokens_per_s_per_gpu", "loaded_clock_MHz", "loaded_tokens_per_s_per_gpu"
"""Columns: as simulated; the clock of a board that repeats the step, and the rate there (`sim.scenario.power`). The two
are empty in older rows, and of machines whose power is not known."""
HEADER = ("machine", "model", "GPUs", "tokens", "sequences", "micro-batches", "recomputes", "software", "optimizer")


def shape(case: Case) -> ModelShape:
    """The model."""
    if case.model in models():
        return load_model(case.model)
    if case.model in SIZES:
        like, sizes = SIZES[case.model]
        return replace(load_model(like), name=case.model, **sizes)  # type: ignore[arg-type]
    layers, hidden, heads = WIDTHS[case.model]
    return ModelShape(
        name=case.model, layers=layers, hidden=hidden, intermediate=4 * hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, vocab=VOCAB[case.model.partition("-")[0]], max_positions=case.sequence, gated=False,
    )  # fmt: skip


def scenario(case: Case) -> ModelScenario:
    """What the row ran."""
    return ModelScenario(load_preset(case.machine), shape(case), case.how, ACCURACY, overlap=False)


def read(path: Path) -> dict[Case, dict[str, str]]:
    """Case -> its row of a file."""
    found = {}
    for row in read_csv(path) if path.exists() else ():
        values = (row[name] for name in Case._fields)
        found[Case._make(int(value) if value.isdigit() else value for value in values)] = row
    return found


def write_predictions(store: Store) -> None:
    """Simulate the cases that have no prediction: one that is there was made before its value was known."""
    done: list[tuple[object, ...]] = [tuple(row.values()) for row in read_csv(PREDICTIONS)]
    for case in [case for case in CASES if case not in read(PREDICTIONS)]:
        result = whole(scenario(case), store)
        times = classes(result.configurations[SEQUENTIAL], 1)
        left_out_ms = 0 if case.optimizer else times[OperatorClass.OPTIMIZER]
        rate = _rate(case, times.pop("iteration") - left_out_ms)
        loaded = loaded_clock(result)
        under_load = (loaded.clock_MHz, _rate(case, loaded.time_ps / PS_PER_MS - left_out_ms)) if loaded else ("", "")
        done.append((*case, rate, *(f"{time_ms:.1f}" for time_ms in times.values()), *under_load))
        write_csv(PREDICTIONS, (*Case._fields, RATE, *(f"{name}_ms" for name in times), CLOCK, LOADED), done)


def _rate(case: Case, time_ms: float) -> str:
    """Tokens per second and GPU."""
    return f"{case.tokens / time_ms * PS_PER_S / PS_PER_MS:.1f}"


def table() -> str:
    """The page."""
    ours, rows = read(PREDICTIONS), []
    errors: dict[tuple[str, str], list[float]] = {}
    for case, row in read(REFERENCE).items():
        measured, predicted = (float(each[RATE]) for each in (row, ours[case]))
        error = predicted / measured - 1
        kind = "in view" if case.model == IN_VIEW else "blind"
        errors.setdefault((case.machine, kind), []).append(error)
        rows.append([*(str(value) for value in case), f"{measured:,.0f}", f"{predicted:,.0f}", f"{error:+.1%}", kind])
    means = []
    for (machine, kind), found in errors.items():
        absolute, mean = mean_errors(found)
        means.append([machine, kind, str(len(found)), f"{absolute:.1%}", f"{mean:+.1%}", f"{max(found, key=abs):+.1%}"])
    intro = (
        "Generated by `python -m validation.against.training`. Measured by others: "
        "`validation/references/training.csv`, tokens per second and GPU. Predicted: "
        "`validation/predictions/training.csv`. All GPUs of a row are one group that shares out the weights."
    )
    return to_markdown(
        [
            Heading("Training in PyTorch on H100, A100 and MI300X", 1),
            Text(intro),
            Table(("machine", "kind", "rows", "mean absolute error", "mean error", "worst"), means),
            notes(NOTES),
            Heading("All cases", 2),
            Table((*HEADER, "measured", "predicted", "error", "kind"), rows),
        ]
    )


@click.command()
@click.option("--predict", is_flag=True, help="Simulate the cases without a prediction.")
def main(predict: bool) -> None:
    """Write the page."""
    if predict:
        write_predictions(Store())
    write_page(TABLE, table())


if __name__ == "__main__":
    main()
