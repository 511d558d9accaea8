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

from tracer.operators.batched_gemm import BatchedGemm
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.operator import Operator
from tracer.operators.row_kernel import RowKernel
from tracer.operators.tensor import Tensor, Use
from traces.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Attention(Operator):
    """Attention in separate kernels.

    Attributes:
        kv_heads: heads of k and v; 0 = as many as heads.
        seq: keys. queries: 0 = seq.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "attention"

    batch: int
    heads: int
    seq: int
    head_dim: int = 128
    kv_heads: int = 0
    queries: int = 0

    def check(self) -> None:
        self.check_sizes("batch", "heads", "seq", "head_dim")
        if self.kv_heads < 0 or self.heads % (self.kv_heads or self.heads):
            raise UserError(f"attention kv_heads = {self.kv_heads}: must divide heads = {self.heads}")
        if not 0 <= self.queries <= self.seq:
            raise UserError(f"attention queries = {self.queries}: must be 0 (all) to seq = {self.seq}")

    def parts(self) -> tuple[EvenKernel, ...]:
        b, kv_heads, queries = self.dtype.bytes, self.kv_heads or self.heads, self.queries or self.seq
        batch, shared = self.batch * self.heads, self.heads // kv_heads
        q_bytes, kv_bytes = batch * queries * self.head_dim * b, self.batch * kv_heads * self.seq * self.head_dim * b
        q, k, v, o, scores, weights = self.buffers(
            q_bytes, kv_bytes, kv_bytes, q_bytes, *[batch * queries * self.seq * b] * 2
        )
        read, written = Tensor(scores, b), Tensor(weights, b, Use.WRITE)
        return (
            BatchedGemm("scores", batch, queries, self.seq, self.head_dim, b, q, k, scores, shared, True, self.lanes),
            RowKernel("softmax", batch * queries, self.seq, (read,), (written,), reductions=2, sfu=1, lanes=self.lanes),
            BatchedGemm(
                "context", batch, queries, self.head_dim, self.seq, b, weights, v, o, shared, False, self.lanes
            ),
        )
