"""Events of warps with roles: loops whose warps meet at transaction barriers, and bulk copies of tiles.

Each iteration of a loop uses the next turns of a ring of transaction barriers (PTX: mbarrier), one barrier for each
stage of a pipeline. A warp that waits for turn n needs n // stages + 1 phases of its barrier if it waits for data, one
less if it waits for a free stage.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tracer.events import event, join, phase_barrier
from tracer.operators.tile_loop import Tile
from traces.schema import PHASE_ARRIVE, PHASE_WAIT, Bulk, Kind


class Ring(NamedTuple):
    """Transaction barriers `first` to `first` + `stages` - 1."""

    first: int
    stages: int = 1


class Meeting(NamedTuple):
    """Arrivals or waits of a loop at a ring.

    Attributes:
        events: EVENT[n], each with the space PHASE_ARRIVE or PHASE_WAIT, or a bulk copy.
        ring: its barriers.
        turns: of an iteration. turn: of these, the one of the events.
        phases: to wait for, more than those of earlier uses of the stage.
    """

    events: np.ndarray
    ring: Ring
    turns: int = 1
    turn: int = 0
    phases: int = 0


Parts = list[np.ndarray | Meeting]
"""What a loop does in an iteration; parts without a meeting are alike in all iterations."""


def arrival(ring: Ring, arrivals: int, turns: int = 1, turn: int = 0) -> Meeting:
    """A warp tells that it is done. arrivals: of all warps that tell so, in a phase."""
    return Meeting(phase_barrier(PHASE_ARRIVE, arrivals), ring, turns, turn)


def until_done(ring: Ring, turns: int = 1, turn: int = 0) -> Meeting:
    """A warp waits until a turn of a stage is complete."""
    return Meeting(phase_barrier(PHASE_WAIT), ring, turns, turn, 1)


def until_free(ring: Ring, turns: int = 1, turn: int = 0) -> Meeting:
    """A warp waits until the turn before, of the same stage, is complete."""
    return until_done(ring, turns, turn)._replace(phases=0)


def bulk_load(tile: Tile, row_bytes: int) -> np.ndarray:
    """A bulk copy of a tile to shared memory (none if it has no rows). Its barrier and slot are those of a Meeting."""
    return _bulk(Bulk.LOAD, tile, row_bytes)


def bulk_store(tile: Tile, row_bytes: int, slot: int, wait: int, bulk: Bulk = Bulk.STORE) -> np.ndarray:
    """A bulk copy of a tile from shared memory (none if it has no rows). slot, wait: as in the schema."""
    made = _bulk(bulk, tile, row_bytes)
    made["slot"], made["wait"] = slot, wait
    return made


def _bulk(bulk: Bulk, tile: Tile, row_bytes: int) -> np.ndarray:
    made = event(Kind.BULK, 1 if tile.rows > 0 else 0)
    made["space"], made["mask"], made["inner"] = bulk, 1, 255
    made["base"], made["work"], made["stride"], made["row_stride"] = tile[0], tile.rows, row_bytes, tile.pitch_bytes
    return made


def loop(parts: Parts, iterations: int, start: int = 0) -> np.ndarray:
    """Events of the iterations `start` to `start` + `iterations` - 1."""
    if iterations <= 0 or not parts:
        return event(Kind.WAIT, 0)
    made = np.tile(join([part.events if isinstance(part, Meeting) else part for part in parts]), (iterations, 1))
    numbers = np.arange(start, start + iterations)[:, None]
    at = 0
    for part in parts:
        if not isinstance(part, Meeting):
            at += len(part)
            continue
        place = slice(at, at + len(part.events))
        at = place.stop
        turn = part.turns * numbers + part.turn
        made["slot"][:, place] = part.ring.first + turn % part.ring.stages
        if len(part.events) and part.events["kind"][0] == Kind.BULK:
            made["inner"][:, place] = made["slot"][:, place]
        elif len(part.events) and part.events["space"][0] == PHASE_WAIT:
            made["work"][:, place] = turn // part.ring.stages + part.phases
    return made.reshape(-1)


def streamed(parts: Parts, tiles: Sequence[Tile], block: int, rows: int, iterations: int) -> np.ndarray:
    """A loop whose bulk copies walk tensors.

    Args:
        tiles: all rows of the tensor of each bulk copy of an iteration, in their order.
        block: rows from one copy of a tensor to the next. rows: that a copy reads, the last ones only what is left.
    """
    made = loop(parts, iterations)
    copies = made["kind"] == Kind.BULK
    first = np.arange(iterations)[:, None] * block
    addresses = [tile.address + first[:, 0] * tile.pitch_bytes for tile in tiles]
    left = [np.clip(tile.rows - first[:, 0], 0, rows) for tile in tiles]
    made["base"][copies], made["work"][copies] = np.stack(addresses, 1).ravel(), np.stack(left, 1).ravel()
    return made[~copies | (made["work"] > 0)]
