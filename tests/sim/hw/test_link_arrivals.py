"""Packets that arrive: where they go, in which order, and what waits for room."""

import numpy as np

from sim.hw.address_map import channel_of
from sim.hw.link_record import WIRE
from sim.hw.request import NEVER, Op, Stream
from sim.hw.space import TILE
from sim.machine.build import build
from sim.machine.phase_links import run_arrivals
from tests.support.fifo_bench import FifoBench, request
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset
from traces.schema import Cache

WINDOW_PS = 20_000


class ArrivalBench:
    """A GPU with one port on which packets have arrived, and memory fifos of two places.

    packets: (arrival_ps, channel) of each, in order; tags count them.
    """

    def __init__(self, packets, *overrides):
        self.wires = np.zeros(1, WIRE)
        machine = small_preset("l2.dram_fifo=2", *overrides).machine
        self.node, self.names = build(machine, 1, self.wires, loads=True)
        self.node.output.space["gpus"], self.node.output.space["set_mask"] = 2, 3
        for tag, (ready_ps, channel) in enumerate(packets):
            line = self._line_of(channel)
            packet = request(line=line, ready_ps=ready_ps, tag=tag, op=Op.UPDATE, cache=Cache.UNCACHED)
            self.wires[0]["packet"][tag] = packet[0]
        self.wires["sent"] = self.wires["known_sent"] = len(packets)
        self.fifo = FifoBench(arrays=(self.node.fifos, self.node.pool))
        self.number = [int(self.node.channels[h]["lanes"]["fabric_fifo"][Stream.COMM_WRITE]) for h in range(2)]

    def _line_of(self, channel):
        place = [int(self.node.noc[0][name]) for name in ("interleave_bytes", "channels", "index")]
        return next(line for line in range(0, 1 << 20, 128) if channel_of(line, *place) == channel)

    def run(self, begin_ps, end_ps):
        node = type(self.node)(*(one if isinstance(one, tuple) else kernel_view(one) for one in self.node))
        node = node._replace(output=type(self.node.output)(*map(kernel_view, self.node.output)))
        run_arrivals(node, begin_ps, end_ps)
        return [self.fifo.held(number)["tag"].tolist() for number in self.number]


def test_arrivals_wait_for_room_in_memory_and_keep_their_order():
    bench = ArrivalBench([(1000, 0), (2000, 0), (3000, 0), (4000, 1), (WINDOW_PS, 1)])
    assert bench.run(0, WINDOW_PS) == [[0, 1], []]  # the third finds its channel full; the fourth waits behind it
    assert bench.wires[0]["taken"] == 2
    assert bench.run(WINDOW_PS, 2 * WINDOW_PS) == [[0, 1], []]
    room_ps = 2 * WINDOW_PS + 77
    bench.fifo.take(bench.number[0], room_ps=room_ps)
    assert bench.run(2 * WINDOW_PS, room_ps) == [[1], []]
    assert bench.run(room_ps, 3 * WINDOW_PS) == [[1, 2], [3, 4]]
    # The places of all three come free only then: no credit goes back earlier.
    assert bench.wires[0]["taken_ps"][:5].tolist() == [1000, 2000, *[room_ps] * 3]
    assert bench.node.ports[0]["blocked_ps"] == room_ps - 3000


def test_packets_through_l2_go_over_the_crossbar_to_the_banks_of_their_channels():
    bench = ArrivalBench([(1000, 0), (2000, 1)], "l2.fabric=through", "noc.latency_clk=9")
    assert bench.run(0, WINDOW_PS) == [[], []]
    node = bench.node
    held = [bench.fifo.held(int(bank["arrivals"])) for bank in node.banks]
    slices = len(node.banks) // len(node.channels)
    by_channel = [np.concatenate(held[h * slices : (h + 1) * slices]) for h in range(2)]
    path_ps = 9 * int(node.noc[0]["period_ps"])
    assert [one["tag"].tolist() for one in by_channel] == [[0], [1]]
    assert [one["ready_ps"].tolist() for one in by_channel] == [[1000 + path_ps], [2000 + path_ps]]
    told_ps = [bank_ps for bank_ps in node.bank_told_ps if bank_ps < NEVER]
    assert sorted(told_ps) == [1000 + path_ps, 2000 + path_ps]


def test_a_load_goes_to_its_bank_with_the_sums_that_it_reads_and_data_go_to_the_crossbar():
    bench = ArrivalBench([(1000, 0), (2000, 1)])
    bench.wires[0]["packet"]["op"][:2] = Op.READ, Op.DATA
    bench.wires[0]["packet"]["load"][:2] = 7
    tiles = np.zeros(2, TILE)
    tiles["bytes"], tiles["own"], tiles["arrived"], tiles["arrived_bytes"] = 256, 1, 2, [256, 128]
    bench.node = bench.node._replace(output=bench.node.output._replace(tiles=tiles))
    bench.node.ports["back"] = 0
    assert bench.run(0, WINDOW_PS) == [[], []]
    node, path_ps = bench.node, int(bench.node.ports[0]["request_ps"])
    read = np.concatenate([bench.fifo.held(int(bank["arrivals"])) for bank in node.banks])
    assert read[["tag", "load", "link", "contributors"]].tolist() == [(0, 7, 1, 3)]
    data = bench.fifo.held(bench.names.index("link.data0"))
    assert data[["tag", "load", "ready_ps"]].tolist() == [(1, 7, 2000 + path_ps)]
    assert node.noc[0]["answers_ps"] == 2000 + path_ps
    told = bench.fifo.held(int(node.engine[0]["first_note_fifo"]) + len(node.channels))
    assert told["tag"].tolist() == [1]  # the Tracker counts data, not loads
    assert tiles["early"].tolist() == [0, 0]


def test_a_load_before_all_data_have_come_is_told_to_the_ledger():
    bench = ArrivalBench([(1000, 0)])
    bench.wires[0]["packet"]["op"][:1] = Op.READ
    tiles = np.zeros(1, TILE)
    tiles["bytes"], tiles["arrived_bytes"] = 256, 128
    bench.node = bench.node._replace(output=bench.node.output._replace(tiles=tiles))
    bench.run(0, WINDOW_PS)
    assert tiles["early"].tolist() == [1]
