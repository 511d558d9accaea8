"""Latency of fixed-latency instructions per architecture, in core clocks from issue to use by the same warp.

These numbers are used only for chains of arithmetic between memory events (`cycles` of a COMPUTE event). The throughput
of the pipes belongs to the machine. Each row names its source. If there is no measurement of an architecture, the
value of the nearest architecture is used and marked assumed.
"""

from enum import IntEnum


class Latency(IntEnum):
    """Groups of instructions with the same latency."""

    ALU = 0  # integer add, logic, shift, move, compare
    FP32 = 1
    IMAD = 2
    HALF2 = 3  # packed fp16
    FP64 = 4
    SFU = 5  # MUFU
    CONVERT = 6
    POPC = 7
    SHUFFLE = 8
    SPECIAL_REGISTER = 9  # S2R
    CONSTANT = 10  # LDC
    UNIFORM = 11
    BRANCH = 12
    TENSOR = 13
    NONE = 14  # no result: stores, barriers, NOP


JIA_VOLTA = "Jia et al. 2018, Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, arXiv 1804.06826"
AFTER_JIA = "assumed (recalled from arXiv 1804.06826, not verified against it)"
ACCELSIM_GV100 = "Accel-Sim tested-cfgs/SM7_GV100/trace.config"
ACCELSIM_A100 = "Accel-Sim tested-cfgs/SM80_A100/trace.config"
ACCELSIM_H100 = "Accel-Sim tested-cfgs/SM90_H100/trace.config"
ASSUMED = "assumed"

_SHARED_ASSUMED: dict[Latency, tuple[int, str]] = {
    Latency.SHUFFLE: (23, ASSUMED),
    Latency.SPECIAL_REGISTER: (20, ASSUMED),
    Latency.CONSTANT: (26, ASSUMED),
    Latency.BRANCH: (4, ACCELSIM_A100),
    Latency.UNIFORM: (4, ACCELSIM_A100),
    Latency.NONE: (1, ASSUMED),
}
_VOLTA: dict[Latency, tuple[int, str]] = {
    Latency.ALU: (4, AFTER_JIA),
    Latency.FP32: (4, JIA_VOLTA),
    Latency.IMAD: (5, AFTER_JIA),
    Latency.HALF2: (6, AFTER_JIA),
    Latency.FP64: (8, JIA_VOLTA),
    Latency.SFU: (14, AFTER_JIA),
    Latency.CONVERT: (14, ASSUMED),
    Latency.POPC: (10, AFTER_JIA),
    Latency.TENSOR: (2, ACCELSIM_GV100),  # one step of HMMA.884
    **_SHARED_ASSUMED,
}
_PASCAL: dict[Latency, tuple[int, str]] = {
    **_VOLTA,
    Latency.ALU: (6, AFTER_JIA),
    Latency.FP32: (6, AFTER_JIA),
    Latency.IMAD: (6, AFTER_JIA),  # XMAD
    Latency.HALF2: (6, AFTER_JIA),
    Latency.FP64: (12, ASSUMED),
    Latency.POPC: (14, ASSUMED),
    Latency.BRANCH: (6, ASSUMED),
}
_TURING: dict[Latency, tuple[int, str]] = {
    **{group: (cycles, ASSUMED) for group, (cycles, _) in _VOLTA.items()},
    Latency.FP64: (48, ASSUMED),
    Latency.TENSOR: (14, ASSUMED),  # HMMA.1688
}
_AMPERE: dict[Latency, tuple[int, str]] = {
    **_VOLTA,
    Latency.ALU: (4, ACCELSIM_A100),
    Latency.FP32: (4, ACCELSIM_A100),
    Latency.IMAD: (4, ACCELSIM_A100),
    Latency.HALF2: (5, ASSUMED),
    Latency.FP64: (6, ACCELSIM_A100),
    Latency.SFU: (23, ACCELSIM_A100),
    Latency.TENSOR: (12, ACCELSIM_A100),  # HMMA.16816
}
_HOPPER: dict[Latency, tuple[int, str]] = {
    **_AMPERE,
    Latency.ALU: (4, ACCELSIM_H100),
    Latency.FP32: (4, ACCELSIM_H100),
    Latency.FP64: (8, ACCELSIM_H100),
    Latency.SFU: (23, ACCELSIM_H100),
    Latency.TENSOR: (12, ASSUMED),  # HMMA; GMMA is waited for by WARPGROUP.DEPBAR
}

TABLES: dict[int, dict[Latency, tuple[int, str]]] = {
    60: _PASCAL,
    70: _VOLTA,
    75: _TURING,
    80: _AMPERE,
    90: _HOPPER,
}
"""Key: lowest binary version (compute capability times ten) of the table."""
DEFAULT_ARCHITECTURE = 70
"""Used for an unknown binary version."""


TABLE_OF = {60: 60, 61: 60, 62: 60, 70: 70, 72: 70, 75: 75, 80: 80, 86: 80, 87: 80, 89: 80, 90: 90}
"""Table of every known binary version. sm_86 to sm_89 use the table of sm_80 (assumed)."""


def table_version(architecture: int) -> int:
    """Key of TABLES for a binary version. An unknown version uses the nearest older table."""
    older = [version for version in TABLES if version <= architecture]
    return TABLE_OF.get(architecture, max(older) if older else DEFAULT_ARCHITECTURE)


def latency_table(architecture: int) -> dict[Latency, tuple[int, str]]:
    """Cycles and source of each group for a binary version such as 86."""
    return TABLES[table_version(architecture)]
