"""Collective kernels: each tile's sectors once per buffer, loads before stores, order, gates, accesses in flight."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.collective.chunks import chunks_of
from sim.collective.kernel import CollectiveKernel, Step
from sim.collective.plans import all_gather, all_reduce, reduce_scatter
from sim.hw.request import SECTOR_BYTES
from sim.hw.space import BUFFER_BITS, PEER_BITS
from sim.spec import Topology
from tests.hw.tile_shapes import sectors_of, shapes, tile_record
from tests.sim.t3_cases import T3Case
from tracer.coalesce import LINES_PER_EVENT, coalesce
from traces.errors import UserError
from traces.schema import NO_SLOT, Cache, Kind

REMOTE, BUFFER = 2 << PEER_BITS, 1 << BUFFER_BITS


def make_kernel(tiles, steps, **fields):
    return CollectiveKernel("k", tiles, steps, **{"warps": 2, "unroll": 4, "lanes": 32, "cache": Cache.UNCACHED, **fields})


def sectors_touched(events, kind):
    """Sector addresses of all events of a kind, in order, with repeats."""
    line, sectors, full = (np.zeros(LINES_PER_EVENT, t) for t in (np.int64, np.uint8, np.uint8))
    found = []
    for event in events[events["kind"] == kind]:
        for i in range(coalesce(event, np.empty(0, np.uint64), line, sectors, full)):
            found += [int(line[i]) + SECTOR_BYTES * s for s in range(4) if sectors[i] >> s & 1]
    return found


def programs(workgroup):
    """Events of each warp."""
    edges = workgroup.first_event
    return [workgroup.events[edges[w] : edges[w + 1]] for w in range(len(workgroup.warp))]


@given(
    shape=shapes(row_bytes=2000),
    reads=st.integers(1, 3),
    warps=st.sampled_from([1, 2, 7]),
    unroll=st.sampled_from([1, 3, 16]),
    lanes=st.sampled_from([32, 64]),
    update=st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_every_sector_is_read_once_per_buffer_and_written_once(shape, reads, warps, unroll, lanes, update):
    offsets = (0, BUFFER, 5 * BUFFER)[:reads]
    step = Step(range(1), offsets, REMOTE, update)
    kernel = make_kernel(tile_record(shape), [step], warps=warps, unroll=unroll, lanes=lanes)
    (workgroup,) = kernel.workgroups()
    tile = sectors_of(shape)
    expected = sorted(address + offset for address in tile for offset in offsets)
    assert sorted(sectors_touched(workgroup.events, Kind.LOAD)) == expected
    written, other = (Kind.REDUCE, Kind.STORE) if update else (Kind.STORE, Kind.REDUCE)
    assert sorted(sectors_touched(workgroup.events, written)) == [address + REMOTE for address in tile]
    assert not (workgroup.events["kind"] == other).any()


@given(shape=shapes(row_bytes=2000), reads=st.integers(1, 4), unroll=st.integers(1, 16), warps=st.integers(1, 4))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_what_is_written_has_been_read_and_added(shape, reads, unroll, warps):
    """In program order: a store waits for the loads of the same bytes, by itself or in the addition before it."""
    offsets = tuple(number * BUFFER for number in range(reads))
    kernel = make_kernel(tile_record(shape), [Step(range(1), offsets, REMOTE)], unroll=unroll, warps=warps)
    (workgroup,) = kernel.workgroups()
    for program in programs(workgroup):
        in_flight, added = {}, set()
        for event in program:
            waited = [slot for slot in range(64) if int(event["wait"]) >> slot & 1]
            bases = [in_flight.pop(slot) for slot in waited if slot in in_flight]
            if event["kind"] == Kind.LOAD:
                assert event["slot"] != NO_SLOT and int(event["slot"]) not in in_flight
                in_flight[int(event["slot"])] = int(event["base"])
                assert len(in_flight) <= unroll * reads
            elif event["kind"] == Kind.COMPUTE:
                assert len(bases) == reads and event["count"] == 4 * (reads - 1)
                added.add(min(bases))
            elif event["kind"] == Kind.STORE:
                place = int(event["base"]) - REMOTE
                assert place in (added if reads > 1 else bases)
                assert event["cache"] == Cache.UNCACHED
        assert program[-1]["kind"] == Kind.EXIT and not in_flight


def test_workgroups_come_step_by_step_with_their_tags_and_gates():
    tiles = np.concatenate([tile_record((4096 * k, 1, 64, 0)) for k in range(4)])
    steps = [Step(range(2, 4), (0,), REMOTE), Step(range(1), (0, BUFFER), 0, tag_offset=4, gates=(7,))]
    kernel = make_kernel(tiles, steps)
    assert kernel.tags.tolist() == [2, 3, 4] and kernel.gates.tolist() == [-1, -1, 7]
    assert kernel.info.workgroups == 3 and [w.index for w in kernel.workgroups()] == [0, 1, 2]
    assert [w.index for w in kernel.workgroups(start=2)] == [2]
    (last,) = kernel.workgroups(start=2)
    assert sorted(sectors_touched(last.events, Kind.LOAD)) == [0, 32, BUFFER, BUFFER + 32]


def test_the_fingerprint_tells_kernels_apart():
    tiles, step = tile_record((4096, 2, 64, 128)), Step(range(1), (0,), REMOTE)
    same = make_kernel(tiles, [step]).fingerprint()
    assert make_kernel(tiles.copy(), [Step(range(1), (0,), REMOTE)]).fingerprint() == same
    others = [make_kernel(tiles, [step], unroll=5), make_kernel(tiles, [step, step])]
    others += [make_kernel(tile_record((4096, 3, 64, 128)), [step]), make_kernel(tiles, [step], cache=Cache.BYPASS_L1)]
    assert len({same, *(other.fingerprint() for other in others)}) == 5


@pytest.mark.parametrize("unroll", [0, 17])
def test_an_unroll_without_slots_is_refused(unroll):
    with pytest.raises(UserError, match=f"collective.unroll: found {unroll}, allowed are 1 to 16"):
        make_kernel(tile_record((0, 1, 64, 0)), [], unroll=unroll)


@pytest.mark.parametrize("make", [reduce_scatter, all_gather, all_reduce])
@pytest.mark.parametrize("topology", [Topology.RING, Topology.FULLY_CONNECTED])
@pytest.mark.parametrize("slices", [1, 2, 100])
def test_gates_wait_for_exactly_what_arrives(make, topology, slices):
    """Bytes behind all gates of a GPU = bytes that arrive for tiles with a gate; a slice never crosses a chunk."""
    sizes = (3, 1, 4)
    chunks, output = chunks_of(sizes), T3Case(32, 32 * sum(sizes), 16, 3).source.output_tiles()
    for gpu in range(3):
        plan = make(output, chunks, gpu, topology, slices=slices, step_ps=9)
        gate = plan.tiles["gate"]
        arriving = plan.tiles["bytes"] * plan.counts.arrived
        for number, one in enumerate(plan.gates):
            behind = np.flatnonzero(gate == number)
            assert arriving[behind].sum() == one["needed_bytes"] > 0 and one["delay_ps"] == 9
            assert len({np.searchsorted(chunks.edges, tag % chunks.tiles, "right") for tag in behind}) == 1
        assert ((gate >= 0) == (arriving > 0)).all()
        assert {g for step in plan.steps for g in step.gates} <= set(range(len(plan.gates)))
        reads_received = [step for step in plan.steps if any(read != 0 for read in step.reads)]
        assert all(step.gates and min(step.gates) >= 0 for step in reads_received)
