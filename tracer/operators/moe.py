"""Mixture of experts: routing, permutation of the tokens by expert, and its inverse.

T tokens, k experts of a token, S = whole sectors of 32 bytes of a row of `hidden` elements:

moe_route      softmax of the scores [T, experts] and the k best, then the place of each choice among those of its
               expert: DRAM reads T * experts * B + 4 T k, writes 8 T k (weights and experts) + 4 T k (places)
moe_permute    row j of the output is the token of place j: requested by loads T * k * S and indices; DRAM reads T * S +
               indices if L2 holds a token until its k copies are made; DRAM writes T * k * S.
               Backward each token is the sum of its k rows, as moe_unpermute.
moe_unpermute  a token is the weighted sum of its k rows: DRAM reads T * k * S + indices, DRAM writes T * S.
               Backward each of the k rows gets the token's gradient: DRAM reads T * S + indices, writes T * k * S.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.index import Index, Spread
from tracer.operators.operator import Operator
from tracer.operators.row_kernel import SCALAR_BYTES, RowKernel
from tracer.operators.row_move import EACH_MAX, INDEX_BYTES, Move, RowMove
from tracer.operators.tensor import Tensor, Use
from traces.errors import UserError


@dataclass(frozen=True, kw_only=True)
class _Experts(Operator):
    """Fields of all operators of a mixture of experts."""

    tokens: int
    experts: int
    top_k: int

    def check(self) -> None:
        if self.top_k > min(self.experts, EACH_MAX):
            raise UserError(f"{self.NAME} top_k = {self.top_k}: must be <= {min(self.experts, EACH_MAX)}")


@dataclass(frozen=True, kw_only=True)
class MoeRoute(_Experts):
    """Choice of the experts of each token.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "moe_route"

    def parts(self) -> tuple[EvenKernel, ...]:
        choices = self.tokens * self.top_k
        scores, weights, chosen, places = self.buffers(
            self.tokens * self.experts * self.dtype.bytes, *[choices * SCALAR_BYTES] * 3
        )
        best = (Tensor(chosen, INDEX_BYTES), Tensor(places, INDEX_BYTES, Use.WRITE))
        per_row = self.tokens * SCALAR_BYTES
        stored = [first + k * per_row for first in (weights, chosen) for k in range(self.top_k)]
        return (
            RowKernel(
                "moe_route", self.tokens, self.experts, (Tensor(scores, self.dtype.bytes),), scalars_out=tuple(stored),
                reductions=2 + self.top_k, lanes=self.lanes,
            ),
            ElementMap("moe_places", 1, choices, best, fma=4, lanes=self.lanes),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _MoeMove(_Experts):
    """Fields of the permutation and its inverse.

    Attributes:
        vector: elements of a lane per access; 0 = 16 bytes.
    """

    hidden: int
    backward: bool = False
    vector: int = 0

    def _move(self, move: Move, spread: Spread) -> tuple[EvenKernel, ...]:
        b, each = self.dtype.bytes, self.top_k if spread == Spread.TO_EXPERTS else 1
        token_rows, expert_rows, index = self.buffers(
            self.tokens * self.hidden * b,
            self.tokens * self.top_k * self.hidden * b,
            self.tokens * self.top_k * INDEX_BYTES,
        )
        rows, table = (token_rows, expert_rows) if spread == Spread.TO_EXPERTS else (expert_rows, token_rows)
        name = f"{self.NAME}_backward" if self.backward else self.NAME
        indices = Index(spread, self.tokens, each, self.experts, self.top_k)
        settings: dict[str, Any] = {"vector": self.vector, "lanes": self.lanes}
        return (RowMove(name, move, self.hidden, b, rows, table, index, indices, **settings),)


@dataclass(frozen=True, kw_only=True)
class MoePermute(_MoeMove):
    """Copies of the tokens, sorted by expert.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "moe_permute"

    def parts(self) -> tuple[EvenKernel, ...]:
        spread = Spread.TO_EXPERTS if self.backward else Spread.FROM_EXPERTS
        return self._move(Move.GATHER, spread)


@dataclass(frozen=True, kw_only=True)
class MoeUnpermute(_MoeMove):
    """The weighted sum of the rows of each token.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "moe_unpermute"

    def parts(self) -> tuple[EvenKernel, ...]:
        return self._move(Move.SCATTER if self.backward else Move.GATHER, Spread.TO_EXPERTS)
