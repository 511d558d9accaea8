"""Attention in separate kernels: scores = q x k^T, softmax, o = scores x v. The scores go through memory.

q and o are [batch, heads, queries, head_dim], k and v [batch, kv_heads, seq, head_dim], scores [batch, heads, queries,
seq], of one type. A mask of causality is applied in the softmax; it saves nothing. With P = batch * heads * queries *
seq * B bytes of scores, Q = batch * heads * queries * head_dim * B and K = batch * kv_heads * seq * head_dim * B:

forward    DRAM reads Q + K (scores), P (softmax), P + K (context), if L2 holds the operands of a head;
           DRAM writes P, P, Q
The backward pass of this form is not here: `flash_attention` has one.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.gemm.batched import BatchedGemm
from tracer.gemm.source import GemmKernel, GemmProblem, Layout
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.operator import Operator
from tracer.operators.row_kernel import RowKernel
from tracer.operators.tensor import Tensor, Use
from traces.errors import UserError

SMALL_TILE = 64
"""Width of the tile of a GEMM whose output has at most this number of columns, or is fp64; else 128 (assumed)."""
WIDEST_BYTES = 4
"""Widest elements whose sums of 128 x 128 tiles fit the registers."""
STEP_BYTES = 128
"""Most bytes of K in a step: two stages of 128 x 128 tiles fit 64 KB of shared memory (assumed)."""


@dataclass(frozen=True, kw_only=True)
class Heads(Operator):
    """Fields of all forms of attention.

    Attributes:
        kv_heads: heads of k and v; 0 = as many as heads.
        seq: keys. queries: 0 = seq.
    """

    OTHER_RANGES: ClassVar[tuple[str, ...]] = ("kv_heads",)

    batch: int
    heads: int
    seq: int
    head_dim: int = 128
    kv_heads: int = 0
    queries: int = 0

    @property
    def masked(self) -> bool:
        """A query sees keys up to its own position, of as many queries as keys or fewer."""
        return True

    def check(self) -> None:
        if self.kv_heads < 0 or self.heads % (self.kv_heads or self.heads):
            raise UserError(f"{self.NAME} kv_heads = {self.kv_heads}: must divide heads = {self.heads}")
        if self.queries < 0 or (self.queries > self.seq and self.masked):
            raise UserError(f"{self.NAME} queries = {self.queries}: must be 0 (all) to seq = {self.seq}")


@dataclass(frozen=True, kw_only=True)
class Attention(Heads):
    """Attention in separate kernels.

    Attributes:
        mac_cost: of its GEMMs (`tracer.gemm.kernel`).

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "attention"

    mac_cost: float = 1.0

    def parts(self) -> tuple[EvenKernel, ...]:
        b, kv_heads, queries = self.dtype.bytes, self.kv_heads or self.heads, self.queries or self.seq
        batch = self.batch * self.heads
        q_bytes, kv_bytes = batch * queries * self.head_dim * b, self.batch * kv_heads * self.seq * self.head_dim * b
        q, k, v, o, scores, weights = self.buffers(
            q_bytes, kv_bytes, kv_bytes, q_bytes, *[batch * queries * self.seq * b] * 2
        )
        read, written = Tensor(scores, b), Tensor(weights, b, Use.WRITE)
        return (
            self._gemm("scores", queries, self.seq, self.head_dim, (q, k, scores), column=True),
            RowKernel("softmax", batch * queries, self.seq, (read,), (written,), reductions=2, sfu=1, lanes=self.lanes),
            self._gemm("context", queries, self.head_dim, self.seq, (weights, v, o), column=False),
        )

    def _gemm(self, name: str, m: int, n: int, k: int, addresses: tuple[int, int, int], column: bool) -> BatchedGemm:
        """The GEMMs of all heads. addresses: of A, B and C of the first one. column: B is stored by columns."""
        b, (a_address, b_address, c_address), batch = self.dtype.bytes, addresses, self.batch * self.heads
        problem = GemmProblem(
            m, n, k, a_bytes=b, b_bytes=b, c_bytes=b, accumulate_bytes=max(4, b),
            b_layout=Layout.COLUMN if column else Layout.ROW,
            a_address=a_address, b_address=b_address, c_address=c_address, c_source_address=c_address,
        )  # fmt: skip
        tile_n = SMALL_TILE if n <= SMALL_TILE or b > WIDEST_BYTES else GemmKernel.tile_n
        tile_k = min(GemmKernel.tile_k, STEP_BYTES // b)
        kernel = GemmKernel(tile_n=tile_n, tile_k=tile_k, lanes=self.lanes, mac_cost=self.mac_cost)
        strides_bytes = m * k * b, k * n * b, m * n * b
        shared = self.heads // (self.kv_heads or self.heads)
        return BatchedGemm(problem, kernel, batch, strides_bytes, shared, f"{name}_{m}x{n}x{k}")
