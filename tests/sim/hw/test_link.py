"""Links: times to the femtosecond, credits, order, lanes, and what becomes of a packet on its way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.hw.link import arrival_ps, departure_fs, next_sender, port_peek, port_send, port_take, publish
from sim.hw.link_record import FS_PER_PS, WIRE, make_ports
from sim.hw.request import NEVER, Op, Stream
from sim.hw.space import MIRROR, SEND, SPACE, TILE, fingerprint
from tests.support.fifo_bench import FifoBench, request
from tests.support.link_twin import Packet, link_twin
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset

WINDOW_PS = 20_000
LATENCY_PS = 500_000
FOREVER = 1 << 50


class StoreBench(FifoBench):
    """Fifos whose requests are stores unless a test says something else."""

    def push(self, number, **fields):
        super().push(number, **{"op": Op.WRITE, **fields})


class LinkBench:
    """Ports of one GPU whose packets come back to itself over the same port, and a memory fifo that is never full.

    Fifos: stores of each port, lines of the DMA engines, data for loads.
    """

    def __init__(self, *overrides, ports=1, depth=512):
        machine = small_preset(*overrides).machine
        self.fifo = StoreBench(*[depth] * (3 * ports + 1))
        self.memory, self.count = 3 * ports, ports
        self.port_records = make_ports(machine, ports, *np.arange(3 * ports).reshape(3, ports))
        self.port_records["out_wire"] = self.port_records["in_wire"] = np.arange(ports)
        self.port_records["distance"] = 1
        self.wire_records, self.tile_records = np.zeros(ports, WIRE), np.zeros(4, TILE)
        self.space_record, self.mirror_records = np.zeros(1, SPACE), np.zeros((ports, 4), MIRROR)
        self.space_record["gpus"], self.space_record["set_mask"] = 4, 15
        self.send_records = np.zeros(2, SEND)
        self.sends = kernel_view(self.send_records)
        arrays = (self.port_records, self.wire_records, self.tile_records, self.mirror_records)
        self.ports, self.wires, self.tiles, self.mirrors = map(kernel_view, arrays)
        self.space = kernel_view(self.space_record)[0]
        self.request_ps = machine.hbm.request_ps

    def send(self, end_ps, port=0):
        """Send what can leave before end_ps. Returns when the next packet leaves, as far as known."""
        publish(self.wire_records)
        fifos, pool = self.fifo.fifos, self.fifo.pool
        while (start_fs := departure_fs(self.ports, port, self.wires, fifos, pool)) < end_ps * FS_PER_PS:
            port_send(self.ports, port, self.wires, self.sends, self.tiles, fifos, pool, start_fs)
        return start_fs // FS_PER_PS if start_fs < NEVER else NEVER

    def arrival_ps(self, port=0):
        publish(self.wire_records)
        return int(arrival_ps(self.ports, port, self.wires))

    def take(self, now_ps, port=0):
        """Hand the oldest packet on; returns it as memory gets it."""
        place = request()
        port_peek(self.ports, port, self.wires, self.space, self.mirrors, kernel_view(place))
        packet = kernel_view(place)[0]
        port_take(self.ports, port, self.wires, self.fifo.fifos[self.memory], self.fifo.pool, packet, now_ps)
        return self.fifo.take(self.memory)[0]

    def run(self, hold_ps=None):
        """(tag, arrival_ps) of all packets of port 0, window by window; each is kept for its time of hold_ps."""
        found, taken, end_ps = [], 0, 0
        while any(self.fifo.held(number).size for number in range(3)) or self.arrival_ps() < NEVER:
            end_ps += WINDOW_PS
            self.send(end_ps)
            last_ps = found[-1][2] if found else 0
            while (arrived_ps := self.arrival_ps()) < NEVER:
                taken_ps = max(arrived_ps + (hold_ps[taken] if hold_ps else 0), last_ps)
                if taken_ps >= end_ps:
                    break
                found.append((int(self.take(taken_ps)["tag"]), arrived_ps, taken_ps))
                last_ps, taken = taken_ps, taken + 1
        return [one[:2] for one in found]


@pytest.mark.parametrize("fifo", [0, 1, 2])
@pytest.mark.parametrize(("sectors", "volume"), [(15, 128), (1, 32), (6, 64)])
@pytest.mark.parametrize(
    ("settings_", "fs_per_byte", "header"),
    [((), 6667, 0), (("link.GB_per_s=300.0", "link.efficiency=0.5"), 6667, 0), (("link.header_bytes=16",), 6667, 16)],
)
def test_a_lone_packet_takes_its_bytes_and_the_latency(fifo, sectors, volume, settings_, fs_per_byte, header):
    bench = LinkBench(*settings_)
    bench.fifo.push(fifo, ready_ps=777, sectors=sectors)
    assert bench.send(777) == 777 and bench.wire_records["sent"] == 0  # not a picosecond earlier
    assert bench.send(778) == NEVER
    link_fs = (volume + header) * fs_per_byte
    assert bench.arrival_ps() == -(-(777 * FS_PER_PS + link_fs) // FS_PER_PS) + LATENCY_PS
    port = bench.port_records[0]
    assert (port["packets"], port["bytes"], port["busy_ps"]) == (1, volume, link_fs // FS_PER_PS)


@pytest.mark.parametrize("rate", [150.0, 75.0, 37.3, 900.0])
def test_a_thousand_lines_lose_no_bandwidth_to_rounding(rate):
    bench = LinkBench(f"link.GB_per_s={rate}", "link.credits=2000", depth=1024)
    for _ in range(1000):
        bench.fifo.push(1, tag=-1)
    bench.send(FOREVER)
    last_ps = max(int(one["ready_ps"]) for one in bench.wire_records[0]["packet"][:1000]) - LATENCY_PS
    assert last_ps == -(-1000 * 128 * round(1e6 / rate) // FS_PER_PS)
    assert abs(last_ps / (1000 * 128 / rate * 1000) - 1) < 1e-3


def test_the_fifo_whose_head_has_stood_longer_goes_next():
    bench = LinkBench()
    for ready_ps, tag in ((100, 0), (5000, 1)):
        bench.fifo.push(0, ready_ps=ready_ps, tag=tag)
    for ready_ps, tag in ((50, 2), (100, 3)):
        bench.fifo.push(1, ready_ps=ready_ps, tag=tag)
    bench.fifo.push(2, ready_ps=100, tag=-1)
    assert [tag for tag, _ in bench.run()] == [2, 0, 3, -1, 1]  # stores, lines, data where all came at once


def test_a_packet_waits_for_a_credit_and_goes_when_it_is_back():
    bench = LinkBench("link.credits=2")
    for tag in range(3):
        bench.fifo.push(0, tag=tag)
    assert bench.send(FOREVER) == NEVER and bench.wire_records[0]["sent"] == 2
    taken_ps = bench.arrival_ps() + 12_345
    bench.take(taken_ps)
    back_ps = taken_ps + LATENCY_PS
    assert bench.send(back_ps) == back_ps and bench.wire_records[0]["sent"] == 2
    assert bench.send(back_ps + 1) == NEVER and bench.wire_records[0]["sent"] == 3
    assert bench.port_records[0]["credit_stalls"] == 1
    assert bench.wire_records[0]["packet"]["ready_ps"][0] == back_ps + -(-128 * 6667 // FS_PER_PS) + LATENCY_PS


def test_a_credit_that_is_back_before_the_link_is_free_stops_nobody():
    bench = LinkBench("link.GB_per_s=0.1", "link.credits=2")  # a line takes longer than the way there and back
    for tag in range(3):
        bench.fifo.push(0, tag=tag)
    line_ps = 1_280_000
    assert [arrived_ps - LATENCY_PS for _, arrived_ps in bench.run()] == [line_ps, 2 * line_ps, 3 * line_ps]
    assert bench.port_records[0]["credit_stalls"] == 0


packets = st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 15)), max_size=25)


@pytest.mark.slow
@given(
    stores=packets,
    lines=packets,
    data=packets,
    loads=st.sampled_from([0, 2, 3]),
    rate=st.sampled_from([5.0, 150.0, 333.0]),
    header=st.sampled_from([0, 16]),
    credits=st.sampled_from([1, 2, 7, 4096]),
    hold=st.lists(st.sampled_from([0, 0, 100, 700_000]), min_size=75, max_size=75),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_same_times_as_the_twin(stores, lines, data, loads, rate, header, credits, hold):
    """loads: of the stores each with this number from the other is a load."""
    bench = LinkBench(f"link.GB_per_s={rate}", f"link.header_bytes={header}", f"link.credits={credits}")
    queues, tag = ([], [], []), 0
    for number, drawn in enumerate((stores, lines, data)):
        ready_ps = 0
        for k, (gap_ps, sectors) in enumerate(drawn):
            ready_ps += gap_ps
            op = Op.READ if number == 0 and loads and k % loads == 0 else (Op.WRITE, Op.UPDATE, Op.DATA)[number]
            more = {"op": op, "load": 5 if op == Op.DATA else -1}
            bench.fifo.push(number, ready_ps=ready_ps, sectors=sectors, tag=tag % 4, **more)
            volume = 0 if op == Op.READ else 32 * sectors.bit_count()
            queues[number].append(Packet(ready_ps, volume, tag % 4))
            tag += 1
    expected = link_twin(
        *queues,
        fs_per_byte=round(1e6 / rate),
        header_bytes=header,
        latency_ps=LATENCY_PS,
        credits=credits,
        hold_ps=hold,
    )
    assert bench.run(hold) == expected
    assert bench.port_records[0]["arrived_bytes"] == bench.port_records[0]["bytes"]
    assert bench.port_records[0]["load_bytes"] == sum(packet.volume for packet in queues[2])


@pytest.mark.parametrize(("topology", "share"), [("switch", 3), ("fully_connected", 1), ("ring", 1)])
def test_ports_to_a_switch_share_one_lane_out(topology, share):
    bench = LinkBench(f"link.topology={topology}", ports=3)
    for port in range(3):
        bench.fifo.push(port, tag=-1)
        bench.send(WINDOW_PS, port)
    line_fs = 128 * 6667
    expected = [-(-line_fs * (1 + port * (share == 3)) // FS_PER_PS) + LATENCY_PS for port in range(3)]
    assert [bench.arrival_ps(port) for port in range(3)] == expected


def test_of_ports_that_share_a_lane_the_packet_that_has_waited_longest_goes_next():
    bench = LinkBench("link.topology=switch", ports=3)
    for port, ready_ps in ((0, 0), (0, 300), (1, 200), (2, 100)):
        bench.fifo.push(port, ready_ps=ready_ps, tag=-1)
    publish(bench.wire_records)
    machine, order = (bench.wires, bench.fifo.fifos, bench.fifo.pool), []
    while (found := next_sender(bench.ports, *machine))[0] >= 0:
        order.append(found[0])
        port_send(bench.ports, found[0], bench.wires, bench.sends, bench.tiles, *machine[1:], found[1])
    assert order == [0, 2, 1, 0]  # while the first one leaves the others come


@pytest.mark.parametrize("header", [0, 16])
@pytest.mark.parametrize(("topology", "share"), [("switch", True), ("fully_connected", False)])
def test_what_a_switch_sends_to_one_gpu_shares_one_lane_in(topology, share, header):
    """Three GPUs send two lines each at once, over links of their own."""
    senders = LinkBench("link.topology=fully_connected", f"link.header_bytes={header}", ports=3)
    bench = LinkBench(f"link.topology={topology}", f"link.header_bytes={header}", ports=3)
    for port in range(3):
        senders.fifo.push(port, tag=-1)
        senders.fifo.push(port, tag=-1)
        senders.send(WINDOW_PS, port)
    bench.wire_records[:] = senders.wire_records
    found = []
    while (first_ps := min(bench.arrival_ps(port) for port in range(3))) < NEVER:
        port = [bench.arrival_ps(port) for port in range(3)].index(first_ps)
        bench.take(first_ps, port)
        found.append(first_ps)
    line_fs = (128 + header) * 6667
    lines = range(1, 7) if share else (1, 1, 1, 2, 2, 2)
    assert found == pytest.approx([line_fs * count / FS_PER_PS + LATENCY_PS for count in lines], abs=2)


def test_a_lone_sender_feels_nothing_of_the_lane_in():
    """Rounding to picoseconds must not add up: arrivals are those of the wire."""
    bench = LinkBench("link.topology=switch")
    for _ in range(200):
        bench.fifo.push(0, tag=-1)
    bench.send(FOREVER)
    on_wire = bench.wire_records[0]["packet"]["ready_ps"][:200].tolist()
    found = []
    for _ in on_wire:
        found.append(bench.arrival_ps())
        bench.take(found[-1])
    assert found == on_wire


def test_a_packet_as_its_receiver_sees_it():
    bench = LinkBench(ports=2)
    bench.port_records["distance"] = [1, 3]
    for port in range(2):
        bench.fifo.push(port, line=0x8000, tag=2, contributors=0b1001, sectors=7, op=Op.UPDATE, stream=1, link=9)
        bench.send(WINDOW_PS, port)
        packet = bench.take(bench.arrival_ps(port), port)
        assert (packet["line"], packet["tag"], packet["sectors"], packet["op"]) == (0x8000, 2, 7, Op.UPDATE)
        assert (packet["link"], packet["stream"]) == (1 + port, Stream.COMM_WRITE)
        assert packet["contributors"] == (0b0011, 0b1100)[port]  # of four GPUs, one and three places further on


def test_a_load_keeps_its_place_in_l1_and_learns_over_which_port_its_data_leave():
    """Its data do, too. Only data are booked to the tile that they come from."""
    bench = LinkBench(ports=2)
    bench.port_records["distance"], bench.port_records["back"] = [1, 3], [1, 0]
    for port in range(2):
        bench.fifo.push(port, line=0x8000, tag=2, op=Op.READ, load=77, source=5, link=9)
        bench.send(WINDOW_PS, port)
        assert bench.arrival_ps(port) == LATENCY_PS and bench.port_records[port]["bytes"] == 0  # without a header
        packet = bench.take(bench.arrival_ps(port), port)
        assert (packet["op"], packet["load"], packet["source"], packet["line"]) == (Op.READ, 77, 5, 0x8000)
        assert (packet["link"], packet["stream"]) == (2 - port, Stream.COMM_READ)
    assert bench.tile_records[["sent_bytes", "sent_sum"]].tolist() == [(0, 0)] * 4
    bench.fifo.push(4, line=0x8000, tag=2, op=Op.DATA, load=77, source=5, contributors=0b1001, sectors=3)
    bench.send(2 * LATENCY_PS)
    packet = bench.take(bench.arrival_ps())
    assert (packet["op"], packet["load"], packet["source"], packet["contributors"]) == (Op.DATA, 77, 5, 0b0011)
    assert bench.tile_records["sent_bytes"].tolist() == [0, 0, 64, 0]
    assert bench.port_records[0]["load_bytes"] == bench.port_records[0]["arrived_bytes"] == 64


def test_the_mirror_shifts_tile_and_address():
    bench = LinkBench()
    bench.space_record["mirrored"] = 1
    bench.mirror_records[0, 2]["tag"], bench.mirror_records[0, 2]["shift_bytes"] = 3, 0x4000
    bench.fifo.push(0, line=0x8000, tag=2)
    bench.send(WINDOW_PS)
    packet = bench.take(bench.arrival_ps())
    assert (packet["tag"], packet["line"]) == (3, 0xC000)


def test_a_packet_becomes_the_tile_that_it_is_for_when_it_leaves():
    """It is booked to the tile here."""
    bench = LinkBench()
    bench.send_records["tag"][1], bench.send_records["shift_bytes"][1] = 3, 0x4000
    for number in (-1, 1):
        bench.fifo.push(0, line=0x8000, tag=2, load=number, sectors=15)
    bench.send(WINDOW_PS)
    found = [bench.take(bench.arrival_ps()) for _ in range(2)]
    assert [(int(p["tag"]), int(p["line"]), int(p["load"])) for p in found] == [(2, 0x8000, -1), (3, 0xC000, -1)]
    assert bench.tile_records["sent_bytes"].tolist() == [0, 0, 256, 0]


def test_memory_gets_a_packet_a_path_later():
    bench = LinkBench()
    bench.fifo.push(0)
    bench.send(WINDOW_PS)
    now_ps = bench.arrival_ps()
    assert bench.take(now_ps)["ready_ps"] == now_ps + bench.request_ps


def test_what_leaves_is_booked_to_its_tile():
    bench = LinkBench()
    bench.tile_records["address"] = 0x8000
    for line, sectors in ((0x8000, 15), (0x8080, 3)):
        bench.fifo.push(0, line=line, sectors=sectors, tag=1)
    bench.fifo.push(0, line=0x8080, sectors=3, tag=-1)  # not of the output
    bench.send(FOREVER)
    tile = bench.tile_records[1]
    parts = [int(fingerprint(bench.tiles[1], line, sectors)) for line, sectors in ((0x8000, 15), (0x8080, 3))]
    assert tile["sent_bytes"] == 192 and (int(tile["sent_sum"]) - sum(parts)) % (1 << 64) == 0
    assert bench.tile_records["sent_bytes"].sum() == 192


def test_a_store_to_all_gpus_leaves_once_and_comes_over_every_link():
    bench = LinkBench("link.topology=switch", ports=3)
    bench.port_records["to_all"] = [0, 0, 1]
    for op in (Op.WRITE, Op.COMBINE):
        bench.fifo.push(2, tag=1, op=op)
        bench.send(FOREVER, port=2)
    assert bench.wire_records["sent"].tolist() == [1, 1, 2]  # a part of a sum is for one GPU
    assert bench.port_records["bytes"].tolist() == [0, 0, 256]
    first_ps = -(-128 * 6667 // FS_PER_PS) + LATENCY_PS
    assert bench.wire_records["packet"]["ready_ps"][:, 0].tolist() == [first_ps] * 3


def test_a_store_to_all_gpus_waits_for_a_credit_of_each():
    bench = LinkBench("link.topology=switch", "link.credits=1", ports=3)
    bench.port_records["to_all"] = [0, 0, 1]
    bench.fifo.push(1, tag=1)
    bench.send(FOREVER, port=1)
    bench.fifo.push(2, tag=1, op=Op.WRITE)
    assert bench.send(FOREVER, port=2) == NEVER and bench.wire_records["sent"].tolist() == [0, 1, 0]
    taken_ps = bench.arrival_ps(1)
    bench.take(taken_ps, 1)
    bench.send(FOREVER, port=2)
    assert bench.wire_records["sent"].tolist() == [1, 2, 1]
    wire_ps = -(-128 * 6667 // FS_PER_PS)
    assert bench.wire_records["packet"]["ready_ps"][0, 0] == taken_ps + LATENCY_PS + wire_ps + LATENCY_PS


def test_a_part_of_a_sum_is_a_store_when_it_arrives():
    bench = LinkBench()
    bench.fifo.push(0, line=0x8000, tag=2, op=Op.COMBINE, sectors=3)
    bench.send(WINDOW_PS)
    assert bench.take(bench.arrival_ps())["op"] == Op.WRITE
    assert bench.port_records[0]["part"] == 0x8000 | 3
