"""The report of a machine in which nothing can move: the waiting warps and the fifos that are not empty."""

from collections.abc import Sequence

import numpy as np

from sim.hw.warp import ON_BARRIER, ON_LSU, ON_SLOTS, ON_TRACKER
from sim.machine.build import Node
from traces.errors import UserError

FIFOS_TOLD = 8
"""Largest number of non-empty fifos that the report names."""


class DeadlockError(UserError):
    """Workgroups are left but nothing is done. Causes: a barrier that not all warps reach, or too small fifos."""


NOTHING_MOVES = "nothing can move"


def deadlock(node: Node, fifo_names: Sequence[str], what: str, fact: str = NOTHING_MOVES) -> DeadlockError:
    """The error. It reports where warps wait and which fifos are not empty. fact: what was noticed."""
    fifos, now_ps = node.fifos, int(node.engine[0]["now_ps"])
    fill = fifos["tail"] - fifos["head"]
    held = [f"{fifo_names[k]} {fill[k]} of {fifos[k]['limit']}" for k in np.flatnonzero(fill)[:FIFOS_TOLD]]
    states = np.bincount(node.warps["warp"]["state"].ravel(), minlength=ON_TRACKER + 1)
    left = int((node.dispatch["staged"] - node.dispatch["finished"]).sum())
    waiting = (
        f"for data {states[ON_SLOTS]}, at barriers {states[ON_BARRIER]}, for the load/store unit {states[ON_LSU]}, "
        f"for the Tracker {states[ON_TRACKER]}"
    )
    return DeadlockError(
        f"{what}: {fact} at {now_ps} ps with {left} workgroups left; warps waiting {waiting}; "
        f"fifos not empty: {', '.join(held) or 'none'}"
    )
