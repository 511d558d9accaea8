"""Fused attention as FlashAttention 2 (Dao, arXiv 2307.08691), and of prompts and training also 3 and 4: scores stay
on the chip. `tracer.operators.flash_roles` says what is different in versions 3 and 4. Their traffic is the same, but
pairs of workgroups load keys and values (backward: queries and gradients of outputs) once for both.

q, k, v and o are [batch, sequence, heads, head_dim] (k and v with `kv_heads`); q has `queries` positions, k and v have
`seq`. With `causal` a query sees the keys up to its own position; the last query sees all. Without it there may be more
queries than keys (a part of a sequence that several GPUs share).

Forward, prompt: a workgroup has BLOCK_M queries of one head and walks the keys in blocks of BLOCK_N, up to the diagonal
if causal. Generation (one query): a workgroup has the queries of up to 64 heads that share a head of k and v, and one
of `splits` parts of the keys. With several parts it stores o in 4 bytes and the logarithm of the sum; a second kernel
joins the parts.

Traffic in bytes (B of the type, q = queries, s = seq, a = heads, g = kv_heads, d = head_dim, n(m) = keys that block m
of queries walks, in whole blocks up to s):

forward     requested by loads batch * (a * q * d * B + 2 * a * d * B * sum over m of n(m));
            DRAM reads batch * d * B * (a * q + 2 * g * s) if L2 holds the keys and values in flight;
            DRAM writes batch * a * q * d * B, with `stats` batch * a * q * 4 more
generation  requested by loads batch * d * B * (a + 2 * g * s * ceil(a / g / 64)); DRAM reads that without ceil(...);
            with P > 1 parts written and read batch * a * P * (4 d + 4), then o is written
backward    (three kernels) do and o are read for the sums of their products; a workgroup has BLOCK_N keys of one head
            and walks the queries; dq is summed in L2 in 4 bytes with atomic adds and converted by the third kernel; if
            heads share keys, dk and dv are stored per head and summed by a fourth kernel
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tracer.data_type import DataType
from tracer.gemm.architecture import GemmLibrary, GpuFacts
from tracer.gemm.fields import on_machine
from tracer.gemm.problem import next_region
from tracer.operators.attention import Heads
from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.flash_backward import WIDE_BYTES
from tracer.operators.flash_kernel import STAT_BYTES, FlashForward, FlashShape
from tracer.operators.flash_roles import forward_kernel
from tracer.operators.flash_roles_backward import backward_kernel
from tracer.operators.library import Library
from tracer.operators.row_kernel import RowKernel
from tracer.operators.tensor import Tensor, Use, regions
from traces.errors import UserError

HEAD_DIM_STEP, HEAD_DIM_MAX = 8, 256
"""FlashAttention 2 has heads of a multiple of 8 elements up to 256."""
TYPES = (DataType.FP16, DataType.BF16)
SPLIT_WORKGROUPS = 256
"""Workgroups that a generation step is split into if `splits` is 0, some two for each CU (assumed)."""
MIN_SPLIT_KEYS = 128
SUM_BYTES = 4
"""Partial outputs and summed gradients: fp32."""
NEWEST = {GemmLibrary.SM90: 3, GemmLibrary.SM100: 4, GemmLibrary.SM103: 4}
"""The version of FlashAttention for prompts that is made for the GPUs of a library; 2 runs on all."""


@dataclass(frozen=True, kw_only=True)
class FlashAttention(Heads):
    """Fused attention. With one query: generation with a cache of `seq` keys.

    Attributes:
        paged: keys and values are in pages of a cache, as inference engines keep them. Their addresses cost
            instructions. (The table of pages is left out: it stays in L1.)
        splits: parts of the keys of a generation step; 0 = enough for the machine.
        stats: the logarithm of the sum of each row is stored (training).
        library: TORCH = the forward kernel of PyTorch.
        mac_cost: time of a multiply-accumulate, relative to the machine's fp16. FlashAttention 2 has the matrix
            instructions of Ampere on every machine.
        version: of FlashAttention: 2; of prompts without pages also 3 (warpgroups of Hopper) and 4 (Blackwell). A
            machine has the newest one that is made for it, but PyTorch's kernel is that of version 2.
        fast_exp: version 4 computes no exponentials with polynomials, as on Blackwell Ultra.
        narrow: the backward pass has tiles for a workgroup with less than 144 KB of shared memory.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "flash_attention"

    OTHER_RANGES: ClassVar[tuple[str, ...]] = ("head_dim", "kv_heads")
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {
        **{name: {"backward": False} for name in ("paged", "stats", "library")},
        "version": {"paged": False, "library": Library.GENERIC, "lanes": 32},
        "splits": {"queries": 1},
        "fast_exp": {"version": 4, "backward": False},
    }

    causal: bool = True
    splits: int = 0
    paged: bool = False
    stats: bool = False
    backward: bool = False
    library: Library = Library.GENERIC
    mac_cost: float = 1.0
    narrow: bool = False
    version: int = 2
    fast_exp: bool = False

    @classmethod
    def of_machine(cls, gpu: GpuFacts, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        oldest = given.get("paged") or given.get("library") or (given.get("queries") or given["seq"]) == 1
        newest = NEWEST.get(gpu.library, 2) if gpu.bulk and not oldest else 2
        version = given.get("version", newest)
        if version > 2 and not gpu.bulk:
            raise UserError(f"flash_attention version = {version}: the machine has no bulk copies")
        family = GemmLibrary.SM80 if version == 2 else None
        found = on_machine(gpu, dtype, family)
        return {
            "lanes": found["lanes"],
            "mac_cost": found["mac_cost"],
            "narrow": gpu.resident(gpu.lanes, 1, WIDE_BYTES) == 0,
            "version": version,
            "fast_exp": gpu.library == GemmLibrary.SM103 and version == 4 and not given.get("backward", False),
        }

    def check(self) -> None:
        if self.head_dim not in range(HEAD_DIM_STEP, HEAD_DIM_MAX + 1, HEAD_DIM_STEP):
            allowed = f"a multiple of {HEAD_DIM_STEP} up to {HEAD_DIM_MAX}"
            raise UserError(f"flash_attention head_dim = {self.head_dim}: must be {allowed}")
        if self.dtype not in TYPES:
            raise UserError(f"flash_attention dtype = {self.dtype}: allowed are {', '.join(TYPES)}")
        self.refuse_library(Library.INDUCTOR)
        super().check()
        versions = (2,) if (self.queries or self.seq) == 1 else (2, *NEWEST.values())
        if self.version not in versions:
            allowed = ", ".join(map(str, versions))
            raise UserError(
                f"flash_attention version = {self.version}: allowed {'is' if len(versions) == 1 else 'are'} {allowed}"
            )
        if self.splits < 0:
            raise UserError(f"flash_attention splits = {self.splits}: must be >= 0")

    @property
    def masked(self) -> bool:
        return self.causal

    @property
    def shape(self) -> FlashShape:
        """The sizes with all defaults replaced."""
        queries, kv_heads = self.queries or self.seq, self.kv_heads or self.heads
        parts = 1
        if queries == 1:
            wanted = self.splits or -(-SPLIT_WORKGROUPS // (self.batch * kv_heads))
            parts = max(1, min(wanted, -(-self.seq // MIN_SPLIT_KEYS)))
        return FlashShape(
            self.batch, self.heads, kv_heads, queries, self.seq, self.head_dim, self.dtype.bytes, self.causal, parts,
            self.lanes, self.paged, self.library == Library.TORCH, self.mac_cost,
            self.narrow, self.version, self.fast_exp,
        )  # fmt: skip

    def parts(self) -> tuple[EvenKernel, ...]:
        shape = self.shape
        rows, (q_bytes, kv_bytes) = shape.batch * shape.heads * shape.queries, shape.tensor_bytes
        q, k, v, o, stats, partial = self.buffers(
            q_bytes, kv_bytes, kv_bytes, q_bytes, rows * shape.parts * STAT_BYTES,
            rows * shape.parts * shape.head_dim * SUM_BYTES,
        )  # fmt: skip
        if self.backward:
            return self._backward(q, k, v, o, stats)
        if shape.parts == 1:
            return (forward_kernel(shape, q, k, v, o, stats if self.stats else None),)
        out_bytes, parts = rows * shape.head_dim * SUM_BYTES, shape.parts
        tensors = (
            Tensor(partial, SUM_BYTES, repeat=parts, step_bytes=out_bytes),
            Tensor(stats, STAT_BYTES, per_row=True, repeat=parts, step_bytes=rows * STAT_BYTES),
            Tensor(o, self.dtype.bytes, Use.WRITE),
        )
        return (
            FlashForward(shape, q, k, v, partial, stats, SUM_BYTES),
            ElementMap("flash_join", rows, shape.head_dim, tensors, fma=2 * shape.parts, unroll=1, lanes=self.lanes),
        )

    def _backward(self, q: int, k: int, v: int, o: int, stats: int) -> tuple[EvenKernel, ...]:
        shape, b = self.shape, self.dtype.bytes
        rows, d = shape.batch * shape.heads * shape.queries, shape.head_dim
        keys = shape.batch * shape.keys * shape.heads
        free = next_region(stats + rows * STAT_BYTES)
        do, dot, sums, dq, dk, dv, dk_shared, dv_shared = regions(
            free, (rows * d * b, rows * STAT_BYTES, rows * d * SUM_BYTES, rows * d * b, *[keys * d * b] * 4)
        )
        before = RowKernel("flash_dot", rows, d, (Tensor(do, b), Tensor(o, b)), scalars_out=(dot,), lanes=self.lanes)
        main = backward_kernel(shape, (q, do), (k, v), (stats, dot), sums, (dk, dv))
        after = [ElementMap("convert", rows, d, (Tensor(sums, SUM_BYTES), Tensor(dq, b, Use.WRITE)), lanes=self.lanes)]
        if shape.kv_heads < shape.heads:
            group = shape.heads // shape.kv_heads
            shared = (shape.batch * shape.keys * shape.kv_heads, d)
            for source, out in ((dk, dk_shared), (dv, dv_shared)):
                read = Tensor(source, b, repeat=group, step_bytes=d * b, pitch_bytes=group * d * b)
                tensors = (read, Tensor(out, b, Use.WRITE))
                after.append(ElementMap("sum_heads", *shared, tensors, fma=group, lanes=self.lanes))
        return (before, main, *after)
