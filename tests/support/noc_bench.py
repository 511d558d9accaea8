"""The crossbar of a small machine under test."""

import numpy as np

from sim.hw.noc import home_place, noc_requests, noc_wake_ps
from sim.hw.noc_answers import noc_answers
from sim.hw.request import NEVER
from sim.machine.build import build
from tests.support.fifo_bench import request
from tests.support.plain_records import kernel_view
from tests.support.programs import SMALL, small_preset

CLOCK_PS = 1000
PORTS = (
    *("noc.clock_MHz=1000.0", "noc.request_bytes_per_clk=32", "noc.response_bytes_per_clk=64"),
    *("noc.bank_bytes_per_clk=32", "noc.header_bytes=8", "noc.latency_clk=30", "noc.bank_fifo=64"),
)
LATENCY_PS = 30 * CLOCK_PS


class NocBench:
    """The crossbar of a small machine; CUs and banks are lists in the hand of the test."""

    def __init__(self, *overrides, links=0, bank_places=None, size=SMALL):
        self.machine = small_preset(*PORTS, *overrides, size=size).machine
        self.node, self.names = build(self.machine, links, loads=links > 0)
        node = self.node
        if bank_places:
            held = [name.startswith("l2.requests") for name in self.names]
            node.fifos["limit"][held] = node.fifos["free"][held] = bank_places
        node.fifos["mask"] = node.fifos["room"]  # whole rings: the test puts requests in
        self.noc, self.fifos, self.pool = kernel_view(node.noc)[0], kernel_view(node.fifos), kernel_view(node.pool)
        cus, banks = self.machine.cu.count, self.machine.l2.banks
        self.bank_wake_ps, self.copy_told_ps, self.cu_wake_ps = (
            np.full(count, NEVER, np.int64) for count in (banks, banks, cus)
        )

    def number(self, name):
        return self.names.index(name)

    def push(self, name, **fields):
        """Put in a request: if nothing else is said, a read of a whole line, which is visible at once."""
        fifo = self.node.fifos[self.number(name)]
        assert fifo["tail"] - fifo["head"] < fifo["limit"]
        slot = fifo["first"] + ((fifo["tail"] - fifo["origin"]) & fifo["mask"])
        self.pool_array()[slot] = request(**fields)[0]
        fifo["tail"] += 1

    def pool_array(self):
        return self.node.pool.requests

    def held(self, name):
        fifo = self.node.fifos[self.number(name)]
        slots = [fifo["first"] + ((k - fifo["origin"]) & fifo["mask"]) for k in range(fifo["head"], fifo["tail"])]
        return self.pool_array()[slots]

    def drop(self, name, count, room_ps=0):
        fifo = self.node.fifos[self.number(name)]
        for number in range(fifo["head"], fifo["head"] + count):  # their room is seen at room_ps
            self.node.pool.credits_ps[fifo["first"] + (number & fifo["room"])] = room_ps
        fifo["head"] += count

    def requests(self, begin_ps, end_ps):
        wakes = kernel_view(self.bank_wake_ps)
        return int(noc_requests(self.noc, self.fifos, self.pool, begin_ps, end_ps, wakes))

    def wake_ps(self):
        return int(noc_wake_ps(self.noc, self.fifos, self.pool))

    def answers(self, begin_ps, end_ps):
        wakes = kernel_view(self.copy_told_ps), kernel_view(self.cu_wake_ps)
        clusters = tuple(map(kernel_view, (self.node.cus, self.node.peers, self.node.mail)))
        return int(noc_answers(self.noc, self.fifos, self.pool, begin_ps, end_ps, clusters, *wakes))

    def line_of(self, bank, nth=0):
        """The nth line whose home is `bank`."""
        return [line for line in range(0, 1 << 16, 128) if home_place(self.noc, line)[0] == bank][nth]
