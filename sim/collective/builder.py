"""Builder of the plans of collectives on CUs: regions, steps of the kernel, and what the ledger expects.

If receivers load over the links (`pulls`), data stay in buffers of the sender. Each tile of each phase has a flag: a
sector at the receiver, whose arrival opens the gate of the step that loads the tile.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sim.collective.chunks import Chunks
from sim.collective.kernel import Step, segments
from sim.collective.plans import Counts, Plan, planned
from sim.collective.space import OUTPUT, Buffer, Region, make_tiles, slot_bytes
from sim.collective.topology import AnyTopology, port_to
from sim.hw.request import LINE_BYTES, SECTOR_BYTES, Op
from sim.hw.space import PEER_BITS
from tracer.gemm.source import OUTPUT_TILE

FLAGS = slot_bytes(62)
"""Address of the flags, behind all receive buffers: the last place below a peer window."""


def flags_of(phase: int, tiles: int) -> tuple[str, np.ndarray]:
    """Name and OUTPUT_TILE records of the flags of a phase: a sector for each tile, in a line of its own."""
    found = np.zeros(tiles, OUTPUT_TILE)
    found["address"] = FLAGS + (phase * tiles + np.arange(tiles)) * LINE_BYTES
    found["runs"], found["run_bytes"], found["pitch_bytes"] = 1, SECTOR_BYTES, SECTOR_BYTES
    return f"flags of phase {phase}", found


def with_received(buffers: int) -> list[int]:
    """Address offsets of this GPU's data and of its first receive buffers."""
    return [0, *map(slot_bytes, range(buffers))]


class Builder:
    """Builder of the regions, steps and counts of a collective on CUs. Its phases share the output, not the tags."""

    def __init__(
        self,
        output: np.ndarray,
        chunks: Chunks,
        gpu: int,
        topology: AnyTopology,
        slices: int,
        phases: int,
        pulls: bool = False,
    ):
        """pulls: receivers load. Each tile of each phase then has a flag, which says that it can be loaded."""
        self.chunks, self.gpu, self.topology, self.slices, self.pulls = chunks, gpu, topology, slices, pulls
        self.buffers = [Buffer(OUTPUT, np.tile(output, phases), shares=0)]
        if pulls:
            self.buffers += [Buffer(*flags_of(phase, chunks.tiles), shares=0) for phase in range(phases)]
        self.tiles, self.first_flag = make_tiles(output), len(self.buffers[0].tiles)
        tags = sum(len(buffer.tiles) for buffer in self.buffers)
        self.gate = np.full(tags, -1)
        self.counts = Counts.none(tags)
        self.regions: list[Region] = []
        self.steps: list[Step] = []
        self.gates = 0

    def keep_sum(self) -> None:
        """This GPU keeps the sum of its last chunk."""
        own = self.chunks.span(self.gpu, self.chunks.gpus - 1)
        self.counts.final[own.start : own.stop] = 1

    def peer(self, distance: int) -> int:
        """Peer window of the GPU at a distance ahead."""
        return (1 + port_to(self.topology, self.chunks.gpus, distance)) << PEER_BITS

    def arrivals(
        self, local: int, times: int, offset: int, adds: bool, *, each_tile: bool = False, **more: Any
    ) -> None:
        """Tiles of a chunk arrive `times` times. Workgroups that need them wait for a whole slice.

        adds: True: the data that the kernel sends include this GPU's contribution. each_tile: a slice may be a tile;
        the steps that wait are then cut into tiles. more: further fields of `Region`.
        """
        span = self.chunks.span(self.gpu, local)
        self.counts.arrived[offset + span.start : offset + span.stop] = 1 if more.get("op") == Op.COMBINE else times
        together = [(tile, 1) for tile in span] if each_tile else segments(self.tiles, span)
        for share in np.array_split(np.arange(len(together)), min(self.slices, len(together))):
            first, count = together[share[-1]]
            begin, end = offset + together[share[0]][0], offset + first + count
            gate = self.gates
            self.gate[begin:end] = gate
            self.gates += 1
            region = Region(begin, end, to=(), expects=times, gate=gate, polled=True, adds=adds)
            self.regions.append(replace(region, **more))
            if self.pulls:
                self._expect_flags(offset, times)

    def _expect_flags(self, offset: int, times: int) -> None:
        """The gate of the region made last opens with the flags of its tiles, not with their data."""
        region = self.regions[-1]
        self.regions[-1] = replace(region, gate=None)
        name, _ = flags_of(offset // self.chunks.tiles, self.chunks.tiles)
        first, end = region.first - offset, region.end - offset
        more: dict[str, Any] = {"gate": region.gate, "buffer": name, "adds": False, "alone": True}
        self.regions.append(replace(region, first=first, end=end, **more))
        flags = self.first_flag
        self.counts.arrived[flags + region.first : flags + region.end] = times

    def to(self, slot: int, distance: int = 1) -> int:
        """Address offset of a receive buffer of the GPU at a distance ahead; if receivers load, of this GPU's."""
        return slot + (0 if self.pulls else self.peer(distance))

    def tell(self, tags: int = 0, distance: int = 1) -> None:
        """If receivers load: that GPU can load what the last step has stored. tags: offset of its tags."""
        if not self.pulls:
            return
        step = self.steps[-1]
        address = self.peer(distance) + FLAGS + tags * LINE_BYTES
        self.steps[-1] = replace(step, flags=(address, self.first_flag + tags - step.tag_offset))
        for first in (tags, self.first_flag + tags):
            self.counts.sent[first + step.tiles.start : first + step.tiles.stop] += 1

    def received(self, slot: int, distance: int = 1) -> int:
        """Address offset of what the GPU at a distance behind has handed on in a receive buffer."""
        return slot + (self.peer(self.chunks.gpus - distance) if self.pulls else 0)

    def step(
        self,
        local: int,
        reads: Sequence[int],
        write: int,
        *,
        update: bool = False,
        offset: int = 0,
        gated: bool = True,
        waits: int | None = None,
        also: tuple[int, int] | None = None,
    ) -> None:
        """A step for a local chunk; the arguments are those of `Step`.

        gated: wait for what arrives in the chunk. waits: offset of the tags that arrive; None = `offset`.
        """
        span = self.chunks.span(self.gpu, local)
        first = offset if waits is None else waits
        gates = tuple(self.gate[first + span.start : first + span.stop].tolist()) if gated else ()
        self.steps.append(Step(span, tuple(reads), write, update, offset, gates, also))
        for address, tag in [(write, offset), *([(also[0], offset + also[1])] if also else [])]:
            counted = slice(tag + span.start, tag + span.stop)
            if address >> PEER_BITS:
                self.counts.sent[counted] += 1
            else:
                self.counts.local[counted] += 1
                self.counts.local_weight[counted] += 1

    def plan(self, step_ps: int = 0) -> Plan:
        plan = planned(self.buffers, self.chunks, self.gpu, self.topology, self.regions, step_ps)
        plan.counts, plan.steps = self.counts, self.steps
        return plan
