"""The kernels of published models as PyTorch runs them, for `validation.against.measure_gpu`.

A kernel is named as for `t3sim trace` ("rmsnorm:rows=1024,cols=4096,dtype=bf16"). Norms, softmax, embedding and
attention are PyTorch's own kernels. Where PyTorch has several kernels and engines have one (residual and norm, SwiGLU,
rotary, ...), `torch.compile` makes one of them. This module imports nothing of the simulator.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from validation.csv_file import read_csv

Call = Callable[[], Any]
Fields = Mapping[str, str]
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
FP8_MAX = 448.0
"""Largest number of float8_e4m3."""
PREDICTIONS = Path(__file__).parents[1] / "predictions"
LISTS = ("gemm", "operator")


def shapes(of: str) -> list[dict[str, str]]:
    """Model and kernel of each row of `predictions/<of>_shapes.csv`. of: one of LISTS."""
    return read_csv(PREDICTIONS / f"{of}_shapes.csv")


def kernel_call(torch: Any, text: str) -> Call:
    """A function that runs the kernel once on random data, on tensors made before.

    Raises:
        ValueError: PyTorch has no such kernel.
    """
    name, _, rest = text.partition(":")
    if name not in CALLS:
        raise ValueError(f"no kernel of PyTorch stands for {name}")
    fields = dict(part.split("=", 1) for part in rest.split(","))
    return CALLS[name](Tensors(torch, DTYPES[fields.get("dtype", "fp16")]), fields)


class Tensors:
    """Makes random tensors of one type on the GPU."""

    def __init__(self, torch: Any, dtype: str):
        self.torch, self.dtype, self.device = torch, getattr(torch, dtype), "cuda"

    def __call__(self, *shape: int) -> Any:
        return self.torch.randn(*shape, dtype=self.dtype, device=self.device)

    def index(self, below: int, *shape: int) -> Any:
        return self.torch.randint(below, shape, device=self.device)

    def fused(self, function: Callable[..., Any], *tensors: Any) -> Call:
        """One compiled kernel. The first call compiles it."""
        compiled = self.torch.compile(function, dynamic=False)
        return lambda: compiled(*tensors)


def _numbers(fields: Fields, *names: str) -> list[int]:
    return [int(fields[name]) for name in names]


def _gemm(make: Tensors, fields: Fields) -> Call:
    n, k = _numbers(fields, "n", "k")
    torch = make.torch
    if "groups" in fields:
        sizes = [int(size) for size in fields["groups"].split("x")]
        a, b = make(sum(sizes), k), make(len(sizes), k, n)
        ends = torch.cumsum(torch.tensor(sizes, device=make.device), 0).to(torch.int32)
        return lambda: torch._grouped_mm(a, b, offs=ends)
    a = make(int(fields["m"]), k)
    b = make(n, k).t() if fields.get("b_layout") == "column" else make(k, n)
    c = make(int(fields["m"]), n)
    return lambda: torch.mm(a, b, out=c)


def _rmsnorm(make: Tensors, fields: Fields) -> Call:
    rows, cols = _numbers(fields, "rows", "cols")
    norm = make.torch.nn.functional.rms_norm
    x, weight = make(rows, cols), make(cols)
    if "residual" not in fields:
        return lambda: norm(x, (cols,), weight, 1e-6)

    def add_and_norm(x, residual, weight):
        h = x + residual
        return h, norm(h, (cols,), weight, 1e-6)

    return make.fused(add_and_norm, x, make(rows, cols), weight)


def _layernorm(make: Tensors, fields: Fields) -> Call:
    rows, cols = _numbers(fields, "rows", "cols")
    norm = make.torch.nn.functional.layer_norm
    x, weight, bias = make(rows, cols), make(cols), make(cols)
    if "residual" not in fields:
        return lambda: norm(x, (cols,), weight, bias)

    def add_and_norm(x, residual, weight, bias):
        h = x + residual
        return h, norm(h, (cols,), weight, bias)

    return make.fused(add_and_norm, x, make(rows, cols), weight, bias)


def _swiglu(make: Tensors, fields: Fields) -> Call:
    rows, cols = _numbers(fields, "rows", "cols")

    def swiglu(x):
        gate, up = x.chunk(2, -1)
        return make.torch.nn.functional.silu(gate) * up

    return make.fused(swiglu, make(rows, 2 * cols))


def _gelu(make: Tensors, fields: Fields) -> Call:
    rows, cols = _numbers(fields, "rows", "cols")
    gelu = make.torch.nn.functional.gelu
    x, bias = make(rows, cols), make(cols)
    if "bias" not in fields:
        return lambda: gelu(x, approximate="tanh")
    return make.fused(lambda x, bias: gelu(x + bias, approximate="tanh"), x, bias)


def _rotary(make: Tensors, fields: Fields) -> Call:
    tokens, heads, kv_heads, head_dim = _numbers(fields, "tokens", "heads", "kv_heads", "head_dim")

    def rotary(x, cosine, sine):
        left, right = x.chunk(2, -1)
        return make.torch.cat((left * cosine - right * sine, right * cosine + left * sine), -1)

    angles = make(tokens, 1, head_dim // 2), make(tokens, 1, head_dim // 2)
    return make.fused(rotary, make(tokens, heads + kv_heads, head_dim), *angles)


def _softmax(make: Tensors, fields: Fields) -> Call:
    x = make(*_numbers(fields, "rows", "cols"))
    return lambda: make.torch.softmax(x, -1)


def _embedding(make: Tensors, fields: Fields) -> Call:
    tokens, hidden, vocab = _numbers(fields, "tokens", "hidden", "vocab")
    table, token = make(vocab, hidden), make.index(vocab, tokens)
    return lambda: make.torch.nn.functional.embedding(token, table)


def _quantize(make: Tensors, fields: Fields) -> Call:
    def quantize(x):
        scale = x.abs().amax(-1, keepdim=True).float() / FP8_MAX
        return (x.float() / scale).to(make.torch.float8_e4m3fn), scale

    return make.fused(quantize, make(*_numbers(fields, "rows", "cols")))


def _flash_attention(make: Tensors, fields: Fields) -> Call:
    batch, heads, kv_heads, seq, head_dim = _numbers(fields, "batch", "heads", "kv_heads", "seq", "head_dim")
    queries = int(fields.get("queries", seq))
    q, k, v = (
        make(batch, s, h, head_dim).transpose(1, 2) for s, h in ((queries, heads), (seq, kv_heads), (seq, kv_heads))
    )
    attention, library = make.torch.nn.functional.scaled_dot_product_attention, make.torch.nn.attention

    def flash() -> Any:
        with library.sdpa_kernel(library.SDPBackend.FLASH_ATTENTION):
            return attention(q, k, v, is_causal=queries == seq, enable_gqa=heads != kv_heads)

    return flash


def _moe_permute(make: Tensors, fields: Fields) -> Call:
    tokens, top_k, hidden = _numbers(fields, "tokens", "top_k", "hidden")
    x, place = make(tokens, hidden), make.torch.randperm(tokens * top_k, device=make.device)
    token = place // top_k
    return lambda: make.torch.index_select(x, 0, token)


def _moe_unpermute(make: Tensors, fields: Fields) -> Call:
    tokens, top_k, hidden = _numbers(fields, "tokens", "top_k", "hidden")
    place = make.torch.randperm(tokens * top_k, device=make.device).reshape(tokens, top_k)

    def unpermute(y, place, weight):
        return (y[place] * weight.unsqueeze(-1)).sum(1)

    return make.fused(unpermute, make(tokens * top_k, hidden), place, make(tokens, top_k))


CALLS: dict[str, Callable[[Tensors, Fields], Call]] = {
    "gemm": _gemm,
    "rmsnorm": _rmsnorm,
    "layernorm": _layernorm,
    "swiglu": _swiglu,
    "gelu": _gelu,
    "rotary": _rotary,
    "softmax": _softmax,
    "embedding": _embedding,
    "quantize": _quantize,
    "flash_attention": _flash_attention,
    "moe_permute": _moe_permute,
    "moe_unpermute": _moe_unpermute,
}
"""Name of a kernel -> what makes its call. Choosing experts (`moe_route`) is no single kernel of PyTorch."""
