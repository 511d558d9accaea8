"""`records.h`: our record types, constants and enumerations as the C loops of `c_loops` see them.

Made from the numpy record types when the loops are compiled, so kernel and C loop work on the same bytes.
"""

from enum import IntEnum

import numpy as np

from sim.hw.address_map import ATOM_BITS, ATOM_BYTES, CHUNK_BITS
from sim.hw.bits import BLOCK
from sim.hw.cu_record import BARRIERS, CU, RESIDENT
from sim.hw.fifo import FIFO
from sim.hw.hbm.log import LOG
from sim.hw.hbm.queue import ATOM, BUCKETS, MAX_ATOMS
from sim.hw.hbm.record import BANK, CHANNEL, GROUP
from sim.hw.l1 import CHAINS, L1, MAX_JOINERS, MISS_ENTRY
from sim.hw.l2 import AHEAD
from sim.hw.l2_record import L2_BANK
from sim.hw.lsu_record import LOAD, LSU
from sim.hw.mca import MCA_LIMITS
from sim.hw.noc_record import MAX_CUS, MAX_PACKETS, NOC, SCALE_BITS, SLOTS
from sim.hw.request import LINE_BYTES, NEVER, REQUEST, SECTOR_BYTES, STREAMS, Op, Stream
from sim.hw.tags import ADDRESS_BITS, CACHE_SET, EVICT_FIRST, HELD, LOW_BITS, MAX_WAYS, SECTORS, WAY_BLOCK
from sim.hw.warp import ASLEEP, IDLE, MAX_WARPS, ON_LSU, ON_SLOTS, READY, SLOT, WARP, WARP_BITS, WARPS
from sim.spec import Arbiter, BankMap, CacheIndex, PagePolicy
from traces.schema import EVENT, EXPLICIT, NO_SLOT, Cache, Kind, Pipe, Space

PACKETS_PER_WINDOW = 6
"""That each CU of the crossbar's benchmark sends in a time window."""

RECORDS: dict[str, np.dtype] = {
    "request": REQUEST,
    "fifo": FIFO,
    "event": EVENT,
    "sectors": SECTORS,
    "way_block": WAY_BLOCK,
    "cache_set": CACHE_SET,
    "l2_bank": L2_BANK,
    "group": GROUP,
    "bank": BANK,
    "atom": ATOM,
    "mca_limits": MCA_LIMITS,
    "channel": CHANNEL,
    "log": LOG,
    "noc": NOC,
    "resident": RESIDENT,
    "cu": CU,
    "load": LOAD,
    "lsu": LSU,
    "miss_entry": MISS_ENTRY,
    "l1": L1,
    "slot": SLOT,
    "warp": WARP,
    "warps": WARPS,
}
"""Struct -> record type; those inside others first."""
CONSTANTS = {
    "LINE_BYTES": LINE_BYTES,
    "SECTOR_BYTES": SECTOR_BYTES,
    "ATOM_BYTES": ATOM_BYTES,
    "ATOM_BITS": ATOM_BITS,
    "CHUNK_BITS": CHUNK_BITS,
    "BLOCK": BLOCK,
    "STREAMS": STREAMS,
    "NEVER": NEVER,
    "BUCKETS": BUCKETS,
    "MAX_ATOMS": MAX_ATOMS,
    "AHEAD": AHEAD,
    "HELD": HELD,
    "LOW_BITS": LOW_BITS,
    "ADDRESS_BITS": ADDRESS_BITS,
    "EVICT_FIRST": EVICT_FIRST,
    "MAX_WAYS": MAX_WAYS,
    "EXPLICIT": EXPLICIT,
    "SLOTS": SLOTS,
    "SCALE_BITS": SCALE_BITS,
    "MAX_PACKETS": MAX_PACKETS,
    "MAX_CUS": MAX_CUS,
    "PACKETS_PER_WINDOW": PACKETS_PER_WINDOW,
    "CHAINS": CHAINS,
    "MAX_JOINERS": MAX_JOINERS,
    "BARRIERS": BARRIERS,
    "MAX_WARPS": MAX_WARPS,
    "WARP_BITS": WARP_BITS,
    "ASLEEP": ASLEEP,
    "NO_SLOT": NO_SLOT,
    "IDLE": IDLE,
    "READY": READY,
    "ON_SLOTS": ON_SLOTS,
    "ON_LSU": ON_LSU,
}
ENUMS: dict[str, type[IntEnum]] = {
    "OP": Op,
    "STREAM": Stream,
    "KIND": Kind,
    "CACHE": Cache,
    "PIPE": Pipe,
    "SPACE": Space,
    "ARBITER": Arbiter,
    "MAP": BankMap,
    "PAGE": PagePolicy,
    "INDEX": CacheIndex,
}
"""Prefix -> enumeration: `OP_READ`."""
SCALARS = {
    "|i1": "int8_t",
    "|u1": "uint8_t",
    "<i2": "int16_t",
    "<i4": "int32_t",
    "<u4": "uint32_t",
    "<i8": "int64_t",
    "<u8": "uint64_t",
}


def records_header() -> str:
    """`records.h`: constants, and a struct for each record type, its layout checked by the compiler."""
    lines = ["#include <stddef.h>", "#include <stdint.h>"]
    lines += [f"#define {name} {_literal(value)}" for name, value in CONSTANTS.items()]
    lines += [f"#define {prefix}_{one.name} {one.value}" for prefix, enum in ENUMS.items() for one in enum]
    for name, record in RECORDS.items():
        lines += [f"struct {name} {{", *(_member(record, field) for field in record.names or ()), "};"]
        lines += [f'_Static_assert(sizeof(struct {name}) == {record.itemsize}, "{name}");']
        for field in record.names or ():
            offset = record.fields[field][1]  # type: ignore[index]
            lines += [f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{name}.{field}");']
    return "\n".join(["#pragma once", *lines, ""])


def _literal(value: int) -> str:
    return f"((int64_t){value}LL)" if value >= 1 << 31 else str(value)


def _member(record: np.dtype, field: str) -> str:
    kind = record.fields[field][0]  # type: ignore[index]
    inner, shape = kind.subdtype or (kind, ())
    struct = next((name for name, other in RECORDS.items() if other == inner), "")
    return f"    {f'struct {struct}' if struct else SCALARS[inner.str]} {field}{''.join(f'[{n}]' for n in shape)};"
