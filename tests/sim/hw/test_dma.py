"""DMA engines: every sector of a tile or part once, reads in flight, pacing, room, and what leaves for the link."""

import numpy as np
import pytest
from hypothesis import given, settings

from sim.collective.space import make_wavefronts
from sim.hw.dma import dma_answer, dma_line, dma_load, dma_read, dma_read_ps, make_dmas
from sim.hw.link_record import PORT, WIRE
from sim.hw.request import LINE_BYTES, NEVER, SECTOR_BYTES, Op, Stream
from sim.hw.space import SEND
from sim.machine.build import build
from sim.machine.phase_dma import run_dmas
from sim.scenario.scenario import Scenario
from tests.support.fifo_bench import FifoBench
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset
from tests.support.tile_shapes import cuts, owners_of, sectors_of, shapes, tile_record
from tracer.gemm.source import GemmKernel
from tracer.workloads import aligned_problem
from traces.schema import Cache

READS, LINES = 0, 1
TILE_SHAPE = (1 << 20, 4, 256, 1024)  # eight lines


class DmaBench:
    """One engine, a memory channel's fifo that the test empties, and the fifo of a port."""

    def __init__(self, shape, *overrides, reads=64, lines=64, **tile_fields):
        machine = small_preset("dma.engines=1", *overrides).machine
        self.record, self.port_record = make_dmas(machine), np.zeros(1, PORT)
        self.port_record["dma_fifo"] = LINES
        self.tile = tile_record(shape, **{"sends": 2, "own": 1, "arrived": 0b110, **tile_fields})
        self.sends = np.zeros(2, SEND)
        self.sends["port"] = 1, 4
        self.tile["arrived_bytes"], self.tile["threshold_bytes"] = self.tile["bytes"], 2 * self.tile["bytes"]
        self.parts = make_wavefronts(self.tile)
        self.parts["arrived"], self.parts["arrived_bytes"] = 0b110, self.parts["bytes"]
        self.fifo = FifoBench(reads, lines)
        self.dma, self.port = kernel_view(self.record)[0], kernel_view(self.port_record)[0]
        self.tiles = kernel_view(self.tile)
        self.request_ps = machine.hbm.request_ps

    def load(self, ready_ps=0, wavefront=-1, number=0):
        dma_load(self.dma, self.tiles, kernel_view(self.parts), 0, wavefront, ready_ps, number)

    def read_ps(self):
        fifos = self.fifo.fifos
        return int(dma_read_ps(self.dma, self.port, fifos, self.fifo.pool, fifos[READS]))

    @property
    def has_room(self):
        return self.read_ps() < NEVER

    def read(self, now_ps=0):
        dma_line(self.dma)
        dma_read(self.dma, 0, kernel_view(self.sends), self.port, self.fifo.fifos[READS], self.fifo.pool, now_ps)

    def read_all(self, most=1 << 30):
        """Reads until the tile is through or there is no room; returns them."""
        found = []
        while self.record[0]["tag"] >= 0 and self.has_room and len(found) < most:
            self.read(self.read_ps())
            found.append(self.fifo.held(READS)[-1].copy())
        return found

    def answer(self, op=Op.UPDATE, ready_ps=5000):
        """The oldest read comes back."""
        data = self.fifo.take(READS).copy()
        data["ready_ps"] = ready_ps
        dma_answer(self.dma, self.port, self.fifo.fifos, self.fifo.pool, kernel_view(data)[0], op)


@given(shape=shapes())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_every_sector_of_a_ragged_tile_is_read_once_and_in_order(shape):
    bench = DmaBench(shape, "dma.outstanding=512", reads=512, lines=512)
    bench.load()
    reads = bench.read_all()
    assert touched(reads) == sectors_of(shape)
    assert all(int(r["line"]) % LINE_BYTES == 0 and r["full"] == r["sectors"] > 0 for r in reads)
    dma = bench.record[0]
    assert dma["tag"] == -1 and (dma["descriptors"], dma["lines"]) == (1, len(reads))
    assert dma["read_bytes"] == len(touched(reads)) * SECTOR_BYTES


def touched(reads):
    """Addresses of the sectors that requests read, in their order."""
    return [int(r["line"]) + 32 * s for r in reads for s in range(4) if int(r["sectors"]) >> s & 1]


@pytest.mark.slow
@given(shape=shapes(), cut=cuts())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_the_parts_of_the_wavefronts_are_the_tile(shape, cut):
    """Each is read by itself, in order: the sectors that its wavefront stores, and no other."""
    owners = owners_of(shape, cut)
    bench = DmaBench(shape, "dma.outstanding=512", reads=512, lines=512, parts=cut)
    for wavefront, part in enumerate(bench.parts[0]):
        expected = [sector for sector in sectors_of(shape) if owners[sector] == wavefront]
        assert part["bytes"] == 32 * len(expected) and part["threshold_bytes"] == 2 * part["bytes"]
        if part["runs"] == 0:  # none, or no rectangle
            continue
        bench.load(wavefront=wavefront)
        reads = bench.read_all()
        assert touched(reads) == expected and all(r["wavefront"] == wavefront for r in reads)
        while bench.fifo.held(READS).size:
            bench.answer()
        bench.fifo.take(LINES, len(reads))


