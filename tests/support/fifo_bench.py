"""Fifos in the hand of a test: put requests in, look at them, take them out."""

import numpy as np

from sim.hw.fifo import make_fifos
from sim.hw.request import REQUEST
from tests.support.plain_records import kernel_view


def request(**fields):
    """A REQUEST array of one: a whole line, tag 0, nothing special."""
    record = np.zeros(1, REQUEST)
    for name, value in {"sectors": 15, "load": -1, **fields}.items():
        record[name] = value
    record["full"] = fields.get("full", record["sectors"])
    return record


class FifoBench:
    """Fifos of given depths and their pool.

    Attributes:
        records, slots: as arrays.
        fifos, pool: the same, as kernels take them.
    """

    def __init__(self, *depths, arrays=None):
        """arrays: (fifos, pool) of a machine instead of new ones, whose credits take a picosecond."""
        self.records, pool = arrays or make_fifos(depths, 1)
        self.records["mask"] = self.records["room"]  # whole rings: the test puts requests in
        self.slots, self.credits_ps = pool
        self.fifos, self.pool = kernel_view(self.records), kernel_view(pool)

    def push(self, number, **fields):
        fifo = self.records[number]
        assert fifo["tail"] - fifo["head"] < fifo["limit"]
        self.slots[self._slot(fifo, fifo["tail"])] = request(**fields)[0]
        fifo["tail"] += 1

    def held(self, number):
        """Requests in a fifo, oldest first."""
        fifo = self.records[number]
        return self.slots[[self._slot(fifo, k) for k in range(fifo["head"], fifo["tail"])]]

    def take(self, number, count=1, room_ps=0):
        """Remove the oldest requests and return them. Their producer sees the room at room_ps."""
        taken, fifo = self.held(number)[:count], self.records[number]
        self.credits_ps[[fifo["first"] + ((fifo["head"] + k) & fifo["room"]) for k in range(count)]] = room_ps
        self.records[number]["head"] += count
        return taken

    @staticmethod
    def _slot(fifo, position):
        return fifo["first"] + ((position - fifo["origin"]) & fifo["mask"])
