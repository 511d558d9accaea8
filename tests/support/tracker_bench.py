"""A Tracker with its tiles and counters, outside a machine."""

import numpy as np

from sim.collective.space import make_wavefronts
from sim.hw.dma import DESCRIPTOR
from sim.hw.request import NEVER, Op
from sim.hw.space import GATE, SPACE, TILE
from sim.hw.tracker import make_tracker, tracker_grant
from sim.hw.tracker_count import tracker_count
from sim.spec import DmaPolicy, Granularity
from tests.support.fifo_bench import request
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset

LINE = 128


class TrackerBench:
    """A Tracker and tiles of `lines` lines; every tile gets `updates` updates of each byte.

    A tile is one run, of which each wavefront stores `part_bytes` (0: one wavefront stores all).
    """

    def __init__(
        self,
        tiles,
        *overrides,
        updates=2,
        lines=2,
        start=0,
        gpus=4,
        policy=DmaPolicy.TILE,
        chunks=1,
        part_bytes=0,
        granularity=Granularity.WORKGROUP,
    ):
        spec = small_preset(*overrides).machine.tracker
        self.record, self.tile_records = make_tracker(spec, policy), np.zeros(tiles, TILE)
        self.record["tiles"], self.record["first_tile"] = tiles, start
        self.lines = lines
        self.tile_records["address"] = np.arange(tiles) * lines * LINE
        self.tile_records["runs"], self.tile_records["run_bytes"] = 1, lines * LINE
        self.tile_records["bytes"] = self.tile_records["pitch_bytes"] = lines * LINE
        parts, part_bytes = self.tile_records["parts"], part_bytes or lines * LINE
        parts["runs"], parts["bytes"], parts["byte_step"] = 1, part_bytes, 1
        parts["warps"] = -(-lines * LINE // part_bytes)
        self.tile_records["granularity"] = granularity
        self.tile_records["sends"], self.tile_records["entry"], self.tile_records["gate"] = 1, 1, -1
        self.tile_records["threshold_bytes"] = lines * LINE * updates
        self.tile_records["chunk"] = np.arange(tiles) * chunks // tiles
        space = np.zeros(1, SPACE)
        space["gpus"], space["set_mask"] = gpus, (1 << gpus) - 1
        self.gate_records = np.zeros(2, GATE)
        self.gate_records["open_ps"] = NEVER
        self.counters = make_wavefronts(self.tile_records)
        self.tile_records["counting"] = (self.counters["threshold_bytes"] > 0).sum(axis=1)
        self.released_records = np.zeros((2 * self.counters.size, DESCRIPTOR), np.int64)
        self.left = np.bincount(self.tile_records["chunk"], minlength=chunks).astype(np.int64)
        self.tracker, self.space = kernel_view(self.record)[0], kernel_view(space)[0]
        arrays = (self.tile_records, self.counters, self.gate_records, self.released_records, self.left)
        self.arrays = tuple(map(kernel_view, arrays))
        self.tiles = self.arrays[0]

    def grant(self, tile):
        return bool(tracker_grant(self.tracker, self.tiles, tile, 0))

    def count(self, tile, line=0, sectors=15, port=None, contributors=0b10, now_ps=0, wavefront=0, share=0):
        """An update of a line of the tile by a wavefront (-1: by several); `port`: it came over that link."""
        link = 0 if port is None else 1 + port
        address = int(self.tile_records[tile]["address"]) + line * LINE
        fields = {"op": Op.UPDATE, "link": link, "contributors": contributors, "wavefront": wavefront, "share": share}
        one = request(tag=tile, line=address, sectors=sectors, **fields)
        return bool(tracker_count(self.tracker, self.space, *self.arrays, kernel_view(one)[0], now_ps))

    def whole(self, tile, now_ps=0, **fields):
        for line in range(self.lines):
            self.count(tile, line, now_ps=now_ps, **fields)

    @property
    def descriptors(self):
        """(tile, wavefront, ready_ps) of the descriptors released so far."""
        return [tuple(int(part) for part in one[:3]) for one in self.released_records[: self.record[0]["released"]]]

    @property
    def ready(self):
        """(tile, ready_ps) of those, which are of whole tiles."""
        assert all(wavefront == -1 for _, wavefront, _ in self.descriptors)
        return [(tile, ready_ps) for tile, _, ready_ps in self.descriptors]