def test_the_parts_of_a_grid_of_wavefronts_are_rectangles():
    (parts,) = DmaBench(TILE_SHAPE, parts=(2, 128, 2, 1, 4)).parts
    names = ("first_run", "runs", "first_byte", "run_bytes")
    assert parts[list(names)].tolist() == [(0, 2, 0, 128), (0, 2, 128, 128), (2, 2, 0, 128), (2, 2, 128, 128)]


def test_rows_dealt_to_the_wavefronts_in_turn_are_no_rectangle():
    """Four rows of two wavefronts: rows 0 and 2, rows 1 and 3."""
    (parts,) = DmaBench(TILE_SHAPE, parts=(1, 256, 1, 1, 2)).parts
    assert parts["runs"].tolist() == [0, 0] and parts["bytes"].tolist() == [512, 512]


def test_a_read_says_what_it_is():
    bench = DmaBench(TILE_SHAPE)
    bench.load()
    bench.read(now_ps=700)
    (read,) = bench.fifo.held(READS)
    names = ("op", "stream", "cache", "source", "tag", "link", "contributors", "load", "wavefront")
    assert [int(read[name]) for name in names] == [Op.READ, Stream.COMM_READ, Cache.UNCACHED, -1, 0, 2, 0b111, 0, -1]
    assert (read["born_ps"], read["ready_ps"]) == (700, 700 + bench.request_ps)


def test_the_same_tile_goes_to_several_gpus_in_turn():
    bench = DmaBench(TILE_SHAPE)
    for number, link in enumerate((2, 5)):
        bench.load(number=number)
        reads = bench.read_all()
        assert touched(reads[-8:]) == sectors_of(TILE_SHAPE)
        assert {(int(read["link"]), int(read["load"])) for read in reads[-8:]} == {(link, number)}


@pytest.mark.parametrize("op", [Op.UPDATE, Op.WRITE])
def test_data_leave_as_an_update_when_they_are_there(op):
    bench = DmaBench(TILE_SHAPE)
    bench.load()
    (read,) = bench.read_all(1)
    assert bench.port_record[0]["reads"] == 1 == bench.record[0]["out"]
    bench.answer(op, ready_ps=90_000)
    (line,) = bench.fifo.held(LINES)
    assert (line["op"], line["stream"], line["ready_ps"]) == (op, Stream.COMM_WRITE, 90_000)
    for name in ("line", "sectors", "tag", "contributors", "link", "wavefront", "load"):
        assert line[name] == read[name]
    assert bench.port_record[0]["reads"] == 1 and bench.record[0]["out"] == 0


def test_reads_in_flight_are_bounded():
    bench = DmaBench(TILE_SHAPE, "dma.outstanding=3")
    bench.load()
    assert len(bench.read_all()) == 3 and not bench.has_room
    bench.answer(ready_ps=9000)
    assert bench.read_ps() == 9000  # its place was taken until then
    assert len(bench.read_all()) == 1 and not bench.has_room
    assert bench.record[0]["out_max"] == 3 and bench.record[0]["blocks"] == 1


def test_an_engine_without_a_tile_does_not_wait():
    """Its only read is under way, and no other one has to wait for the data. They wait for the link."""
    bench = DmaBench((1 << 20, 1, LINE_BYTES, 1024), "dma.outstanding=1")
    bench.load()
    assert len(bench.read_all()) == 1 == bench.record[0]["out"]
    bench.answer(ready_ps=9000)
    assert (bench.record[0]["out"], bench.record[0]["blocks"], len(bench.fifo.held(LINES))) == (0, 0, 1)


def test_a_read_needs_a_place_for_its_data_before_the_link():
    """Four places, one of them taken by a line that waits for the link, one kept for a read on its way."""
    bench = DmaBench(TILE_SHAPE, lines=4)
    bench.fifo.push(LINES)
    bench.port_record["reads"] = 1
    bench.load()
    assert len(bench.read_all()) == 3
    bench.answer()  # the place that was kept is now taken: no room yet
    assert not bench.has_room
    bench.fifo.take(LINES, room_ps=7000)
    assert bench.read_ps() == 7000


def test_a_read_needs_a_place_in_its_channel():
    bench = DmaBench(TILE_SHAPE, reads=2)
    bench.load()
    assert len(bench.read_all()) == 2 and not bench.has_room
    bench.answer()
    assert bench.has_room


def test_the_first_read_waits_for_the_descriptor_and_its_set_up():
    bench = DmaBench(TILE_SHAPE, "dma.setup_ps=300")
    bench.load(ready_ps=1000)
    assert bench.read_ps() == bench.record[0]["next_ps"] == 1300
    bench.read_all()
    last_ps = bench.record[0]["next_ps"]
    bench.load(ready_ps=0)  # ready long ago: the engine's own rate holds
    assert bench.record[0]["next_ps"] == max(last_ps, 300) == last_ps


