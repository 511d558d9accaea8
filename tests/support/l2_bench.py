"""One L2 bank between two fifos: requests go in, DRAM is a list whose entries are answered when the test says so."""

from typing import NamedTuple

import numpy as np

from sim.hw.fifo import make_fifos
from sim.hw.l2 import l2_step
from sim.hw.l2_record import make_l2_banks
from sim.hw.request import NEVER, REQUEST, STREAMS, Op, Stream
from sim.hw.tags import make_sets
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset
from traces.schema import Cache

CLOCK_PS = 1000
ONE_BANK = (
    *("cu.count=1", "l2.banks=1", "hbm.channels=1", f"l2.clock_MHz={1e6 / CLOCK_PS}", "l2.index=interleave"),
    *("l2.latency_clk=125", "hbm.request_ps=50000", "l2.dram_fifo=64", "noc.bank_fifo=64"),
)
REQUESTS, FILLS, HITS, LATE, DRAM = range(5)


class Access(NamedTuple):
    number: int
    op: int
    line: int
    sectors: int = 15
    full: int = 15
    cache: int = Cache.DEFAULT
    stream: int = Stream.COMPUTE_READ
    awaited: bool = False  # a store for which a warp waits
    link: int = 0  # 1 + port over which it has come

    @property
    def answered(self) -> bool:
        return self.awaited or self.op in (Op.READ, Op.ATOMIC)


class BankBench:
    """Attributes: sent = (op, line, sectors) towards DRAM so far; answered = numbers of requests answered so far."""

    def __init__(self, *overrides, answers=512):
        """answers: places for hits, and for late answers."""
        machine = small_preset(*overrides, size=ONE_BANK).machine
        wiring = {"requests": [REQUESTS], "fills": [FILLS], "hits": [HITS], "late": [LATE]}
        wiring["dram"] = [np.arange(DRAM, DRAM + STREAMS)]
        self.banks, waiters, sets = make_l2_banks(machine, wiring)
        fills = 2 * machine.l2.mshrs
        depths = [machine.noc.bank_fifo, fills, answers, answers]
        self.fifos, pool = make_fifos([*depths, *[machine.l2.dram_fifo] * STREAMS], 1)
        self.fifos["mask"] = self.fifos["room"]  # whole rings: the test puts requests in
        self.requests, self.credits_ps = pool
        self.sets, self.waiters = make_sets(sets), waiters
        views = map(kernel_view, (self.sets, self.waiters, self.fifos, pool))
        self._arguments = (kernel_view(self.banks)[0], *views)
        self.sent, self.answered, self.answers_ps = [], [], {}
        self.dram = []  # requests that DRAM holds
        self.now_ps = 0

    @property
    def bank(self):
        return self.banks[0]

    def _slot(self, fifo, number):
        return fifo["first"] + ((number - fifo["origin"]) & fifo["mask"])

    def push(self, fifo, request, ready_ps):
        fifo = self.fifos[fifo]
        assert fifo["tail"] - fifo["head"] < fifo["limit"]
        slot = self._slot(fifo, fifo["tail"])
        self.requests[slot] = request
        self.requests[slot]["ready_ps"] = ready_ps
        fifo["tail"] += 1

    def take(self, fifo):
        """All requests in a fifo, removed."""
        fifo = self.fifos[fifo]
        slots = [self._slot(fifo, k) for k in range(fifo["head"], fifo["tail"])]
        taken = [self.requests[slot].copy() for slot in slots]
        first = fifo["first"]
        self.credits_ps[first : first + fifo["room"] + 1] = 0  # the room is seen at once
        fifo["head"] = fifo["tail"]
        return taken

    def ask(self, access, ready_ps=0):
        request = np.zeros((), REQUEST)
        for name in ("op", "line", "sectors", "full", "cache", "stream", "link"):
            request[name] = getattr(access, name)
        request["load"] = access.number if access.answered else -1
        request["cache_set"] = access.line // 128 % self.bank["sets"]
        self.push(REQUESTS, request, ready_ps)

    def fill(self, request, ready_ps):
        self.dram = [one for one in self.dram if one is not request]
        self.push(FILLS, request, ready_ps)

    def step(self, now_ps):
        """One call; what it sent and answered is taken out of its fifos. Returns the wake time."""
        self.now_ps = now_ps
        wake_ps = int(l2_step(*self._arguments, now_ps))
        self.drain_answers()
        self.drain()
        return wake_ps

    def drain_answers(self):
        """The crossbar takes all answers."""
        for fifo in (HITS, LATE):
            for answer in self.take(fifo):
                self.answered.append(int(answer["load"]))
                self.answers_ps[int(answer["load"])] = int(answer["ready_ps"])

    def drain(self):
        """DRAM takes all requests."""
        for stream in range(STREAMS):
            for request in self.take(DRAM + stream):
                self.sent.append((int(request["op"]), int(request["line"]), int(request["sectors"])))
                if request["op"] == Op.READ:
                    self.dram.append(request)

    def flush(self):
        """Write back everything; what was sent."""
        before = len(self.sent)
        self.banks["flush_set"] = 0
        wake_ps = self.now_ps
        while self.bank["flush_set"] >= 0 and wake_ps < NEVER:
            wake_ps = self.step(wake_ps)
        return self.sent[before:]
