"""The way between the CUs of a group: times against a naive twin, mail, and what a signal holds."""

import numpy as np
import pytest

from sim.hw.cu_record import make_cus
from sim.hw.fifo import make_fifos
from sim.hw.peers import carry_packets, deliver, mail_ps, post
from sim.hw.peers_record import MESSAGE, News, groups_of, mail_places, make_peers
from sim.hw.request import NEVER, Op
from sim.hw.signals import member, pack_signal, unpack_signal
from tests.support.fifo_bench import request
from tests.support.peers_twin import Packet, carry
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset
from traces.units import whole_period_ps

CUS = 4
CLUSTERS = ("cu.groups=2", "cu.peer_latency_clk=20", "cu.peer_bytes_per_clk=16")
DEPTH = 64


class PathBench:
    """Four CUs with their ports, and nothing else."""

    def __init__(self, *overrides):
        self.machine = small_preset(*CLUSTERS, *overrides).machine
        self.records, self.pool_records = make_fifos([DEPTH] * CUS, 1000)
        self.peer_records = make_peers(self.machine, np.arange(CUS))
        self.mail_records = np.zeros((CUS, 128), MESSAGE)
        self.wake = np.full(CUS, NEVER)
        arrays = (self.peer_records, self.mail_records, self.records, self.pool_records, self.wake)
        self.peers, self.mail, self.fifos, self.pool, self.wakes = map(kernel_view, arrays)

    def push(self, source, to, ready_ps, op, sectors=0, entry=0, share=0, line=0):
        fifo = self.records[source]
        fifo["mask"] = DEPTH - 1
        request = self.pool_records.requests[fifo["first"] + (fifo["tail"] & (DEPTH - 1))]
        fields = {"ready_ps": ready_ps, "op": op, "sectors": sectors, "bank": to, "load": entry, "contributors": 5}
        for name, value in {**fields, "share": share, "line": line}.items():
            request[name] = value
        fifo["tail"] += 1

    def carry(self, begin_ps, end_ps):
        return int(carry_packets(self.peers, self.mail, self.fifos, self.pool, begin_ps, end_ps, self.wakes))

    def letters(self, cu):
        """Messages of a CU, in order."""
        peer = self.peer_records[cu]
        return self.mail_records[cu][np.arange(peer["head"], peer["tail"]) & 127]

    @property
    def arithmetic(self):
        cu, clock_ps = self.machine.cu, whole_period_ps(self.machine.cu.clock_MHz)
        slot_ps = whole_period_ps(self.machine.noc.clock_MHz)
        times = {"latency_ps": cu.peer_latency_clk * clock_ps, "clock_ps": clock_ps, "slot_ps": slot_ps}
        return {**times, "bytes_per_clk": cu.peer_bytes_per_clk, "header_bytes": self.machine.noc.header_bytes}


def volumes(op, sectors):
    """Bytes of data there and back."""
    return (0 if op == Op.READ else 32 * sectors), (32 * sectors if op in (Op.READ, Op.ATOMIC) else 0)


@pytest.mark.parametrize("header", [0, 8])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("windows", [1, 3, 7])
def test_times_are_those_of_the_twin(seed, header, windows):
    bench, random = PathBench(f"noc.header_bytes={header}"), np.random.default_rng(seed)
    slot_ps = bench.arithmetic["slot_ps"]
    packets, entries = [], []
    for entry in range(40):
        source, to = (int(n) for n in random.integers(0, CUS, 2))
        op = Op([Op.READ, Op.WRITE, Op.ATOMIC, Op.REDUCE][random.integers(4)])
        count = int(random.integers(1, 5))
        ready_ps = int(random.integers(0, 20 * slot_ps))
        bench.push(source, to, ready_ps, op, (1 << count) - 1, entry)
        packets.append(Packet(source, to, ready_ps, *volumes(op, count)))
        entries.append(entry)
    for begin in range(0, 21, windows):
        bench.carry(begin * slot_ps, (begin + windows) * slot_ps)
    expected = carry(packets, CUS, **bench.arithmetic)
    found = {}
    for cu in range(CUS):
        letters = bench.letters(cu)
        assert (np.diff(letters["ready_ps"]) >= 0).all()
        assert set(letters["news"]) <= {News.ANSWER}
        found |= {int(one["entry"]): (cu, int(one["ready_ps"])) for one in letters}
    assert found == {k: (packets[k].source, expected[k].back_ps) for k in entries}
    assert bench.peer_records["packets"].sum() == 40
    assert bench.peer_records["packet_bytes"].sum() == sum(p.carries + header for p in packets)
    assert bench.peer_records["answer_bytes"].sum() == sum(p.returns + header for p in packets)


def test_a_packet_leaves_at_its_clock_and_not_before():
    bench = PathBench()
    slot_ps = bench.arithmetic["slot_ps"]
    bench.push(0, 1, 3 * slot_ps, Op.READ, 1)
    bench.push(2, 1, 5 * slot_ps, Op.READ, 1)
    assert bench.carry(0, 3 * slot_ps) == 3 * slot_ps
    assert not len(bench.letters(0)) and bench.records[0]["head"] == 0
    assert bench.carry(3 * slot_ps, 4 * slot_ps) == 5 * slot_ps
    assert len(bench.letters(0)) == 1 and bench.wake[0] == bench.letters(0)["ready_ps"][0] and bench.wake[1] == NEVER