@pytest.mark.parametrize(
    ("settings_", "line_ps"),
    [
        ((), 714),  # one line per clock of 1400 MHz
        (("dma.lines_per_clk=0.25",), 2857),
        (("dma.policy=paced",), 853),  # 128 bytes at 150 GB/s
        (("dma.policy=paced", "dma.engines=4"), 3413),  # all four together
        (("dma.policy=paced", "link.GB_per_s=600.0", "link.efficiency=0.5"), 714),  # the engine is the slower one
        (("dma.policy=chunk",), 714),
    ],
)
def test_lines_are_read_at_the_rate_of_the_policy(settings_, line_ps):
    bench = DmaBench(TILE_SHAPE, *settings_)
    bench.load(ready_ps=100)
    starts = [int(read["born_ps"]) for read in bench.read_all()]
    assert starts == [100 + line_ps * k for k in range(8)]


@pytest.mark.parametrize("missing", [32, 128])
def test_a_tile_that_is_sent_before_all_of_an_arrival_is_there_carries_nobodys_sum(missing):
    bench = DmaBench(TILE_SHAPE)
    bench.tile["arrived_bytes"] -= missing
    bench.load()
    (read,) = bench.read_all(1)
    assert read["contributors"] == 0 and bench.tile[0]["early"] == 1


def test_a_part_that_is_sent_before_all_of_an_arrival_is_there_carries_nobodys_sum():
    bench = DmaBench(TILE_SHAPE, parts=(2, 256, 1, 1, 2))
    bench.parts["arrived_bytes"][0, 1] -= 32
    bench.load(wavefront=1)
    (read,) = bench.read_all(1)
    assert read["contributors"] == 0 and bench.tile[0]["early"] == 1
    bench.record["tag"] = -1
    bench.load(wavefront=0)
    assert bench.read_all()[-1]["contributors"] == 0b111 and bench.tile[0]["early"] == 1


def test_an_idle_engine_sleeps():
    (dma,) = make_dmas(small_preset("dma.engines=1").machine)
    assert (dma["tag"], dma["out"]) == (-1, 0)


def test_data_behind_data_that_came_later_are_taken_too():
    """A memory-side cache answers a line that it has before one that it fetches, but the fifo keeps the order."""
    node, _ = build(small_preset("dma.engines=1").machine, 1, np.zeros(1, WIRE))
    bench, number = FifoBench(arrays=(node.fifos, node.pool)), int(node.channels["data_fifo"][0])
    for ready_ps in (100_000, 20_000):
        bench.push(number, ready_ps=ready_ps, source=-1, load=0, sectors=15)
    node.dmas["out"] = 2
    seen = type(node)(*(one if isinstance(one, tuple) else kernel_view(one) for one in node))
    output = type(node.output)(*map(kernel_view, node.output._replace(sends=np.zeros(1, SEND))))
    run_dmas(seen._replace(output=output), 95_000, 115_000)
    assert node.dmas["out"] == 0 and not bench.held(number).size
    assert len(bench.held(int(node.ports["dma_fifo"][0]))) == 2
    assert not node.calendars["sources"].any()


@pytest.mark.parametrize("off_ps", [0, 1, 300, 999])
def test_data_come_with_the_next_edge_after_they_are_there(off_ps):
    """A memory-side cache has a clock of its own; its data never leave before they are ready."""
    node, _ = build(small_preset("dma.engines=1").machine, 1, np.zeros(1, WIRE))
    bench, number = FifoBench(arrays=(node.fifos, node.pool)), int(node.channels["data_fifo"][0])
    period_ps, edge_ps = int(node.calendars["period_ps"][1]), int(node.engine["data_ps"][0])
    ready_ps, due_ps = edge_ps + 100 * period_ps + off_ps, edge_ps + (100 + (off_ps > 0)) * period_ps
    bench.push(number, ready_ps=ready_ps, source=-1, load=0, sectors=15)
    node.dmas["out"] = 1
    seen = type(node)(*(one if isinstance(one, tuple) else kernel_view(one) for one in node))
    output = type(node.output)(*map(kernel_view, node.output._replace(sends=np.zeros(1, SEND))))
    run_dmas(seen._replace(output=output), due_ps - 5 * period_ps, due_ps)
    assert node.dmas["out"] == 1
    run_dmas(seen._replace(output=output), due_ps, due_ps + period_ps)
    assert node.dmas["out"] == 0 and bench.held(int(node.ports["dma_fifo"][0]))["ready_ps"] == due_ps


@pytest.mark.parametrize("engines", [2, 3, 4])
def test_engines_that_wait_for_one_link_take_turns(engines):
    """A slow ring: all engines wait for the places of one port. None may starve with its tile."""
    preset = small_preset("link.GB_per_s=5.0", f"dma.engines={engines}")
    run = Scenario(preset, aligned_problem(512, 512, 64), GemmKernel(64, 64, 32, 2, 2), 4).run("t3").execute()
    descriptors, lines = (run.kernels[0].units["dma"][name] for name in ("descriptors", "lines"))
    assert descriptors.sum() == 32 and np.ptp(descriptors) <= 1
    assert np.ptp(lines) <= 64  # of one tile
