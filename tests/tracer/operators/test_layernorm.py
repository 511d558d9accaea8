"""Layer normalisation: accesses as the naive twin lists them, results after operands, traffic in closed form."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.lane_twin import lane_addresses
from tests.support.layernorm_twin import NaiveLayerNorm
from tests.support.request_count import count_requests
from tracer.data_type import DataType
from tracer.operators.layernorm import LayerNorm
from tracer.operators.row_kernel import KEPT_ACCESSES
from traces.errors import UserError
from traces.schema import NO_SLOT, Kind, Space


def memory_events(events):
    return events[(events["kind"] <= Kind.STORE) & (events["space"] == Space.GLOBAL)]


def warps_of(workgroup):
    return [workgroup.events[first:end] for first, end in pairwise(workgroup.first_event.tolist())]


def stretch_of(event):
    """(kind, first byte, bytes) of an access, whose lanes must be adjacent."""
    lanes, width_bytes = lane_addresses(event, ()), int(event["width_bytes"])
    assert lanes == [lanes[0] + k * width_bytes for k in range(len(lanes))]
    return Kind(event["kind"]).name.lower(), lanes[0], len(lanes) * width_bytes


@st.composite
def shapes(draw):
    dtype = draw(st.sampled_from([DataType.INT8, DataType.FP16, DataType.FP32, DataType.FP64]))
    cols = draw(st.one_of(st.integers(1, 300), st.integers(1, 300).map(lambda n: 64 * n)))
    fields = {"warps": draw(st.sampled_from([1, 3, 8])), "stats": draw(st.booleans())}
    return LayerNorm(
        rows=draw(st.integers(1, 20)), cols=cols, dtype=dtype, **fields, lanes=draw(st.sampled_from([32, 64]))
    )


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(shapes())
def test_every_access_is_the_twins(source):
    size = source.dtype.bytes
    twin = NaiveLayerNorm(source.rows, source.cols, size, warps=source.warps, lanes=source.lanes, stats=source.stats)
    workgroups = [*source.workgroups()]
    assert len(workgroups) == source.info.workgroups == -(-source.rows // (source.warps if twin.alone else 1))
    for workgroup in workgroups:
        for warp, events in enumerate(warps_of(workgroup)):
            found = [stretch_of(event) for event in memory_events(events)]
            assert found == twin.accesses(workgroup.index, warp)
            assert events["kind"][-1] == Kind.EXIT and (events["kind"][:-1] != Kind.EXIT).all()


def provenance(events):
    """Yields each event with the base addresses of the loads that it depends on by its slots."""
    behind = {slot: set() for slot in range(64)}
    for event in events:
        needed = set().union(*(behind[slot] for slot in range(64) if int(event["wait"]) >> slot & 1))
        if event["kind"] == Kind.LOAD and event["space"] == Space.GLOBAL:
            needed = {int(event["base"])}
        if event["slot"] != NO_SLOT and event["kind"] != Kind.BARRIER:
            behind[int(event["slot"])] |= needed
        yield event, needed


@pytest.mark.parametrize(
    "source",
    [
        LayerNorm(rows=9, cols=1024),
        LayerNorm(rows=2, cols=8192),
        LayerNorm(rows=2, cols=40000),
        LayerNorm(rows=1, cols=33),
    ],
)
def test_no_output_before_its_operands(source):
    for workgroup in source.workgroups():
        for events in warps_of(workgroup):
            loads = memory_events(events)
            x = set(
                loads["base"][loads["base"] < source.address + source.rows * source.cols * source.dtype.bytes].tolist()
            )
            stores = [
                needed for event, needed in provenance(events) if event["kind"] == Kind.STORE and event["space"] == 0
            ]
            assert len(stores) == len(x)
            assert all(x <= needed for needed in stores)  # the statistics need the warp's whole row
            others = [sorted(needed - x)[:2] for needed in stores]
            assert all(len(pair) == 2 for pair in others)  # weight and bias
            assert len({tuple(pair) for pair in others}) >= min(len(x), 4)


def test_no_gradient_before_the_statistics_of_its_row():
    kernel = LayerNorm(rows=4, cols=1024, backward=True).parts()[0]
    (first, end), arrays = (kernel.outputs[0].address, kernel.outputs[0].address + 4 * 1024 * 2), kernel.scalars_in
    stores = [
        needed
        for workgroup in kernel.workgroups()
        for events in warps_of(workgroup)
        for event, needed in provenance(events)
        if event["kind"] == Kind.STORE and event["space"] == Space.GLOBAL and first <= event["base"] < end
    ]
    assert len(stores) >= 4 and len(arrays) == 2
    for needed in stores:
        assert all(any(array <= base < array + 4 * 4 for base in needed) for array in arrays)


def test_warps_of_a_row_meet_at_barriers_as_often_as_they_sum():
    for source, sums in (
        (LayerNorm(rows=2, cols=8192), 2),
        (LayerNorm(rows=2, cols=40000), 1),
        (LayerNorm(rows=16, cols=512), 0),
    ):
        for workgroup in source.workgroups():
            barriers = [int((events["kind"] == Kind.BARRIER).sum()) for events in warps_of(workgroup)]
            assert barriers == [sums] * source.warps


@pytest.mark.parametrize("cols", [16, 1024, 2048, 2064, 8192, 16384, 16400, 40000])
def test_sectors_in_closed_form(cols):
    source = LayerNorm(rows=5, cols=cols, stats=True)
    lines, sectors = np.zeros((2, 5), np.int64)
    for workgroup in source.workgroups():
        count_requests(workgroup.events, workgroup.addresses, lines, sectors)
    row_sectors, passes = cols * 2 // 32, 1 if cols <= KEPT_ACCESSES * 8 * 256 else 2
    assert sectors[Kind.LOAD] == 5 * row_sectors * (passes + 2)
    assert sectors[Kind.STORE] == 5 * row_sectors + 2 * 5


def test_work_may_begin_at_any_workgroup():
    source = LayerNorm(rows=20, cols=256)
    whole, rest = [*source.workgroups()], [*source.workgroups(1)]
    assert [w.index for w in rest] == [1, 2]
    assert all((one.events == other.events).all() for one, other in zip(whole[1:], rest, strict=True))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rows": 0}, "rows = 0"),
        ({"cols": -1}, "cols = -1"),
        ({"warps": 33}, "warps = 33: allowed is a whole number, 1 to 32"),
        ({"warps": 17, "lanes": 64}, "warps = 17: must be <= 16"),
        ({"lanes": 16}, "lanes = 16"),
        ({"address": 8}, "address = 8"),
        ({"rows": 1 << 50, "cols": 1 << 12}, "rows = .* 1 to 2,147,483,648"),
        ({"rows": 1 << 31, "cols": 1 << 24}, "warp accesses: allowed are 100,000,000,000"),
    ],
)
def test_impossible_kernels_are_refused(fields, words):
    with pytest.raises(UserError, match=words):
        LayerNorm(**({"rows": 4, "cols": 64} | fields))