def test_bytes_and_arrivals_come_when_the_packet_comes():
    bench = PathBench()
    bench.push(0, 2, 0, Op.WRITE, 15, share=pack_signal(1 << 3, 0, 7, 100))
    bench.push(0, 2, 0, Op.WRITE, 0, share=pack_signal(1 << 1, 0, 2, 1), line=6)
    bench.carry(0, bench.arithmetic["slot_ps"])
    first, second = bench.letters(2)
    there_ps = carry([Packet(0, 2, 0, 128, 0)], CUS, **bench.arithmetic)[0].there_ps
    assert [int(first[f]) for f in ("news", "ranks", "barrier", "number")] == [News.BYTES, 8, 7, 100]
    assert [int(second[f]) for f in ("news", "ranks", "barrier", "number")] == [News.ARRIVAL, 2, 2, 6]
    assert first["ready_ps"] == there_ps == bench.wake[2] and set(bench.letters(2)["cluster"]) == {5}


@pytest.mark.parametrize("seed", range(20))
def test_a_multicast_line_comes_once_to_each_cu_and_then_the_asker_is_told(seed):
    """Six workgroups of a cluster on four CUs, the place of each is its rank; a random set of them gets the line."""
    bench, random = PathBench(), np.random.default_rng(seed)
    port_ps, latency_ps, out_ps, in_ps = 70, 500, 1000, random.integers(900, 1100, CUS)
    homes, ports, expected = random.integers(0, CUS, 6).tolist(), 0, in_ps.tolist()
    asker, getters = int(random.integers(6)), random.permutation(6)[: random.integers(1, 7)].tolist()
    cus = make_cus(bench.machine.cu, np.arange(CUS))
    for rank, c in enumerate(homes):
        resident = cus[c]["resident"][rank]
        resident["rank"], resident["size"], resident["cluster"] = rank, 6, 5
        resident["members"][:6] = [int(member(home, place)) for place, home in enumerate(homes)]
    share = pack_signal(sum(1 << rank for rank in getters), asker, 3, 100)
    answer = kernel_view(request(source=homes[asker], load=9, share=share))[0]
    times = port_ps, out_ps, latency_ps
    found = deliver(kernel_view(cus), bench.peers, bench.mail, kernel_view(in_ps), answer, *times, bench.wakes)
    letters = [[] for _ in range(CUS)]
    for c in set(homes):
        ranks = sum(1 << rank for rank in getters if homes[rank] == c and rank != asker)
        if ranks:
            if c != homes[asker] or asker not in getters:
                expected[c], ports = max(expected[c] + port_ps, out_ps), ports + 1
            letters[c] = [(expected[c] + latency_ps, News.BYTES, ranks, 3, 100, 0)]
    last_ps = max(expected[c] for c in range(CUS) if letters[c] or c == homes[asker])
    letters[homes[asker]].append((last_ps + latency_ps, News.ANSWER, 0, 0, 0, 9))
    fields = ["ready_ps", "news", "ranks", "barrier", "number", "entry"]
    assert [bench.letters(c)[fields].tolist() for c in range(CUS)] == letters
    assert (int(found), in_ps.tolist()) == (ports, expected)
    assert bench.wake.tolist() == [min([NEVER, *(one[0] for one in each)]) for each in letters]
    lines = [sum(one[1] == News.BYTES for one in each) for each in letters]
    counted = [bench.peer_records[name].tolist() for name in ("multicast_lines", "multicast_bytes")]
    assert counted == [lines, [100 * line for line in lines]]


def test_mail_is_read_in_the_order_of_time():
    bench = PathBench()
    times = [500, 300, 300, 900, 100]
    for number, ready_ps in enumerate(times):
        post(bench.peers[1], bench.mail, ready_ps, News.ARRIVAL, 5, number)
    assert bench.letters(1)["ranks"].tolist() == [4, 1, 2, 0, 3]
    assert int(mail_ps(bench.peers[1], bench.mail)) == 100 and bench.peer_records[1]["waiting"] == 5


@pytest.mark.parametrize("ranks", [1, 0x8000, 0xFFFF, 0x0110])
@pytest.mark.parametrize(("place", "barrier", "data_bytes"), [(0, 0, 1), (31, 15, 128), (7, 3, 100)])
def test_a_signal_comes_out_as_it_went_in(ranks, place, barrier, data_bytes):
    packed = int(pack_signal(ranks, place, barrier, data_bytes))
    assert packed != 0 and -(1 << 31) <= packed < 1 << 31
    assert tuple(map(int, unpack_signal(np.int32(packed)))) == (ranks, place, barrier, data_bytes)


@pytest.mark.parametrize(
    ("count", "groups", "sizes"),
    [
        (132, 8, [16, 16, 16, 18, 16, 16, 16, 18]),
        (148, 8, [18, 18, 18, 20, 18, 18, 18, 20]),
        (4, 2, [2, 2]),
        (7, 2, [2, 5]),
        (8, 8, [0, 2] * 4),
        (1, 3, [0, 0, 1]),
    ],
)
def test_groups_of_cus_are_as_even_as_pairs_allow(count, groups, sizes):
    machine = small_preset(f"cu.count={count}", f"cu.groups={groups}", *CLUSTERS[1:]).machine
    found = groups_of(machine.cu)
    assert [end - first for first, end in found] == sizes
    assert [first for first, _ in found] == [0, *np.cumsum(sizes)[:-1]]
    assert mail_places(machine) >= max(sizes) * machine.l1.mshrs + 32
