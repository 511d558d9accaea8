"""Kernels with one impossible value each, by name: none may reach a compiled function."""

import dataclasses

import numpy as np

from tests.support.programs import barrier, compute, kernel, load, row, store, workgroup
from traces.schema import NO_SLOT, Kind, Space

LOAD, SHARED, COMPUTE, BARRIER, STORE, LISTED, EXIT = range(7)
"""Rows of the first warp of `ordinary_kernel`."""
LINE = 1 << 20


def ordinary_kernel():
    """Two workgroups of two warps with an event of every sort."""
    rows = [
        load(LINE, slot=1),
        load(64, space=Space.SHARED, slot=2),
        compute(3, wait=[1, 2]),
        barrier(1),
        store(LINE + 4096),
        row(Kind.STORE, addresses=[LINE + 8 * lane * lane for lane in range(32)]),
    ]
    return kernel([workgroup(index, [rows, rows]) for index in range(2)])


def _event(place, words, **values):
    """The event of that row in the second workgroup, changed."""

    def make():
        source = ordinary_kernel()
        for name, value in values.items():
            source.items[1].events[name][place] = value
        return source, f"workgroup 1, warp 0, event {place} of the workgroup: {words}"

    return make


def _bulk(words, **values):
    """A bulk copy of two rows in the place of the load, changed."""
    box = {"kind": Kind.BULK, "space": 0, "inner": NO_SLOT, "work": 2, "stride": 64, "row_stride": 64, "base": LINE}
    return _event(LOAD, words, **box | values)


def _info(words, **values):
    def make():
        source = ordinary_kernel()
        return dataclasses.replace(source, info=dataclasses.replace(source.info, **values)), words

    return make


def _workgroup(words, **values):
    def make():
        source = ordinary_kernel()
        source.items[1] = source.items[1]._replace(**values)
        return source, f"workgroup {source.items[1].index}{words}"

    return make


def _listed_address():
    source = ordinary_kernel()
    source.items[1].addresses[40] = 1 << 63
    return source, "workgroup 1: addresses: row 40: found 9223372036854775808, allowed 0 to 2^63 - 1"


def _second_warp_exit(row_of_warp, kind):
    source = ordinary_kernel()
    source.items[1].events["kind"][7 + row_of_warp] = kind
    return source


def _without_exit():
    return _second_warp_exit(
        EXIT, Kind.WAIT
    ), "workgroup 1, warp 1: kind: found 7, allowed 8: every warp must end with an EXIT event"


def _early_exit():
    source = _second_warp_exit(COMPUTE, Kind.EXIT)
    return source, "warp 1, event 13 of the workgroup: kind: found 8, allowed EXIT only as the last event of a warp"


def _clocks():
    """257 events of 2^32 - 1 clocks are more than 2^40."""
    source = kernel([[[compute(1, cycles=(1 << 32) - 1) for _ in range(300)]]])
    return (
        source,
        "event 256 of the workgroup: count: found 1, allowed with cycles up to 1,099,511,627,776 in a workgroup",
    )


