"""Random traffic through random crossbars: times, order, counters, credits and wakes are those of a naive twin."""

import numpy as np
import pytest

from sim.hw.noc import home_place
from sim.hw.noc_record import COUNTERS, FAR_COUNTERS
from sim.hw.request import NEVER, Op
from sim.spec import L2Sharing
from tests.support.noc_bench import CLOCK_PS, NocBench
from tests.support.noc_twin import NocTwin, Ports
from traces.schema import Cache

COMPARED = ("tag", "ready_ps", "op", "stream", "link", "source", "load", "sectors")
WINDOWS = 25
MACHINES = [(1, 6, "home"), (2, 6, "home"), (2, 4, "copies"), (2, 6, "private"), (3, 6, "home"), (3, 36, "home")]


class Crossbars:
    """A crossbar and its twin with the same traffic."""

    def __init__(self, random, partitions, cus, sharing):
        self.random, self.tag = random, 0
        channels, links, ports = partitions, int(random.integers(3)), int(random.integers(1, 3))
        widths = {name: int(random.choice([16, 32, 43, 64])) for name in ("request", "response", "bank", "far")}
        header_bytes, ack_bytes = int(random.choice([0, 8])), int(random.choice([0, 8, 40]))
        latency_clk, far_clk = 30, int(random.integers(20, 50))
        bulk_lines = ports - 1 if links else 0
        self.bench = NocBench(
            *(f"noc.{name}_bytes_per_clk={widths[name]}" for name in ("request", "response", "bank")),
            f"l2.far_bytes_per_clk={widths['far']}",
            *(f"noc.header_bytes={header_bytes}", f"noc.ack_bytes={ack_bytes}", "noc.cu_fifo=8"),
            *(f"l2.far_latency_clk={far_clk}", f"l2.partitions={partitions}", f"l2.sharing={sharing}"),
            *("link.egress_fifo=3", f"cu.bulk_lines_per_clk={float(bulk_lines)}"),
            links=links,
            size=(
                *(f"cu.count={cus}", f"hbm.channels={channels}", f"l2.banks={2 * channels}"),
                *(f"l2.bytes={channels << 15}", "hbm.capacity_bytes=16106127360"),
            ),
        )
        fifos, names = self.bench.node.fifos, self.bench.names
        few = [name.startswith(("l2.requests", "l2.far")) and "answers" not in name for name in names]
        fifos["limit"][few] = fifos["free"][few] = 3
        self.window_ps = int(self.bench.node.engine["lookahead_ps"][0])
        banks, period_ps = 2 * channels, CLOCK_PS
        self.ports = Ports(
            *(cus, banks, 1 + bulk_lines, links, period_ps, latency_clk * period_ps),
            *(widths[name] for name in ("request", "response", "bank", "far")),
            *(header_bytes, ack_bytes, partitions, L2Sharing[sharing.upper()], far_clk * period_ps),
        )
        self.twin = NocTwin(
            self.ports,
            dict(zip(names, fifos["limit"].tolist(), strict=True)),
            dict(zip(names, fifos["credit_ps"].tolist(), strict=True)),
        )
        self.last_ps = dict.fromkeys(names, 0)
        self.filled = [name for c in range(cus) for name in self.twin.sources_of(c)]
        self.homes = [home_place(self.bench.noc, line) for line in range(0, 1 << 15, 128)]

    def push(self, name, begin_ps, **fields):
        """Give both a packet of a random time."""
        self.last_ps[name] = max(self.last_ps[name], begin_ps) + int(self.random.integers(0, 4 * CLOCK_PS))
        self.tag += 1
        # A store is ready before the load that it follows, which looks in L1 first.
        sooner_ps = int(self.random.integers(3)) * CLOCK_PS if name.startswith("cu") else 0
        given = {"ready_ps": max(self.last_ps[name] - sooner_ps, 0), "tag": self.tag}
        given["sectors"] = int(self.random.integers(1, 16))
        given |= {"stream": int(self.random.integers(4)), "line": 0, "cache": 0, "link": 0, "load": -1, "source": 0}
        given |= fields
        self.bench.push(name, **given)
        self.twin.queue[name].append({**given, "home": self.homes[given["line"] // 128], "bank": 0, "cache_set": 0})

    def fill(self, begin_ps):
        """New requests and answers, as many as there is room for."""
        random, ports = self.random, self.ports
        for name in self.filled:
            for _ in range(random.integers(0, 8)):
                if len(self.twin.queue[name]) < self.twin.limit[name]:
                    leaves = ports.links and (name.startswith("cu.leave") or random.random() < 0.2)
                    self.push(
                        name,
                        begin_ps,
                        op=int(random.choice([Op.READ, Op.WRITE, Op.ATOMIC, Op.REDUCE])),
                        line=128 * int(random.integers(len(self.homes))),
                        cache=int(random.choice([Cache.DEFAULT, Cache.UNCACHED])),
                        link=int(random.integers(1, ports.links + 1)) if leaves else 0,
                        source=int(random.integers(ports.cus)),
                    )
        for bank in range(ports.banks):
            for name in (f"l2.hits{bank}", f"l2.late{bank}"):
                for _ in range(random.integers(0, 3)):
                    if len(self.twin.queue[name]) < self.twin.limit[name]:
                        self.push(name, begin_ps, **self.answer())
        for link in range(ports.links):
            self.push(f"link.data{link}", begin_ps, op=Op.DATA, link=link + 1, source=int(random.integers(ports.cus)))

    def answer(self):
        """Where an answer of a bank goes: to a CU, to the link of another GPU's, or to a bank that keeps a copy."""
        random, ports = self.random, self.ports
        fields = {"op": int(random.choice([Op.READ, Op.WRITE, Op.ATOMIC, Op.REDUCE]))}
        fields |= {"load": int(random.integers(-1, 2)), "source": int(random.integers(ports.cus))}
        if ports.links and random.random() < 0.2:
            return fields | {"op": Op.READ, "link": int(random.integers(1, ports.links + 1))}
        if ports.partitions > 1 and ports.sharing == L2Sharing.COPIES and random.random() < 0.3:
            return fields | {"op": Op.READ, "source": ports.cus + int(random.integers(ports.banks))}
        return fields

    def drain(self, begin_ps, end_ps):
        """Banks and links take some requests in the window; CUs and what takes the other answers take all."""
        for name in self.bench.names:
            held = len(self.twin.queue[name])
            if name.startswith(("l2.requests", "l2.far", "link.stores")) and "answers" not in name:
                count = int(self.random.integers(held + 1))
            elif name.startswith(("cu.answers", "link.loads", "l2.copy_fills")):
                count = held
            else:
                continue
            now_ps = int(self.random.integers(begin_ps, end_ps))
            now_ps -= now_ps % int(self.random.choice([1, CLOCK_PS]))
            self.bench.drop(name, count, now_ps + self.twin.credit_ps[name])
            for _ in range(count):
                self.twin.take(name, now_ps)

    def compare(self):
        for name in self.bench.names:
            fields = (*COMPARED, "bank", "cache_set") if name.startswith("l2") else COMPARED
            twins = [tuple(int(packet[field]) for field in fields) for packet in self.twin.queue[name]]
            assert [tuple(int(one[field]) for field in fields) for one in self.bench.held(name)] == twins, name
            fifo = self.bench.node.fifos[self.bench.number(name)]
            for number, taken_ps in list(enumerate(self.twin.taken_ps[name]))[-int(fifo["room"]) - 1 :]:
                credit_ps = self.bench.node.pool.credits_ps[fifo["first"] + (number & fifo["room"])]
                assert credit_ps == taken_ps + fifo["credit_ps"], name
        noc = self.bench.node.noc[0]
        counts = {name: int(noc[name]) for name in (*COUNTERS, *FAR_COUNTERS)}
        assert counts == {name: self.twin.counts[name] for name in counts}
        assert int(noc["last_ack_ps"]) == self.twin.last_ack_ps
        wakes = {"bank": self.bench.bank_wake_ps, "copy": self.bench.copy_told_ps, "cu": self.bench.cu_wake_ps}
        told = {(kind, k): int(ps) for kind, array in wakes.items() for k, ps in enumerate(array) if ps != NEVER}
        assert told == self.twin.told_ps
        for array in wakes.values():
            array[:] = NEVER
        self.twin.told_ps.clear()


@pytest.mark.parametrize(("partitions", "cus", "sharing"), MACHINES)
@pytest.mark.parametrize("seed", range(3))
def test_everything_is_as_the_twin_says(partitions, cus, sharing, seed):
    both = Crossbars(np.random.default_rng(seed), partitions, cus, sharing)
    begin_ps = 0
    for _ in range(WINDOWS):
        end_ps = begin_ps + CLOCK_PS * int(both.random.integers(1, both.window_ps // CLOCK_PS + 1))
        both.fill(begin_ps)
        bench, twin = both.bench, both.twin
        next_ps = bench.requests(begin_ps, end_ps), bench.answers(begin_ps, end_ps)
        twin.requests(begin_ps, end_ps)
        twin.answers(begin_ps, end_ps)
        both.compare()
        for got_ps, twins_ps in zip(next_ps, (twin.next_request_ps(), twin.next_answer_ps()), strict=True):
            assert end_ps <= got_ps <= twins_ps and (got_ps == NEVER) == (twins_ps == NEVER)  # at worst too early
        both.drain(begin_ps, end_ps)
        assert bench.wake_ps() == twin.next_waiting_ps()
        begin_ps = end_ps
    assert twin.counts["refused"] > 0
