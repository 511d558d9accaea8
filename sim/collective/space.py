"""Address-space configuration of one GPU's output: regions of tiles, each mapped somewhere, checked before the run.

A plan for N GPUs is N lists of regions. `check_regions` follows every partial sum from the GPU that makes it to the
GPU that keeps it and refuses a plan in which one is lost, counted twice, or waits for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sim.collective.topology import AnyTopology, port_to
from sim.hw.request import LINE_BYTES, NEVER, SECTOR_BYTES, Op
from sim.hw.space import GATE, SPACE, TILE, WAVEFRONT, Map
from sim.spec import Granularity, Machine
from traces.errors import UserError


@dataclass(frozen=True)
class Region:
    """A run of output tiles and where stores into it go.

    Attributes:
        first, end: tiles of the run, in global order.
        map: local, remote (remote_map), dma (dma_map) or final.
        to: how many GPUs ahead the receiver is (remote, dma).
        updates: updates that each byte gets here before the trigger: this GPU's own and those that arrive (dma, final).
        op: what the DMA engine does at the receiver.
        chunk: number that DMA policy `chunk` releases together.
        granularity: what is sent on at once (dma): a tile, or each wavefront's part of it.
    """

    first: int
    end: int
    map: Map
    to: int = 0
    updates: int = 0
    op: Op = Op.UPDATE
    chunk: int = 0
    granularity: Granularity = Granularity.WORKGROUP


def make_tiles(output: np.ndarray) -> np.ndarray:
    """TILE records, all local, of OUTPUT_TILE records in global order.

    Raises:
        UserError: tiles that share a sector, so that bytes could not be counted.
    """
    tiles = np.zeros(len(output), TILE)
    for name in ("address", "runs", "run_bytes", "pitch_bytes", "parts"):
        tiles[name] = output[name]
    for name in ("address", "pitch_bytes"):
        ragged = tiles[name] % SECTOR_BYTES != 0
        if (ragged & ((name == "address") | (tiles["runs"] > 1))).any():
            found = int(tiles[name][np.argmax(ragged)])
            raise UserError(
                f"output tile {name}: found {found}, allowed are multiples of {SECTOR_BYTES}: tiles must not share "
                "sectors; pad the leading dimension of C"
            )
    tiles["bytes"] = tiles["runs"] * -(-tiles["run_bytes"] // SECTOR_BYTES) * SECTOR_BYTES
    tiles["gate"] = -1
    return tiles


def map_regions(tiles: np.ndarray, regions: Sequence[Region], topology: AnyTopology, gpus: int) -> None:
    """Write regions into TILE records.

    Raises:
        UserError: regions that overlap or leave the output, a receiver that no link leads to.
    """
    taken = np.full(len(tiles), -1)
    for number, region in enumerate(regions):
        if not 0 <= region.first <= region.end <= len(tiles):
            raise UserError(f"region {number}: tiles {region.first} to {region.end}, allowed are 0 to {len(tiles)}")
        span = slice(region.first, region.end)
        if (taken[span] >= 0).any():
            other = int(taken[span].max())
            raise UserError(f"region {number}: tiles {region.first} to {region.end} overlap region {other}")
        taken[span] = number
        tiles["map"][span], tiles["op"][span], tiles["chunk"][span] = region.map, region.op, region.chunk
        tiles["granularity"][span] = region.granularity
        if region.map in (Map.REMOTE, Map.DMA):
            tiles["port"][span] = port_to(topology, gpus, region.to)
        if region.map in (Map.DMA, Map.FINAL):
            tiles["threshold_bytes"][span] = tiles["bytes"][span] * region.updates


def make_wavefronts(tiles: np.ndarray) -> np.ndarray:
    """WAVEFRONT [tiles, wavefronts]: their parts of tiles that regions were written into, and the thresholds.

    Empty where no tile is tracked.
    """
    if not tiles["threshold_bytes"].any():
        return np.zeros((len(tiles), 0), WAVEFRONT)
    found = np.zeros((len(tiles), int(tiles["parts"]["warps"].max())), WAVEFRONT)
    known: dict[bytes, np.ndarray] = {}
    for tile, row in zip(tiles, found, strict=True):
        shape = tile[["runs", "run_bytes", "parts"]].tobytes()
        if shape not in known:
            known[shape] = _cut_by_wavefront(tile, len(row))
        row[:] = known[shape]
    updates = tiles["threshold_bytes"] // tiles["bytes"]
    found["threshold_bytes"] = found["bytes"] * updates[:, None]
    return found


def _cut_by_wavefront(tile: np.void, wavefronts: int) -> np.ndarray:
    """WAVEFRONT [wavefronts]: the parts of one tile, cut off at the edge of the output."""
    found = np.zeros(wavefronts, WAVEFRONT)
    cuts = np.zeros(wavefronts, np.int64)
    parts, runs, run_bytes = tile["parts"], int(tile["runs"]), int(tile["run_bytes"])
    height, width = int(parts["runs"]), int(parts["bytes"])
    for band in range(-(-runs // height)):
        for piece in range(-(-run_bytes // width)):
            number = int((band * parts["run_step"] + piece * parts["byte_step"]) % parts["warps"])
            part = found[number]
            part["first_run"], part["runs"] = band * height, min(height, runs - band * height)
            part["first_byte"], part["run_bytes"] = piece * width, min(width, run_bytes - piece * width)
            part["bytes"] += part["runs"] * -(-part["run_bytes"] // SECTOR_BYTES) * SECTOR_BYTES
            cuts[number] += 1
    found["runs"][cuts > 1] = 0
    return found


def check_regions(plans: Sequence[Sequence[Region]], tiles: int) -> None:
    """Follow every partial sum through a plan of all GPUs.

    Raises:
        UserError: a sum that is lost, doubled or never complete; names GPU and tile.
    """
    gpus = len(plans)
    if gpus < 2:
        raise UserError(f"gpus: found {gpus}, allowed is 2 and more: a collective needs two")
    edges = sorted(
        {0, tiles, *(edge for regions in plans for region in regions for edge in (region.first, region.end))}
    )
    for first, _ in pairwise(edges):
        if first < tiles:
            _check_tile([_region_at(regions, first) for regions in plans], first)


def _region_at(regions: Sequence[Region], tile: int) -> Region | None:
    return next((region for region in regions if region.first <= tile < region.end), None)


def _check_tile(regions: Sequence[Region | None], tile: int) -> None:
    """One tile on all GPUs: sums flow along remote and dma maps and must meet, each once, where it is final."""
    gpus = len(regions)
    arrivals: list[list[int]] = [[] for _ in range(gpus)]
    for gpu, region in enumerate(regions):
        if region is None or region.map not in (Map.REMOTE, Map.DMA, Map.FINAL):
            raise UserError(f"plan: GPU {gpu} keeps its part of tile {tile} to itself: the sum would lose it")
        if region.map != Map.FINAL:
            arrivals[(gpu + region.to) % gpus].append(gpu)
    finals = [gpu for gpu, region in enumerate(regions) if region is not None and region.map == Map.FINAL]
    if len(finals) != 1:
        raise UserError(f"plan: tile {tile} is final on GPUs {finals}, allowed is exactly one")
    reached: set[int] = set()
    front = [finals[0]]
    while front:
        gpu = front.pop()
        reached.add(gpu)
        region = regions[gpu]
        assert region is not None
        if region.map == Map.REMOTE and arrivals[gpu]:
            raise UserError(
                f"plan: GPU {gpu} maps tile {tile} away, so what arrives for it from GPUs {arrivals[gpu]} would be lost"
            )
        expected = 1 + len(arrivals[gpu])
        if region.map != Map.REMOTE and region.updates != expected:
            raise UserError(
                f"plan: GPU {gpu} waits for {region.updates} updates of tile {tile}, but {expected} come: "
                + ("it would wait for ever" if region.updates > expected else "it would send too early")
            )
        front.extend(arrivals[gpu])
    if len(reached) != gpus:
        lost = sorted(set(range(gpus)) - reached)
        raise UserError(f"plan: the sums of GPUs {lost} never reach the final tile {tile}: they go in a circle")


def output_space(tiles: np.ndarray, gpus: int) -> np.ndarray:
    """SPACE record: the range of addresses that the tiles lie in."""
    space = np.zeros(1, SPACE)
    last = tiles["address"] + (tiles["runs"] - 1) * tiles["pitch_bytes"] + tiles["run_bytes"]
    space["first_byte"] = tiles["address"].min() // LINE_BYTES * LINE_BYTES
    space["end_byte"] = -(-last.max() // LINE_BYTES) * LINE_BYTES
    space["gpus"], space["set_mask"] = gpus, (1 << gpus) - 1
    return space


def check_tracker(machine: Machine, tiles: np.ndarray) -> None:
    """Refuse a Tracker that cannot follow the kernel. tiles: TILE with regions written into them.

    Raises:
        UserError: names the field, its value and what is needed.
    """
    tracker, warps = machine.tracker, int(tiles["parts"]["warps"].max())
    if tracker.wavefronts < warps:
        raise UserError(
            f"tracker.wavefronts: found {tracker.wavefronts}, but workgroups have {warps} wavefronts that each need a "
            "counter: the Tracker is too small to make progress"
        )
    wavefronts = make_wavefronts(tiles)
    most = int(wavefronts["threshold_bytes"].max(initial=0))
    if most > 1 << tracker.counter_bits:
        raise UserError(
            f"tracker.counter_bits: found {tracker.counter_bits}, but a wavefront waits for {most} bytes of updates: "
            f"allowed are {(most - 1).bit_length()} and more"
        )
    by_wavefront = wavefronts[(tiles["map"] == Map.DMA) & (tiles["granularity"] == Granularity.WAVEFRONT)]
    if ((by_wavefront["bytes"] > 0) & (by_wavefront["runs"] == 0)).any():
        raise UserError(
            "tracker.granularity: found wavefront, but a wavefront of this kernel stores rows here and there of a tile "
            "(epilogue staged), which no DMA descriptor can name; allowed is workgroup, or the epilogue direct"
        )


def make_gates(needed_bytes: Sequence[int], delay_ps: int) -> np.ndarray:
    """Closed gates. Those that need nothing are not made: a workgroup without one has gate -1."""

    gates = np.zeros(len(needed_bytes), GATE)
    gates["needed_bytes"], gates["delay_ps"], gates["open_ps"] = needed_bytes, delay_ps, NEVER
    return gates