HOSTILE_KERNELS = {
    "kind": _event(LOAD, "kind: found 10, allowed 0 to 9", kind=10),
    "space": _event(LOAD, "space: found 4, allowed 0 to 3", space=4),
    "remote": _event(
        LOAD,
        "cycles: found 0, allowed as the set of the one workgroup that is meant: one bit of a rank in the cluster",
        space=3,
    ),
    "remote_listed": _event(
        LISTED, "space: found 3, allowed remote (3) only of loads, stores, atomics and reductions without listed",
        space=3,
    ),
    "remote_copy": _event(
        LOAD,
        "space: found 3, allowed remote (3) only of loads, stores, atomics and reductions without listed addresses",
        space=3, kind=4,
    ),
    "later": _event(COMPUTE, "space: found 2, allowed of arithmetic 0 or 1", space=2),
    "cache": _event(STORE, "cache: found 4, allowed 0 to 3", cache=4),
    "pipe": _event(COMPUTE, "pipe: found 255, allowed 0 to 6", pipe=255),
    "slot": _event(LOAD, "slot: found 64, allowed 0 to 63 or 255", slot=64),
    "slot_of_shared": _event(SHARED, "slot: found 200, allowed 0 to 63 or 255", slot=200),
    "width_255": _event(LOAD, "width_bytes: found 255, allowed 1 to 32", width_bytes=255),
    "width_0": _event(STORE, "width_bytes: found 0, allowed 1 to 32", width_bytes=0),
    "mask": _event(LOAD, "mask: found 4294967296, allowed as many bits as a warp has lanes", mask=1 << 32),
    "listed": _event(LISTED, "base: found 33, allowed as many listed addresses as lanes from there on", base=33),
    "listed_far": _event(LISTED, "base: found 18446744073709551615, allowed as many", base=(1 << 64) - 1),
    "listed_shared": _event(SHARED, "base: found 64, allowed as many listed addresses", inner=0),
    "row_stride": _event(
        LOAD, "row_stride: found 562949953421312, allowed -281,474,976,710,656 to 281,474,976,710,656",
        inner=4, row_stride=1 << 49,
    ),
    "row_stride_least": _event(LOAD, "row_stride: found -9223372036854775808", inner=4, row_stride=-(1 << 63)),
    "base": _event(LOAD, f"base: found {1 << 63}, allowed addresses of all lanes from 0 to 2^63 - 1", base=1 << 63),
    "base_end": _event(LOAD, f"base: found {(1 << 63) - 127}, allowed addresses of all", base=(1 << 63) - 127),
    "negative": _event(STORE, "base: found 1048575, allowed addresses of all lanes", base=LINE - 1, stride=-(1 << 20)),
    "barrier": _event(BARRIER, "slot: found 16, allowed of a barrier 0 to 15", slot=16),
    "arrive": _event(BARRIER, "space: found 4, allowed of a barrier 0 to 5, in a cluster; else 0 to 3", space=4),
    "phase_barrier": _event(
        BARRIER, "slot: found 32, allowed of a transaction barrier 0 to 31, of one of a set of workgroups 0 to 15",
        slot=32, space=3,
    ),
    "phase_barrier_of_a_set": _event(
        BARRIER, "slot: found 16, allowed of a transaction barrier 0 to 31, of one of a set of workgroups 0 to 15",
        slot=16, space=2, cycles=1,
    ),
    "phase": _event(
        BARRIER,
        "work: found 0, allowed of an arrival at a transaction barrier 1 to the threads of the cluster",
        space=2,
    ),
    "phase_bytes": _event(
        BARRIER, "row_stride: found -1, allowed of an arrival at a transaction barrier 0 to 1,048,575 bytes",
        space=2, work=1, row_stride=-1,
    ),
    "phase_peers": _event(
        BARRIER,
        "cycles: found 1, allowed as a set of workgroups: bits of ranks in the cluster; 0 without one, and of stores",
        space=2, work=1, cycles=1,
    ),
    "bulk_kind": _bulk("space: found 4, allowed of a bulk copy 0 to 3", space=4),
    "bulk_peers": _bulk("cycles: found 3, allowed as a set of workgroups: bits of ranks", inner=0, cycles=3),
    "bulk_send": _bulk("cycles: found 0, allowed as the set of the one workgroup", inner=0, space=3),
    "bulk_slot": _bulk("slot: found 255, allowed of a bulk copy 0 to 63", slot=255),
    "bulk_barrier": _bulk(
        "inner: found 32, allowed of a bulk load 0 to 31 or 255, of one for a set of workgroups and of a send 0 to "
        "15, of others 255", inner=32,
    ),
    "bulk_barrier_of_a_set": _bulk("inner: found 16, allowed of a bulk load 0 to 31", inner=16, cycles=1),
    "bulk_store_barrier": _bulk("inner: found 1, allowed of a bulk load 0 to 31 or 255", inner=1, space=1),
    "bulk_row": _bulk("stride: found 0, allowed of a bulk copy 1 to 1,048,575 bytes in a row", stride=0),
    "bulk_rows": _bulk(
        "work: found 0, allowed of a bulk copy at least one row, and up to 1,048,575 bytes in all rows", work=0
    ),
    "bulk_pitch": _bulk(
        "row_stride: found 32, allowed of a bulk copy a multiple of 16, the bytes of a row or more, up to 268,435,712",
        row_stride=32,
    ),
    "bulk_base": _bulk(
        f"base: found {LINE + 8}, allowed of a bulk copy a multiple of 16, all rows below 2^63", base=LINE + 8
    ),
    "participants": _event(BARRIER, "work: found 65, allowed of a barrier up to the threads of the workgroup", work=65),
    "clocks": _clocks,
    "listed_address": _listed_address,
    "no_exit": _without_exit,
    "early_exit": _early_exit,
    "warp_number": _workgroup(": warp_index: found warp 2, but the kernel has 2", warp=np.array([0, 2], np.uint16)),
    "warp_twice": _workgroup(": warp_index: found warp 1 for the second time", warp=np.array([1, 1], np.uint16)),
    "workgroup_number": _workgroup(": workgroup_index: found 2, allowed 0 to 1", index=2),
    "workgroup_negative": _workgroup(": workgroup_index: found -1, allowed 0 to 1", index=-1),
    "grid": _info("grid: found 0, allowed 1 to", grid=(2, 0, 1)),
    "grid_product": _info("grid: found 9223372036854775808, allowed 1 to", grid=(1 << 31, 1 << 32, 1)),
    "block": _info("block: found 1048576, allowed 1 to 4096", block=(1 << 20, 1, 1), warps_per_workgroup=32768),
    "many_warps": _info("warps_per_workgroup: found 100, allowed 1 to 64", block=(3200, 1, 1), warps_per_workgroup=100),
    "warps_of_block": _info("warps_per_workgroup: found 3, allowed 2 to 2", warps_per_workgroup=3),
    "lanes": _info("lanes_per_warp: found 33, allowed 32 to 64", lanes_per_warp=33),
    "registers": _info("registers: found -1, allowed 0 to", registers=-1),
    "shared_bytes": _info("shared_bytes: found -1, allowed 0 to", shared_bytes=-1),
    "cluster": _info("cluster: found 17, allowed 1 to 16", cluster=17),
    "cluster_rest": _info(
        "cluster: found 3, which does not divide its 2 workgroups, allowed is what does", cluster=3
    ),
    "stream": _info("stream: found -1, allowed 0 to", stream=-1),
    "workgroups": _info("workgroups: found 2, allowed 0 to 1", grid=(1, 1, 1)),
}  # fmt: skip
"""Name -> function that returns the kernel and words of the refusal."""
