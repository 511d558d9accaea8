"""The coalescer against a twin that looks at one byte at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.lane_twin import WORD, lane_addresses
from tests.support.request_count import count_requests
from tracer.coalesce import LINES_PER_EVENT, active_lanes, coalesce
from tracer.compile.jit import compiled
from traces.schema import EVENT, EXPLICIT, PLAIN_STRIDE, Kind, Space


def coalesce_naive(event, addresses):
    """[(line, sectors, full)] in order of first touch, byte by byte."""
    touched = {}
    for address in lane_addresses(event, addresses):
        for byte in range(address, address + int(event["width_bytes"])):
            touched.setdefault(byte % WORD // 128 * 128, set()).add(byte % 128)
    lines = []
    for line, offsets in touched.items():
        sectors = sum(1 << s for s in range(4) if any(o // 32 == s for o in offsets))
        full = sum(1 << s for s in range(4) if offsets.issuperset(range(32 * s, 32 * s + 32)))
        lines.append((line, sectors, full if event["kind"] == Kind.STORE else sectors))
    return lines


@compiled
def coalesce_one(events, addresses, line, sectors, full):
    return coalesce(events[0], addresses, line, sectors, full)


def coalesced(events, addresses):
    line = np.full(LINES_PER_EVENT, -1, np.int64)
    sectors, full = np.full((2, LINES_PER_EVENT), 0xFF, np.uint8)
    n = coalesce_one(events, addresses, line, sectors, full)
    return [(int(line[i]) % WORD, int(sectors[i]), int(full[i])) for i in range(n)]


def make_event(**fields):
    events = np.zeros(1, EVENT)
    events["inner"], events["width_bytes"], events["stride"] = PLAIN_STRIDE, 4, 4
    events["mask"] = (1 << 32) - 1
    for name, value in fields.items():
        events[name] = value
    return events


MASKS = st.one_of(st.sampled_from([0, 1, (1 << 32) - 1, WORD - 1, 1 << 63]), st.integers(0, WORD - 1))
BASES = st.one_of(st.integers(0, 4096), st.integers(2**63 - 600, 2**63 + 600), st.integers(0, WORD - 1))
STRIDES = st.one_of(st.sampled_from([0, 1, 2, 4, 8, 16, 32, 128, -4, -16]), st.integers(-300, 300))
ROW_STRIDES = st.one_of(st.integers(-600, 600), st.integers(-(2**40), 2**40))


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(
    mask=MASKS,
    base=BASES,
    stride=STRIDES,
    width=st.sampled_from([1, 2, 4, 8, 16]),
    adjacent=st.booleans(),
    inner=st.one_of(st.just(PLAIN_STRIDE), st.integers(1, 64)),
    row_stride=ROW_STRIDES,
    kind=st.sampled_from([Kind.LOAD, Kind.STORE, Kind.ASYNC_COPY, Kind.REDUCE]),
)
def test_strided_patterns_equal_the_byte_twin(mask, base, stride, width, adjacent, inner, row_stride, kind):
    event = make_event(mask=mask, base=base, stride=width if adjacent else stride, width_bytes=width)
    event["inner"], event["row_stride"], event["kind"] = inner, row_stride, kind
    addresses = np.zeros(0, np.uint64)
    assert coalesced(event, addresses) == coalesce_naive(event[0], addresses)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data(), width=st.sampled_from([1, 2, 4, 8, 16]), kind=st.sampled_from([Kind.LOAD, Kind.STORE]))
def test_explicit_addresses_equal_the_byte_twin(data, width, kind):
    near = st.integers(0, 1024)
    far = st.integers(0, WORD - 1)
    start = data.draw(st.integers(0, 8))
    listed = data.draw(st.lists(st.one_of(near, near, far), min_size=start, max_size=start + 64))
    run = data.draw(st.integers(0, 64 - (len(listed) - start)))  # and some lanes that are adjacent
    listed += [5000 + width * i for i in range(run)]
    lanes = len(listed) - start
    event = make_event(inner=EXPLICIT, base=start, width_bytes=width, kind=kind, mask=(1 << lanes) - 1)
    addresses = np.array(listed, np.uint64)
    assert coalesced(event, addresses) == coalesce_naive(event[0], addresses)


def test_a_full_warp_of_straddling_lanes_makes_two_lines_each():
    event = make_event(mask=WORD - 1, base=120, stride=4096, width_bytes=16)
    lines = coalesced(event, np.zeros(0, np.uint64))
    assert len(lines) == LINES_PER_EVENT
    assert lines[:2] == [(0, 0b1000, 0b1000), (128, 0b0001, 0b0001)]


def test_a_store_of_half_a_sector_is_not_full_and_two_halves_are():
    half = make_event(kind=Kind.STORE, mask=0xF, base=0)
    assert coalesced(half, np.zeros(0, np.uint64)) == [(0, 1, 0)]
    halves = make_event(kind=Kind.STORE, mask=0xFF, base=16, inner=4, row_stride=-16)
    assert coalesced(halves, np.zeros(0, np.uint64)) == [(0, 1, 1)]


@settings(deadline=None)
@given(MASKS)
def test_active_lanes_counts_bits(mask):
    assert active_lanes(np.uint64(mask)) == mask.bit_count()


def test_counting_skips_shared_memory_and_masked_off_events():
    events = np.concatenate(
        [
            make_event(),  # 128 B: one line of four sectors
            make_event(base=64),  # two lines, two sectors of each
            make_event(kind=Kind.STORE, width_bytes=16, stride=16),  # four lines
            make_event(space=Space.SHARED),
            make_event(mask=0),
            make_event(kind=Kind.COMPUTE),
        ]
    )
    lines, sectors = np.zeros((2, 5), np.int64)
    count_requests(events, np.zeros(0, np.uint64), lines, sectors)
    assert lines.tolist() == [3, 4, 0, 0, 0]
    assert sectors.tolist() == [8, 16, 0, 0, 0]
