"""Store new keys and values into a cache: both are read and written once.

DRAM reads and writes 2 * tokens * kv_heads * head_dim * B bytes each, B bytes of the type. The numbers of the places (8
bytes per token) are left out.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.operator import Operator
from tracer.operators.tensor import Tensor, Use


@dataclass(frozen=True, kw_only=True)
class KvCache(Operator):
    """New keys and values of some tokens go into the cache.

    Attributes:
        vector: elements of a lane per access; 0 = 16 bytes. unroll: accesses of a warp.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "kv_cache"

    tokens: int
    kv_heads: int
    head_dim: int = 128
    vector: int = 0
    unroll: int = 4

    def parts(self) -> tuple[EvenKernel, ...]:
        cols, b = self.kv_heads * self.head_dim, self.dtype.bytes
        k, v, *cache = self.buffers(*[self.tokens * cols * b] * 4)
        tensors = (Tensor(k, b), Tensor(v, b), *(Tensor(address, b, Use.WRITE) for address in cache))
        shape = {"vector": self.vector, "unroll": self.unroll, "lanes": self.lanes}
        return (ElementMap("kv_cache", self.tokens, cols, tensors, **shape),)
