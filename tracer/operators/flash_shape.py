"""The sizes of a fused attention, and the cost of its arithmetic."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar


class ForHeads(Protocol):
    """A row of a table: what holds for heads of up to `head_dim` elements."""

    @property
    def head_dim(self) -> int: ...


Row = TypeVar("Row", bound=ForHeads)


class FlashShape(NamedTuple):
    """Sizes of an attention.

    Attributes:
        parts: of the keys, in generation. torch: it is PyTorch's kernel.
        narrow: the backward pass has tiles for less than 144 KB of shared memory.
        version: of FlashAttention.
        fast_exp: no exponentials are computed with polynomials (Blackwell Ultra).
        mac_cost: time of a multiply-accumulate, as of `tracer.gemm.kernel.GemmKernel`.
    """

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    element_bytes: int
    causal: bool
    parts: int
    lanes: int
    paged: bool = False
    torch: bool = False
    mac_cost: float = 1.0
    narrow: bool = False
    version: int = 2
    fast_exp: bool = False

    def row_of(self, table: Sequence[Row]) -> Row:
        """The row of a table for these heads."""
        return next(row for row in table if self.head_dim <= row.head_dim)

    @property
    def row_bytes(self) -> int:
        """Size of a row of a head."""
        return self.head_dim * self.element_bytes

    @property
    def tensor_bytes(self) -> tuple[int, int]:
        """Sizes of q and of k."""
        rows = self.queries * self.heads, self.keys * self.kv_heads
        return self.batch * rows[0] * self.row_bytes, self.batch * rows[1] * self.row_bytes

    @property
    def group(self) -> int:
        """Heads that share a head of k and v."""
        return self.heads // self.kv_heads

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, of all heads."""
        unseen = self.queries * (self.queries - 1) // 2 if self.causal else 0
        return self.batch * self.heads * (self.queries * self.keys - unseen)
