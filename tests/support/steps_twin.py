"""Naive twin of the data of collectives on CUs: the steps of all GPUs move lists of contributors, without time.

A tile of a buffer holds the sorted numbers of the GPUs whose data were added. Kernels advance in any order, each in the
order of its steps, and wait at their gates.
"""

import random
from collections import Counter

from sim.collective.space import first_tags
from sim.collective.topology import port_distances
from sim.hw.request import Op
from sim.hw.space import PEER_BITS


def played(plans, kernels, begin, seed):
    """What memory holds at the end: (GPU, buffer, tile) -> GPUs.

    Args:
        plans: of all GPUs. kernels: plan -> the steps of each of its kernels, which run at once.
        begin: what memory holds before. seed: of the order.
    """
    twin, chance = _Twin(plans, begin), random.Random(seed)
    queues = [[(plan.gpu, *one) for one in tiles_of(steps)] for plan in plans for steps in kernels(plan)]
    while queues := [queue for queue in queues if queue]:
        able = [queue for queue in queues if twin.is_open(queue[0])]
        assert able, "the kernels wait for each other"
        twin.do(chance.choice(able).pop(0))
    assert not twin.added, "the switch waits for a part of a sum"
    assert all(twin.come[at] == times for tags in twin.needs.values() for at, times in tags.items())
    return twin.memory


def tiles_of(steps):
    """(step, tile, its gate) in the order of the workgroups."""
    return [(step, tile, step.gates[k] if step.gates else None) for step in steps for k, tile in enumerate(step.tiles)]


class _Twin:
    def __init__(self, plans, begin):
        self.plans, self.memory, self.come, self.added = plans, dict(begin), Counter(), {}
        self.distances = (0, *port_distances(plans[0].topology, len(plans)))
        self.needs = {}  # (GPU, gate) -> {(GPU, tag): arrivals}
        for plan in plans:
            for region in (region for region in plan.regions if region.gate is not None):
                first = first_tags(plan.buffers)[region.buffer]
                tags = [(plan.gpu, first + tile) for tile in range(region.first, region.end)]
                self.needs.setdefault((plan.gpu, region.gate), {}).update(dict.fromkeys(tags, region.comes))

    def is_open(self, work):
        gpu, _, _, gate = work
        return gate is None or all(self.come[at] >= times for at, times in self.needs[gpu, gate].items())

    def do(self, work):
        gpu, step, tile, _ = work
        data = []
        for read in step.reads:
            (source,), place = self._at(gpu, read)
            data += self.memory[source, place, tile]
        for address, more in ((step.write, 0), *([step.also] if step.also else [])):
            self._store(gpu, address, tile, tile + step.tag_offset + more, data, step.update)
        if step.flags:
            (to,), _ = self._at(gpu, step.flags[0])
            self.come[to, tile + step.tag_offset + step.flags[1]] += 1

    def _at(self, gpu, address):
        """GPUs and buffer behind an address. Through the switch: all GPUs."""
        gpus, far = len(self.plans), self.distances[address >> PEER_BITS]
        to = range(gpus) if far == gpus else [(gpu + far) % gpus]
        return to, address & ((1 << PEER_BITS) - 1)

    def _store(self, gpu, address, tile, tag, data, update):
        to, place = self._at(gpu, address)
        if self.plans[gpu].tiles["op"][tag] == Op.COMBINE:
            parts = self.added.setdefault((place, tile), [])
            parts.append(data)
            if len(parts) < len(self.plans):
                return
            to = [plan.gpu for plan in self.plans if tile in plan.chunks.span(plan.gpu, plan.chunks.gpus - 1)]
            data = [one for part in self.added.pop((place, tile)) for one in part]
        for one in to:
            old = self.memory.get((one, place, tile), [])
            assert not old or place == 0, "one store overwrites another"
            self.memory[one, place, tile] = sorted(data + old if update else data)
            self.come[one, tag] += len(to) > 1 or one != gpu or self.plans[gpu].tiles["op"][tag] == Op.COMBINE
