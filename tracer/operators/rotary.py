"""Rotary position embedding of queries and keys, in place: pairs (j, j + head_dim / 2) of each head are turned.

q and k are one tensor [tokens, heads + kv_heads, head_dim]; cosine and sine are [tokens, head_dim / 2] each, read by
every head. Backward the angle is negative; the traffic is the same.

    DRAM reads             tokens * (heads + kv_heads + 1) * head_dim * B bytes, if L2 holds a token's cosines and sines
    DRAM writes            tokens * (heads + kv_heads) * head_dim * B bytes
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.element_map import ElementMap
from tracer.operators.element_operator import OF_NO_LIBRARY, ElementOperator
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.library import Library
from tracer.operators.tensor import Tensor, Use
from traces.errors import UserError

FMA = 6
"""Instructions per pair: two products and two sums, conversions."""
DIVISION_INSTRUCTIONS = 20
"""Quotient and remainder by a number that the compiler does not know (CUDA C++ programming guide, chapter on arithmetic
instructions: up to 20)."""


@dataclass(frozen=True, kw_only=True)
class Rotary(ElementOperator):
    """Rotary embedding of the queries and keys of some tokens.

    Attributes:
        backward: the gradient; it moves the same bytes.
        division: head and pair of each access are found with an integer division.
        vector: pairs of a lane per access; 0 = 16 bytes.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "rotary"
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {**OF_NO_LIBRARY, "division": {"library": Library.GENERIC}}

    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    backward: bool = False
    division: bool = False

    def check(self) -> None:
        super().check()
        if self.head_dim % 2:
            raise UserError(f"rotary head_dim = {self.head_dim}: must be even")

    def parts(self) -> tuple[EvenKernel, ...]:
        b, heads, pairs = self.dtype.bytes, self.heads + self.kv_heads, self.head_dim // 2
        x, cosine, sine = self.buffers(
            self.tokens * heads * self.head_dim * b, self.tokens * pairs * b, self.tokens * pairs * b
        )
        pitch, half = self.head_dim * b, pairs * b
        tensors = (
            Tensor(x, b, Use.UPDATE, pitch_bytes=pitch),
            Tensor(x + half, b, Use.UPDATE, pitch_bytes=pitch),
            Tensor(cosine, b, share=heads),
            Tensor(sine, b, share=heads),
        )
        index = DIVISION_INSTRUCTIONS if self.division else 0
        name, rows = "rotary_backward" if self.backward else "rotary", self.tokens * heads
        return (self.loop(ElementMap(name, rows, pairs, tensors, fma=FMA, index=index, lanes=self.lanes)),)
