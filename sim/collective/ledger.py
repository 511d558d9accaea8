"""The ledger: a proof, after every run, that each byte went to its planned place exactly once.

During the run each tile counts bytes. It also sums fingerprints of their sectors, in any order, each times the weight
of its contributors: the GPUs of an arrival, or the share of the sum (split-K) in a kernel's store. After the run the
ledger compares these sums with the plan's sums, and the Tracker's wavefront counters with their thresholds. So it
detects, for any plan, a sector that came twice, did not come, came to a wrong place or came from a wrong GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.collective.plans import Plan
from sim.collective.space import make_wavefronts
from sim.hw.request import LINE_BYTES, SECTOR_BYTES

SIDES = ("local", "arrived", "sent")
MESSAGES = 5
"""Largest number of faults that the message names."""


@dataclass(frozen=True)
class Verdict:
    """The result of the ledger over all GPUs.

    Attributes:
        exactly_once: True: no fault.
        wrong: the faults, in words.
        tiles: number of final tiles, over all GPUs.
    """

    exactly_once: bool
    wrong: tuple[str, ...]
    tiles: int


def sector_sums(tiles: np.ndarray) -> np.ndarray:
    """Sum of the fingerprints of all sectors of each tile, i8 [tiles], modulo 2^64, without weights."""
    sums = np.zeros(len(tiles), np.int64)
    known: dict[tuple[int, ...], int] = {}
    for k, tile in enumerate(tiles):
        shape = tuple(int(tile[name]) for name in ("runs", "run_bytes", "pitch_bytes"))
        key = (*shape, int(tile["address"]) % LINE_BYTES)
        if key not in known:
            known[key] = _shape_sum(*key)
        sums[k] = known[key]
    return sums


def _shape_sum(runs: int, run_bytes: int, pitch_bytes: int, offset: int) -> int:
    """Sum of the fingerprints of a tile that begins `offset` bytes into a line."""
    total = 0
    for run in range(runs):
        first = offset + run * pitch_bytes
        sectors = np.arange(first // SECTOR_BYTES, -(-(first + run_bytes) // SECTOR_BYTES), dtype=np.uint64)
        total += int(_mix(sectors).sum(dtype=np.uint64))
    total %= 1 << 64
    return total - (1 << 64 if total >> 63 else 0)


def _mix(keys: np.ndarray) -> np.ndarray:
    """splitmix64, the hash of `sim.hw.space.fingerprint`."""
    z = (keys + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def close(plans: Sequence[Plan], ran: Sequence[np.ndarray], wavefronts: Sequence[np.ndarray]) -> Verdict:
    """Compare the records after a run with the plans.

    Args:
        plans: plans of the simulated GPUs.
        ran: their TILE records after the run.
        wavefronts: their WAVEFRONT records after the run.
    """
    wrong: list[str] = []
    final = 0
    for plan, tiles, counters in zip(plans, ran, wavefronts, strict=True):
        final += int(plan.counts.final.sum())
        wrong += _faults(plan, tiles)
        wrong += _wavefront_faults(plan, counters)
    return Verdict(not wrong, tuple(wrong[:MESSAGES]), final)


def _faults(plan: Plan, tiles: np.ndarray) -> list[str]:
    found = []
    sums, counts = sector_sums(plan.tiles), plan.counts
    weights = {"local": counts.local_weight, "arrived": counts.arrived_weight, "sent": counts.sent}
    for side in SIDES:
        times = getattr(counts, side)
        found += _where(plan, tiles[f"{side}_bytes"] != times * plan.tiles["bytes"], f"{side} bytes")
        with np.errstate(over="ignore"):
            found += _where(plan, tiles[f"{side}_sum"] != weights[side] * sums, f"{side} sectors")
    found += _where(plan, tiles["triggers"] != counts.triggers, "triggers")
    found += _where(plan, tiles["arrived"] != counts.contributors, "contributors")
    found += _where(plan, tiles["early"] > 0, "sent on before all had come")
    return found


def _wavefront_faults(plan: Plan, ran: np.ndarray) -> list[str]:
    """Faults of wavefront counters. Each must reach its threshold once, with the contributors of its tile."""
    planned = make_wavefronts(plan.tiles)["threshold_bytes"]
    if not planned.size:
        return []
    given = (planned > 0) & (ran["arrived"] != plan.counts.contributors[:, None])
    found = _where(plan, (ran["counted_bytes"] != planned).any(axis=1), "bytes of wavefronts")
    found += _where(plan, (ran["triggers"] != (planned > 0)).any(axis=1), "triggers of wavefronts")
    return found + _where(plan, given.any(axis=1), "contributors of wavefronts")


def _where(plan: Plan, wrong: np.ndarray, what: str) -> list[str]:
    if not wrong.any():
        return []
    tag = int(np.argmax(wrong))
    buffer, tile = plan.place(tag)
    named = f" in {buffer}" if len(plan.buffers) > 1 else ""
    return [f"GPU {plan.gpu}: {what} of {int(wrong.sum())} tiles, the first is {tile}{named}"]
