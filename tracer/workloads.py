"""Transformer sub-layers whose output needs an all-reduce, as GEMM problems; and the kernel that computes them all.

With tensor parallelism (TP) each GPU multiplies its slice of K and so holds a partial sum of the whole output:
M = tokens, N = H, K = (1, 3 or 4) x H / TP, fp16. Models and sub-layers are those of the T3 paper (arXiv 2401.16677,
table of models, evaluation section).
"""

import re
from dataclasses import dataclass
from typing import Any

from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, TileOrder, padded_leading_dimension
from traces.errors import UserError
from traces.schema import SECTOR_BYTES

ELEMENT_BYTES = 2
ROW_ALIGNMENT_BYTES = 16
"""Leading dimensions are padded to this, so that rows take 16-byte vectors (assumed)."""


@dataclass(frozen=True)
class Model:
    """A Transformer as the paper lists it."""

    name: str  # on the command line
    title: str
    hidden: int  # H
    layers: int
    sequence: int
    batch: int
    tp: tuple[int, ...]  # degrees of tensor parallelism that the paper evaluates
    remark: str = ""

    @property
    def tokens(self) -> int:
        return self.sequence * self.batch


@dataclass(frozen=True)
class Layer:
    """A sub-layer before an all-reduce."""

    name: str
    title: str
    hidden_multiple: int  # K = hidden_multiple x H / TP


READING = "sequence length and batch are our best reading of the paper"
MODELS = {
    model.name: model
    for model in (
        Model("mega-gpt-2", "Mega-GPT-2", 3072, 74, 1024, 16, (8, 16)),
        Model("t-nlg", "T-NLG", 4256, 78, 1024, 8, (8, 16)),
        Model("gpt-3", "GPT-3", 12288, 96, 1024, 2, (32,), READING),
        Model("palm", "PALM", 18432, 118, 1024, 2, (32,), READING),
        Model("mt-nlg", "MT-NLG", 20480, 105, 1024, 2, (32,), READING),
    )
}
LAYERS = {
    layer.name: layer
    for layer in (
        Layer("op", "OP (attention output projection, forward)", 1),
        Layer("fc2", "FC-2 (second fully connected, forward)", 4),
        Layer("fc1", "FC-1 (first fully connected, backward)", 4),
        Layer("ip", "IP (attention input projection, backward)", 3),
    )
}

PAPER_CASES = tuple(
    (model, layer, tp) for model in ("mega-gpt-2", "t-nlg") for tp in MODELS[model].tp for layer in LAYERS
)
"""The 16 sub-layer cases of the paper's evaluation: (model, layer, TP)."""

# The one kernel of all cases (assumed): 2 workgroups of 8 warps per compute unit of 256 KB registers.
DEFAULT_KERNEL = GemmKernel(
    tile_m=128,
    tile_n=128,
    tile_k=32,
    warps_m=4,
    warps_n=2,
    pipeline_depth=2,
    vector_bytes=16,
    copy=Copy.LDG,
    epilogue=Epilogue.DIRECT,
    order=TileOrder.ROW,
)


def sublayer(model: str, layer: str, tp: int) -> GemmProblem:
    """One GPU's GEMM of a sub-layer.

    All matrices are row-major; A [M, K/TP] and B [K/TP, N] are slices of their own, as a framework that shards the
    weights holds them, with rows padded to 16 bytes (assumed).

    Raises:
        UserError: an unknown name, or a TP that does not divide K.
    """
    chosen, part = _named(MODELS, "model", model), _named(LAYERS, "layer", layer)
    k_total = part.hidden_multiple * chosen.hidden
    if not isinstance(tp, int) or tp < 1 or k_total % tp:
        raise UserError(f"tp = {tp!r}: must divide K = {k_total} of {model} {layer}")
    k = k_total // tp
    return GemmProblem(
        m=chosen.tokens,
        n=chosen.hidden,
        k=k,
        a_bytes=ELEMENT_BYTES,
        b_bytes=ELEMENT_BYTES,
        c_bytes=ELEMENT_BYTES,
        lda=padded_leading_dimension(k, ELEMENT_BYTES, ROW_ALIGNMENT_BYTES),
        ldb=padded_leading_dimension(chosen.hidden, ELEMENT_BYTES, ROW_ALIGNMENT_BYTES),
        ldc=padded_leading_dimension(chosen.hidden, ELEMENT_BYTES, ROW_ALIGNMENT_BYTES),
    )


def aligned_problem(m: int, n: int, k: int, **given: Any) -> GemmProblem:
    """A GEMM whose rows of A and B are padded to 16 bytes and those of C to a sector, so that tiles share none.

    Args:
        m, n, k: extents.
        given: other fields of GemmProblem; leading dimensions among them stay as they are.
    """
    inner = padded_leading_dimension(max(k, 1), ELEMENT_BYTES, ROW_ALIGNMENT_BYTES)
    outer = padded_leading_dimension(max(n, 1), ELEMENT_BYTES, SECTOR_BYTES)
    return GemmProblem(m, n, k, **({"lda": inner, "ldb": outer, "ldc": outer} | given))


def named_sublayer(name: str, where: str = "workload") -> tuple[GemmProblem, int]:
    """The GEMM of a sub-layer named model/layer/tpN, e.g. t-nlg/fc2/tp8, and its number of GPUs.

    Raises:
        UserError: another form of name, which `where` is set before; as `sublayer`.
    """
    parts = name.lower().split("/")
    if len(parts) != 3 or not re.fullmatch(r"tp\d+", parts[2]):
        raise UserError(f"{where}: found {name!r}, allowed is model/layer/tpN, e.g. t-nlg/fc2/tp8")
    gpus = int(parts[2][2:])
    return sublayer(parts[0], parts[1], gpus), gpus


def _named(table, what: str, name: str):
    if name not in table:
        raise UserError(f"{what} {name!r} is unknown: one of {', '.join(table)}")
    return table[name]
