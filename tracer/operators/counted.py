"""Instructions counted in machine code: of NVIDIA's sm_90 with warps of 32 lanes, and of AMD's gfx942 with 64.

A machine's warps say which of the two its kernels have; other architectures have the same counts (D59). A SIMD of
AMD does all vector instructions in one pipe. Those of gfx942 are counted without what its scalar unit does (D68).
"""

from typing import Generic, NamedTuple, TypeVar

AMD_LANES = 64
Costs = TypeVar("Costs")


class Counted(NamedTuple, Generic[Costs]):
    """The costs of a kernel on both."""

    nvidia: Costs
    amd: Costs

    def on(self, lanes: int) -> Costs:
        """Those of a machine. lanes: of its warps."""
        return self.amd if lanes == AMD_LANES else self.nvidia


ROUND_FMA = Counted(0, 5)
"""Instructions that round a value to bf16, for which gfx942 has none. Counts of whole loops include them."""
