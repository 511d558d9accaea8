"""Transformer sub-layers whose output needs an all-reduce, as GEMM problems, and the kernel that computes them.

With tensor parallelism (TP) each GPU multiplies its slice of K, so it has a partial sum of the whole output:
M = tokens, N = H, K = (1, 3 or 4) x H / TP, fp16. Models and sub-layers are those of the T3 paper (arXiv 2401.16677,
table of models, evaluation section).
"""

import re
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from tracer.gemm.source import GemmKernel, GemmProblem, padded_leading_dimension
from traces.choices import nearest
from traces.errors import UserError

ROW_ALIGNMENT_BYTES = {"a": 16, "b": 32, "c": 32}
"""Rows begin at multiples of this (assumed). Rows of A then take 16-byte vectors; tiles of B and C share no sector."""


class Pad(IntEnum):
    """How to choose leading dimensions that are not given."""

    ALIGNED = 0  # rows padded to ROW_ALIGNMENT_BYTES
    DENSE = 1  # no padding between rows


@dataclass(frozen=True)
class Model:
    """A Transformer as listed in the paper."""

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
PAPER_NAMES = tuple(f"{model}/{layer}/tp{tp}" for model, layer, tp in PAPER_CASES)
"""The same as names for `named_sublayer`."""

# The kernel of all cases (assumed): 2 workgroups of 8 warps per compute unit of 256 KB registers.
DEFAULT_KERNEL = GemmKernel()


def sublayer(model: str, layer: str, tp: int) -> GemmProblem:
    """One GPU's GEMM of a sub-layer.

    All matrices are row-major. A [M, K/TP] and B [K/TP, N] are separate slices, as in a framework that shards the
    weights. `aligned_problem` pads their rows.

    Raises:
        UserError: an unknown name, or a TP that does not divide K.
    """
    transformer, sub_layer = _named(MODELS, "model", model), _named(LAYERS, "layer", layer)
    k_total = sub_layer.hidden_multiple * transformer.hidden
    if not isinstance(tp, int) or tp < 1 or k_total % tp:
        raise UserError(f"tp = {tp!r}: must divide K = {k_total} of {model} {layer}")
    return aligned_problem(transformer.tokens, transformer.hidden, k_total // tp)


def aligned_problem(m: int, n: int, k: int, pad: Pad = Pad.ALIGNED, **given: Any) -> GemmProblem:
    """A GEMM whose rows (columns, of a column-major matrix) begin at multiples of ROW_ALIGNMENT_BYTES.

    Args:
        m, n, k: extents.
        pad: DENSE = rows without padding.
        given: other fields of GemmProblem. Given leading dimensions are kept.
    """
    dense = GemmProblem(m, n, k, **given)
    leading = {}
    for matrix in (dense.a, dense.b, dense.c):
        letter = matrix.name.lower()
        run = matrix.adjacent(matrix.rows, matrix.columns)
        alignment_bytes = ROW_ALIGNMENT_BYTES[letter] if pad == Pad.ALIGNED else matrix.element_bytes
        leading[f"ld{letter}"] = padded_leading_dimension(run, matrix.element_bytes, alignment_bytes)
    return replace(dense, **(leading | given))


def named_sublayer(name: str) -> tuple[GemmProblem, int]:
    """The GEMM of a sub-layer named model/layer/tpN, e.g. t-nlg/fc2/tp8, and its number of GPUs.

    Raises:
        UserError: another form of name, or as `sublayer`.
    """
    parts = name.lower().split("/")
    if len(parts) != 3 or not re.fullmatch(r"tp\d+", parts[2]):
        raise UserError(f"workload: found {name!r}, allowed is model/layer/tpN, e.g. t-nlg/fc2/tp8")
    gpus = int(parts[2][2:])
    return sublayer(parts[0], parts[1], gpus), gpus


def _named(table, what: str, name: str):
    if name not in table:
        raise UserError(f"{what} {name!r} is unknown; {nearest(name, table)}")
    return table[name]
