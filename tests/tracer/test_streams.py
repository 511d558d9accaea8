"""Microbenchmark traces: what they touch, and in which order they may run."""

import numpy as np
import pytest

from tests.support.lane_twin import lane_addresses
from tests.support.request_count import count_requests
from tracer.streams import BufferStream, Flow, PointerChase
from traces.errors import UserError
from traces.schema import Kind

BASE = 1 << 36


def bytes_touched(source, kind):
    """Sorted addresses of the lanes of one kind."""
    events = np.concatenate([w.events for w in source.workgroups()])
    return sorted(a for e in events[events["kind"] == kind] for a in lane_addresses(e, ()))


@pytest.mark.parametrize("lane_bytes", [16, 2])
@pytest.mark.parametrize("accesses", [1, 7, 24, 25, 100])
@pytest.mark.parametrize("flow", Flow)
def test_streams_touch_every_byte_once_per_pass(flow, accesses, lane_bytes):
    buffer_bytes = accesses * 32 * lane_bytes
    source = BufferStream(flow, buffer_bytes, workgroup_count=3, warps=2, unroll=4, passes=2, lane_bytes=lane_bytes)
    vectors = np.repeat(np.arange(accesses * 32) * lane_bytes, 2)
    reads = bytes_touched(source, Kind.LOAD)
    writes = bytes_touched(source, Kind.STORE)
    assert reads == ((BASE + vectors).tolist() if flow != Flow.WRITE else [])
    write_base = {Flow.READ: None, Flow.WRITE: BASE, Flow.COPY: 1 << 37}[flow]
    assert writes == ((write_base + vectors).tolist() if write_base else [])


def test_a_copy_stores_what_it_has_loaded():
    source = BufferStream(Flow.COPY, 4 * 512, workgroup_count=1, warps=1, unroll=4)
    (workgroup,) = source.workgroups()
    loads, stores = workgroup.events[:4], workgroup.events[4:8]
    assert (stores["wait"] == 1 << loads["slot"].astype(np.uint64)).all()
    assert (stores["base"] - loads["base"] == 1 << 36).all()
    assert workgroup.events["kind"][8] == Kind.EXIT


def test_a_copy_may_store_a_part_of_what_it_has_loaded():
    source = BufferStream(Flow.COPY, 10 * 512, workgroup_count=1, warps=1, unroll=4, stores=3)
    assert len(bytes_touched(source, Kind.LOAD)) == 10 * 32
    written = [(address - (1 << 37)) // 512 for address in bytes_touched(source, Kind.STORE)[::32]]
    assert written == [0, 1, 2, 4, 5, 6, 8, 9]


def test_a_read_waits_for_all_its_loads():
    (workgroup,) = BufferStream(Flow.READ, 64 * 512, workgroup_count=1, warps=1, unroll=64).workgroups()
    assert workgroup.events["wait"][64] == (1 << 64) - 1


def test_a_chase_waits_for_each_load_and_wraps():
    source = PointerChase(buffer_bytes=1024, loads=20, stride_bytes=256)
    (workgroup,) = source.workgroups()
    loads = workgroup.events[:-1]
    assert (loads["base"] - BASE).tolist() == [0, 256, 512, 768] * 5
    assert loads["wait"].tolist() == [0] + [1] * 19
    assert (loads["slot"] == 0).all()
    lines, sectors = np.zeros((2, 5), np.int64)
    count_requests(workgroup.events, workgroup.addresses, lines, sectors)
    assert lines[Kind.LOAD] == sectors[Kind.LOAD] == 20


def test_fingerprints_tell_sources_apart():
    sources = [PointerChase(512, 4), PointerChase(512, 5), *(BufferStream(flow, 512) for flow in Flow)]
    assert len({source.fingerprint() for source in sources}) == len(sources)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: BufferStream(Flow.READ, 500), "buffer_bytes = 500"),
        (lambda: BufferStream(Flow.READ, 512, unroll=65), "unroll = 65"),
        (lambda: BufferStream(Flow.READ, 512, warps=0), "warps = 0"),
        (lambda: BufferStream(Flow.READ, 384, lane_bytes=12), "lane_bytes = 12: must be 1, 2, 4, 8 or 16"),
        (lambda: BufferStream(Flow.READ, 512, lane_bytes=32), "lane_bytes = 32: allowed is a whole number, 1 to 16"),
        (lambda: BufferStream(Flow.COPY, 512, unroll=4, stores=5), "stores = 5: must be <= 4, the accesses"),
        (lambda: BufferStream(Flow.READ, 512, stores=1), "stores = 1: must be <= 0"),
        (lambda: BufferStream(Flow.COPY, 512, stores=-1), "stores = -1"),
        (lambda: PointerChase(0, 1), "buffer_bytes = 0"),
    ],
)
def test_impossible_streams_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
