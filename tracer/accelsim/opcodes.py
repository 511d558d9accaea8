"""SASS opcodes: the effect of an instruction, from the first part of its name and its modifiers.

Only effects that a trace of memory events needs are kept: pipe, memory, width, registers.
Sources: the memory-space and width rules of Accel-Sim's trace front end; NVIDIA's CUDA Binary Utilities
documentation for the list of opcodes. A name that is not in the lists is reported and counts as ALU work.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tracer.accelsim.latency import Latency, latency_table
from tracer.accelsim.tensor import mac_cost, tensor_shape
from traces.schema import Cache, Pipe, Space

MAX_SOURCES = 8


class Action(IntEnum):
    """Action of the event builder for an instruction."""

    COMPUTE = 0
    LOAD = 1
    STORE = 2
    ATOMIC = 3
    REDUCE = 4
    ASYNC_COPY = 5  # LDGSTS: belongs to the group that the next COMMIT closes
    COMMIT = 6  # LDGDEPBAR
    DEPBAR = 7  # waits for all but the latest `imm` groups
    BARRIER = 8
    EXIT = 9
    BULK_COPY = 10  # TMA load: a separate group
    WAIT_ALL = 11  # waits for a phase of a transaction barrier, or for every group if phases are not followed
    ARRIVE = 12  # BAR.ARV: a barrier that counts the warp but does not stop it
    FENCE = 13  # MEMBAR beyond the workgroup: waits for the warp's stores
    MARKER = 14  # of the tracer, around a loop that waits for a barrier: no instruction
    CLUSTER_ARRIVE = 15  # these two only take an issue slot if the barrier of the cluster is not followed
    CLUSTER_WAIT = 16
    PHASE_INIT = 17  # of a transaction barrier; these six only take an issue slot if phases are not followed
    ARRIVE_ONCE = 18  # each lane
    ARRIVE_COUNT = 19  # each lane, `value` times
    ANNOUNCE = 20  # each lane arrives once and announces `value` bytes
    EXPECT = 21  # each lane announces `value` bytes and does not arrive
    PHASE_OTHER = 22
    COPIES_ARRIVE = 23  # when the LDGSTS before it are done; as COMMIT if phases are not followed


GENERIC = len(Space)
"""`space` of an access whose address window gives the space: LD, ST, ATOM."""

OPCODE = np.dtype(
    [
        ("action", "u1"),
        ("space", "u1"),  # Space or GENERIC
        ("cache", "u1"),
        ("pipe", "u1"),
        ("width_bytes", "u1"),  # per lane
        ("dst_regs", "u1"),  # registers written, beginning with the destination
        ("src_regs", "u1", MAX_SOURCES),  # registers read, beginning with each source
        ("latency", "u2"),
        ("macs", "u4"),  # TENSOR: multiply-accumulates of the warp
        ("work", "u4"),  # TENSOR: multiply-accumulates of fp16 that take as long
    ],
    align=True,
)


class Opcode(NamedTuple):
    """Effect of one opcode text. Fields as in OPCODE; `lacks`: what a reader warns of, "" = nothing."""

    action: Action
    space: int
    cache: Cache
    pipe: Pipe
    width_bytes: int
    dst_regs: int
    src_regs: tuple[int, ...]
    latency: Latency
    macs: int
    lacks: str
    work: int = 0


_ACCESSES = {
    "LDG": (Action.LOAD, Space.GLOBAL), "LD": (Action.LOAD, GENERIC), "LDL": (Action.LOAD, Space.LOCAL),
    "LDS": (Action.LOAD, Space.SHARED),
    "STG": (Action.STORE, Space.GLOBAL), "ST": (Action.STORE, GENERIC), "STL": (Action.STORE, Space.LOCAL),
    "STS": (Action.STORE, Space.SHARED), "STAS": (Action.STORE, Space.SHARED),
    "ATOMG": (Action.ATOMIC, Space.GLOBAL), "ATOM": (Action.ATOMIC, GENERIC), "ATOMS": (Action.ATOMIC, Space.SHARED),
    "RED": (Action.REDUCE, Space.GLOBAL), "REDG": (Action.REDUCE, Space.GLOBAL), "REDS": (Action.REDUCE, Space.SHARED),
}  # fmt: skip
_MATRIX_MOVES = {"LDSM": Action.LOAD, "STSM": Action.STORE}
_TMA = {
    "UTMALDG": Action.BULK_COPY, "UBLKCP": Action.BULK_COPY, "UTMASTG": Action.STORE, "UTMAREDG": Action.REDUCE,
    "UBLKRED": Action.REDUCE, "UTMAPF": Action.LOAD, "UBLKPF": Action.LOAD,
}  # fmt: skip
_ACTIONS = {
    "EXIT": Action.EXIT, "DEPBAR": Action.DEPBAR, "LDGDEPBAR": Action.COMMIT, "ARRIVES": Action.COPIES_ARRIVE,
    "UCGABAR_ARV": Action.CLUSTER_ARRIVE, "UCGABAR_WAIT": Action.CLUSTER_WAIT,
    "REPLAY_START": Action.MARKER, "REPLAY_END": Action.MARKER,
}  # fmt: skip
"""Of instructions that are no memory access. All others compute, except those of `_action`."""

_UNREAD = {"TEX", "TLD", "TLD4", "TXD", "TEXS", "TLDS", "TLD4S", "SULD", "SUST", "SUATOM", "SURED"}
"""Accesses by texture or surface, whose addresses no tracer writes."""

_WORK: dict[str, tuple[Pipe, Latency]] = {}


def _list(pipe: Pipe, latency: Latency, names: str) -> None:
    _WORK.update(dict.fromkeys(names.split(), (pipe, latency)))


_list(Pipe.ALU, Latency.ALU,
      "BFE BFI BMSK IABS IADD IADD3 IADD32I ICMP IMNMX ISCADD ISCADD32I ISET ISETP LEA LOP LOP3 LOP32I "
      "MOV MOV32I MOVM SHF SHL SHR SEL SGXT VABSDIFF VABSDIFF4 VADD VIADD VIADDMNMX VIMNMX VIMNMX3 VMNMX P2R R2P PSET "
      "PSETP PLOP3 PRMT CSET CSETP FCMP FMNMX FMNMX3 FSEL FSET FSETP FCHK DMNMX RRO CREDUX R2B LEPC I2I I2IP "
      "F2FP FSWZADD FSWZ HMNMX2 VHMNMX HSET2 HSETP2 CS2R GETLMEMBASE SETLMEMBASE GETCRSPTR SETCRSPTR CCTL CCTLL CCTLT "
      "ERRBAR MEMBAR FENCE NOP PMTRIG NANOSLEEP YIELD WARPSYNC DEPBAR LDGDEPBAR ARRIVES SYNCS QSPC PIXLD AL2P ELECT "
      "ACQBULK ENDCOLLECTIVE UCGABAR_ARV UCGABAR_WAIT WARPGROUP WARPGROUPSET USETMAXREG FOOTPRINT "
      "TEX TLD TLD4 TMML TXD TXQ TEXS TLDS TLD4S SULD SUST SUATOM SURED SUQUERY "
      "OUT AST ALD ISBERD ISBEWR ITOMIC VOTEU VSET VSETP VSHL VSHR VMAD "
      "CSMTEST SETCTAID VOTE_VTG CGAERRBAR PREEXIT USETSHMSZ BAR REPLAY_START REPLAY_END")  # fmt: skip
_list(Pipe.ALU, Latency.CONVERT, "F2F F2I F2IP I2F I2FP FRND")
_list(Pipe.ALU, Latency.POPC, "POPC FLO BREV")
_list(Pipe.ALU, Latency.SHUFFLE, "SHFL VOTE MATCH REDUX")
_list(Pipe.ALU, Latency.SPECIAL_REGISTER, "S2R B2R")
_list(Pipe.FMA, Latency.FP32, "FADD FADD2 FADD32I FFMA FFMA2 FFMA32I FMUL FMUL2 FMUL32I")
_list(Pipe.FMA, Latency.IMAD, "IMAD IMAD32I IMADSP IMUL IMUL32I XMAD IDP IDP4A")
_list(Pipe.FMA, Latency.HALF2, "HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2 HMUL2_32I HFMA HADD HMUL")
_list(Pipe.FP64, Latency.FP64, "DADD DFMA DMUL DSETP DSET")
_list(Pipe.SFU, Latency.SFU, "MUFU")
_list(Pipe.TENSOR, Latency.TENSOR, "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCQMMA UTCIMMA")
_list(Pipe.BRANCH, Latency.BRANCH,
      "BRA BRX BRXU BRK BMOV BPT BREAK BSSY BSYNC CALL CAL CONT EXIT JCAL JMP JMX JMXU KILL LONGJMP PBK PCNT PEXIT "
      "PLONGJMP PRET RET RPCMOV RTT SSY SYNC SAM RAM IDE")  # fmt: skip
_list(Pipe.UNIFORM, Latency.UNIFORM,
      "R2UR S2UR UBMSK UBREV UCLEA UFLO UIADD3 UIMAD UISETP ULEA ULOP ULOP3 ULOP32I UMOV UP2UR UPLOP3 UPOPC UPRMT "
      "UPSETP UR2UP USEL USGXT USHF USHL USHR UVIRTCOUNT UF2FP UFADD UFFMA UFMUL UFSETP UFSEL UI2F UF2I UVIADD UVIMNMX "
      "UIABS UIMNMX UTMACMDFLUSH UTMACCTL UMEMSETS")  # fmt: skip
_list(Pipe.UNIFORM, Latency.CONSTANT, "LDC LDCU ULDC")


def access_bytes(tokens: list[str], default: int = 4) -> int:
    """Bytes per lane, from the first modifier that is a number of bits (also with U or S before it)."""
    for token in tokens:
        digits = token[1:] if token[:1] in ("U", "S") else token
        if digits.isascii() and digits.isdigit() and len(digits) <= 3:
            return min(max(int(digits) // 8, 1), 32)
    return default


def cache_policy(tokens: list[str]) -> Cache:
    """Cache policy of a global access.

    Memory of the GPU itself is coherent at its L2. So volatile accesses and accesses of GPU or system scope bypass only
    L1.
    (The bare `.SYS` of Volta marks ordinary accesses.)
    """
    names = set(tokens)
    if names & {"CG", "CV", "WT", "BYPASS", "NA"} or ("STRONG" in names and names & {"GPU", "SYS"}):
        return Cache.BYPASS_L1
    if names & {"CS", "EF", "LU"}:
        return Cache.STREAM
    if "UNCACHED" in names:  # written by tracer.accelsim.writer; no SASS modifier
        return Cache.UNCACHED
    return Cache.DEFAULT


def _registers(width_bytes: int) -> int:
    return max(1, width_bytes // 4)


def _memory(action: Action, space: int, tokens: list[str], address_regs: int) -> Opcode:
    """A load, store, atomic or reduction. Its sources are the address, then the data."""
    atomic = action in (Action.ATOMIC, Action.REDUCE)
    width = access_bytes(tokens, 8 if atomic and "F64" in tokens else 4)
    cache = Cache.DEFAULT if space == Space.SHARED or atomic else cache_policy(tokens)
    data = _registers(width)
    sources = (address_regs, data, data)
    return Opcode(action, space, cache, Pipe.ALU, width, data, sources, Latency.NONE, 0, "")


def _matrix_move(action: Action, tokens: list[str]) -> Opcode:
    """LDSM or STSM of 1, 2 or 4 matrices of 128 bytes, one register of each lane per matrix.

    Only 8 lanes per matrix give the address of a 16-byte row, though traces list all lanes. So the width is what a lane
    gets: the bytes of the warp are right.
    """
    matrices = next((int(token) for token in reversed(tokens) if token in ("2", "4")), 1)
    width, registers = 4 * matrices, (1, matrices)
    return Opcode(action, Space.SHARED, Cache.DEFAULT, Pipe.ALU, width, matrices, registers, Latency.NONE, 0, "")


def _work(base: str, tokens: list[str]) -> Opcode:
    """An instruction that is no memory access."""
    pipe, latency = _WORK.get(base, (Pipe.ALU, Latency.ALU))
    dst, macs = 1, 0
    sources: tuple[int, ...] = (1,) * 5
    if pipe == Pipe.TENSOR:
        macs, sources, dst = tensor_shape(base, tokens)
    elif pipe == Pipe.FP64 or base == "DMNMX":
        dst, sources = 2, (2,) * 5
    elif base == "IMAD" and "WIDE" in tokens:
        dst, sources = 2, (1, 1, 2)
    elif base == "CS2R" and "32" not in tokens:
        dst = 2
    elif base in ("F2F", "F2I", "I2F", "FRND") and "F64" in tokens:
        dst, sources = (2, (2,)) if base in ("F2F", "FRND") else ((1, (2,)) if base == "F2I" else (2, (1,)))
    elif base in ("LDC", "ULDC", "LDCU"):
        dst = _registers(access_bytes(tokens))
    work = max(1, round(macs * mac_cost(base, tokens))) if macs else 0
    action = _action(base, tokens)
    return Opcode(action, 0, Cache.DEFAULT, pipe, 0, dst, sources, latency, macs, _lacks(base, tokens), work)


def _lacks(base: str, tokens: list[str]) -> str:
    """What is left out of an instruction that is no memory access here."""
    text = ".".join([base, *tokens])
    if base not in _WORK:
        return f"unknown opcode {text}, taken as ALU work"
    if base in _UNREAD or (base == "CCTL" and any(token.startswith("PF") for token in tokens)):
        return f"{text}, taken as ALU work: its memory traffic is left out"
    return ""


def _action(base: str, tokens: list[str]) -> Action:
    """Action of an instruction that is no memory access."""
    if base == "BAR":
        return Action.ARRIVE if "ARV" in tokens else Action.BARRIER
    if base == "MEMBAR" and "CTA" not in tokens:
        return Action.FENCE
    if base == "SYNCS":
        return _phase_action(tokens)
    return _ACTIONS.get(base, Action.COMPUTE)


def _phase_action(tokens: list[str]) -> Action:
    """Action of SYNCS."""
    if "TRYWAIT" in tokens:
        return Action.WAIT_ALL
    if tokens[:1] == ["EXCH"]:
        return Action.PHASE_INIT
    if tokens[:1] != ["ARRIVE"]:
        return Action.COMPUTE
    ways = {"A1T0": Action.ARRIVE_ONCE, "ART0": Action.ARRIVE_COUNT, "TRANS64": Action.ANNOUNCE, "RED": Action.ANNOUNCE,
            "A0TR": Action.EXPECT}  # fmt: skip
    return ways.get(tokens[-1], Action.PHASE_OTHER)


def classify(text: str) -> Opcode:
    """Effect of an opcode such as `LDG.E.128.STRONG.GPU`."""
    base, *tokens = text.split(".")
    if base in _MATRIX_MOVES:
        return _matrix_move(_MATRIX_MOVES[base], tokens)
    if base in _ACCESSES:
        action, space = _ACCESSES[base]
        return _memory(action, space, tokens, 1 if space == Space.SHARED else 2)
    if base == "LDGSTS":  # sources: shared address, global address
        copy = _memory(Action.ASYNC_COPY, Space.GLOBAL, tokens, 1)
        return copy._replace(src_regs=(1, 2), dst_regs=0)
    if base in _TMA:
        to_global = base == "UBLKCP" and tokens[:1] == ["G"]  # target, then source: G.S is shared -> global
        action = Action.STORE if to_global else _TMA[base]
        return Opcode(action, Space.GLOBAL, Cache.BYPASS_L1, Pipe.ALU, 16, 0, (1,), Latency.NONE, 0, "")
    return _work(base, tokens)


def fill_record(record: np.void, opcode: Opcode, architecture: int) -> None:
    """Fill an OPCODE record from an Opcode, with the latency of an architecture."""
    for name in ("action", "space", "cache", "pipe", "width_bytes", "dst_regs", "macs", "work"):
        record[name] = getattr(opcode, name)
    record["src_regs"] = (*opcode.src_regs, *(1,) * MAX_SOURCES)[:MAX_SOURCES]
    record["latency"] = latency_table(architecture)[opcode.latency][0]
