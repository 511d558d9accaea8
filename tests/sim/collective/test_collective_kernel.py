"""Collective kernels: each tile's sectors once per buffer, loads before stores, order, gates, accesses in flight."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.collective.chunks import chunks_of, even_chunks
from sim.collective.kernel import ROW_BYTES, CollectiveKernel, Step, joined, segments
from sim.collective.on_cus import all_gather, all_reduce, reduce_scatter
from sim.hw.request import SECTOR_BYTES
from sim.hw.space import BUFFER_BITS, PEER_BITS
from sim.spec import Topology
from tests.support.t3_cases import T3Case
from tests.support.tile_shapes import sectors_of, tile_record
from tracer.coalesce import LINES_PER_EVENT, coalesce
from tracer.gemm.source import GemmKernel, GemmSource
from tracer.workloads import aligned_problem
from traces.errors import UserError
from traces.schema import NO_SLOT, Cache, Kind

REMOTE, BUFFER = 2 << PEER_BITS, 1 << BUFFER_BITS


def make_kernel(tiles, steps, **fields):
    return CollectiveKernel(
        "k", tiles, steps, **{"warps": 2, "unroll": 4, "lanes": 32, "cache": Cache.UNCACHED, **fields}
    )


@st.composite
def outputs(draw):
    """Shapes of the tiles of an output in walk order: one to three rows of one to four tiles, the last ones ragged."""
    widths = [32 * draw(st.integers(1, 30)) for _ in range(draw(st.integers(0, 3)))] + [draw(st.integers(1, 900))]
    pitch_bytes = 32 * (-(-sum(widths) // 32) + draw(st.integers(0, 3)))
    runs = [draw(st.integers(1, 70))] * draw(st.integers(0, 2)) + [draw(st.integers(1, 20))]
    shapes, address = [], 32 * draw(st.integers(1 << 15, (1 << 15) + 64))
    for high in runs:
        edges = np.cumsum([0, *widths[:-1]]).tolist()
        shapes += [(address + edge, high, width, pitch_bytes) for edge, width in zip(edges, widths, strict=True)]
        address += high * pitch_bytes
    return shapes


def tiles_of(shapes):
    return np.concatenate([tile_record(shape) for shape in shapes])


def touched_by_tile(kernel, kind):
    """Tag -> sector addresses of all events of a kind that name it, with repeats."""
    line, sectors, full = (np.zeros(LINES_PER_EVENT, t) for t in (np.int64, np.uint8, np.uint8))
    found = {}
    for tag, workgroup in zip(kernel.tags.tolist(), kernel.workgroups(), strict=True):
        for event in workgroup.events[workgroup.events["kind"] == kind]:
            for i in range(coalesce(event, np.empty(0, np.uint64), line, sectors, full)):
                some = [int(line[i]) + SECTOR_BYTES * s for s in range(4) if sectors[i] >> s & 1]
                found.setdefault(tag + int(event["work"]), []).extend(some)
    return {tag: sorted(addresses) for tag, addresses in found.items()}


@pytest.mark.parametrize(
    ("update", "reads", "golden"),
    [(False, (0,), "e934af42d465"), (False, (0, 1 << 30), "15df27058bc5"), (True, (0, 1 << 30), "788c3e5d14ce")],
)
def test_events_stay_what_they_are(update, reads, golden):
    tiles = GemmSource(aligned_problem(256, 320, 64), GemmKernel(64, 64, 32, 2, 2)).output_tiles()
    gated = Step(range(8, 20), reads, 1 << 34, gates=tuple(range(12)))
    source = make_kernel(tiles, [Step(range(8), reads, 1 << 33, update, 5), gated], warps=4, unroll=3)
    digest = sha256()
    for workgroup in source.workgroups():
        digest.update(workgroup.events.tobytes() + workgroup.first_event.tobytes())
    assert digest.hexdigest()[:12] == golden


def programs(workgroup):
    """Events of each warp."""
    edges = workgroup.first_event
    return [workgroup.events[edges[w] : edges[w + 1]] for w in range(len(workgroup.warp))]


@pytest.mark.slow
@given(
    shapes=outputs(),
    reads=st.integers(1, 3),
    warps=st.sampled_from([1, 2, 7]),
    unroll=st.sampled_from([1, 3, 16]),
    lanes=st.sampled_from([32, 64]),
    update=st.booleans(),
    cut=st.integers(0, 12),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_every_sector_is_read_once_per_buffer_and_written_once(shapes, reads, warps, unroll, lanes, update, cut):
    """In two steps that share the tiles; each access names its tile."""
    offsets, cut = (0, BUFFER, 5 * BUFFER)[:reads], cut % len(shapes)
    spans = [span for span in (range(cut), range(cut, len(shapes))) if span]
    steps = [Step(span, offsets, REMOTE, update, tag_offset=100) for span in spans]
    kernel = make_kernel(tiles_of(shapes), steps, warps=warps, unroll=unroll, lanes=lanes)
    sectors = {100 + k: sectors_of(shape) for k, shape in enumerate(shapes)}
    expected = {tag: sorted(address + offset for address in own for offset in offsets) for tag, own in sectors.items()}
    assert touched_by_tile(kernel, Kind.LOAD) == expected
    written, other = (Kind.REDUCE, Kind.STORE) if update else (Kind.STORE, Kind.REDUCE)
    assert touched_by_tile(kernel, written) == {tag: [one + REMOTE for one in own] for tag, own in sectors.items()}
    assert touched_by_tile(kernel, other) == {}


@pytest.mark.slow
@given(shapes=outputs(), reads=st.integers(1, 4), unroll=st.integers(1, 16), warps=st.integers(1, 4))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_what_is_written_has_been_read_and_added(shapes, reads, unroll, warps):
    """In program order: a store waits for the loads of the same bytes, by itself or in the addition before it."""
    offsets = tuple(number * BUFFER for number in range(reads))
    kernel = make_kernel(tiles_of(shapes), [Step(range(len(shapes)), offsets, REMOTE)], unroll=unroll, warps=warps)
    for program in (program for workgroup in kernel.workgroups() for program in programs(workgroup)):
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
                assert int(event["base"]) - REMOTE in (added if reads > 1 else bases)
                assert event["cache"] == Cache.UNCACHED
        assert program[-1]["kind"] == Kind.EXIT and not in_flight


def test_workgroups_come_step_by_step_with_their_tags_and_gates():
    tiles = tiles_of([(4096 * k, 1, 64, 0) for k in range(4)])  # apart: each a segment of its own
    steps = [Step(range(2, 4), (0,), REMOTE), Step(range(1), (0, BUFFER), 0, tag_offset=4, gates=(7,))]
    kernel = make_kernel(tiles, steps)
    assert kernel.tags.tolist() == [2, 3, 4] and kernel.gates.tolist() == [-1, -1, 7]
    assert kernel.info.workgroups == 3 and [w.index for w in kernel.workgroups()] == [0, 1, 2]
    assert [w.index for w in kernel.workgroups(start=2)] == [2]


def test_a_workgroup_is_a_band_of_rows_of_tiles_side_by_side():
    """Four tiles of 4 KB side by side: bands of two rows, 32 KB; a fifth one below is a segment of its own."""
    shapes = [(4096 * k, 5, 4096, 1 << 14) for k in range(4)] + [(5 << 14, 1, 4096, 1 << 14)]
    tiles = tiles_of(shapes)
    assert segments(tiles, range(5)) == [(0, 4), (4, 1)] and segments(tiles, range(1, 3)) == [(1, 2)]
    kernel = make_kernel(tiles, [Step(range(5), (0,), REMOTE, gates=(3, 3, 3, 3, 8))])
    assert [(band.first, band.tiles, band.row, band.rows) for band in kernel.work] == [
        *[(0, 4, row, min(2, 5 - row)) for row in (0, 2, 4)],
        (4, 1, 0, 1),
    ]
    assert kernel.gates.tolist() == [3, 3, 3, 8] and kernel.tags.tolist() == [0, 0, 0, 4]
    (one_warp,) = programs(next(make_kernel(tiles, [Step(range(5), (0,), REMOTE)], warps=1).workgroups()))
    loads = one_warp[one_warp["kind"] == Kind.LOAD]
    assert (np.diff(loads["base"].astype(np.int64)) == 512).all()  # through memory in order, 32 lanes of 16 bytes
    assert loads["work"].tolist() == [tile for _ in range(2) for tile in range(4) for _ in range(8)]


def test_tiles_of_a_buffer_without_gaps_are_no_row():
    """Each is the work of a channel, also if it is one line long."""
    assert segments(tiles_of([(128 * k, 1, 128, 128) for k in range(3)]), range(3)) == [(0, 1), (1, 1), (2, 1)]


LAYOUT = ["address", "runs", "run_bytes", "pitch_bytes"]


@pytest.mark.parametrize("columns", [16, 32, 64, 128, 192])
def test_narrow_tiles_are_joined_to_those_of_the_default_kernel(columns):
    """So a collective without knowledge of tiles takes as long. Wide tiles stay what they are."""
    found, wide = (
        GemmSource(aligned_problem(256, 1536, 16), GemmKernel(tile_m=64, tile_n=width)).output_tiles()
        for width in (columns, max(columns, 128))
    )
    tiles, chunks = joined(found, even_chunks(len(found), 4))
    assert (tiles[LAYOUT] == wide[LAYOUT]).all() and chunks == even_chunks(len(wide), 4)


@given(shapes=outputs(), gpus=st.integers(2, 4))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_joined_tiles_are_the_same_bytes_in_the_same_chunks(shapes, gpus):
    if len(shapes) < gpus:
        return
    before = even_chunks(len(shapes), gpus)
    tiles, after = joined(tiles_of(shapes), before)
    whole = [(one["address"], one["runs"], one["run_bytes"], one["pitch_bytes"]) for one in tiles]
    for chunk in range(gpus):
        cut = [sector for tile in before.span(0, chunk) for sector in sectors_of(shapes[tile])]
        wide = [sector for tile in after.span(0, chunk) for sector in sectors_of(whole[tile])]
        assert sorted(cut) == sorted(wide)
        for first, count in segments(tiles, after.span(0, chunk)):
            assert np.diff(tiles["address"][first : first + count] // ROW_BYTES).all()


def test_a_workgroup_of_a_channel_is_a_whole_tile_after_the_software():
    tiles = tiles_of([(0, 1000, 128, 128), (128_000, 1000, 128, 128)])
    bands, whole = (make_kernel(tiles, [Step(range(2), (0,), REMOTE)], software_clk=clk) for clk in (None, 70))
    assert len(bands.work) == 8 and len(whole.work) == 2
    assert touched_by_tile(bands, Kind.STORE) == touched_by_tile(whole, Kind.STORE)
    for program in programs(next(whole.workgroups())):
        assert (program[0]["kind"], program[0]["cycles"]) == (Kind.COMPUTE, 70)
        assert Kind.COMPUTE not in program[1:]["kind"]


def test_the_fingerprint_tells_kernels_apart():
    tiles, step = tile_record((4096, 2, 64, 128)), Step(range(1), (0,), REMOTE)
    same = make_kernel(tiles, [step]).fingerprint()
    assert make_kernel(tiles.copy(), [Step(range(1), (0,), REMOTE)]).fingerprint() == same
    others = [make_kernel(tiles, [step], unroll=5), make_kernel(tiles, [step, step])]
    others += [make_kernel(tile_record((4096, 3, 64, 128)), [step]), make_kernel(tiles, [step], cache=Cache.BYPASS_L1)]
    others += [make_kernel(tiles, [step], software_clk=clk) for clk in (0, 1)]
    assert len({same, *(other.fingerprint() for other in others)}) == 7


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
