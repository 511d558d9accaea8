"""Runs whose time windows have any length and begin anywhere, and whose units are called when they did not ask."""

from contextlib import contextmanager

import numpy as np
import pytest

import sim.host.gpu
from sim.hw.request import NEVER
from sim.machine.engine import Status, run_engine
from tracer.compile.jit import compiled

PARTS = 1 << 16
"""Of a probability."""
LENGTHS = (1.0, 0.5, 0.25, 0.0)
"""Lengths of a window as a share of the lookahead; 0 is a clock of the crossbar."""


@contextmanager
def windows(length=None, calls=0.0, seed=1, look=None):
    """Every GPU runs window by window, on one thread.

    Args:
        length: of a window, as a share of the lookahead; None = a new random length for each.
        calls: probability that a unit is called at the begin of a window, which is then the end of the one before.
        look: called with the node after every window.
    """
    drawn = np.array([seed])

    def run(node, team, me, until_ps):
        engine = node.engine[0]
        clocks = int(engine["lookahead_ps"] // engine["grid_ps"])
        chosen = 0 if length is None else max(1, int(length * clocks))
        while True:
            status = _run_windows(node, team, me, until_ps, chosen, clocks, int(calls * PARTS), drawn, look is not None)
            if look is None:
                return status
            look(node)
            if status != Status.UNTIL or until_ps < 0:
                return status

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim.host.gpu, "run_engine", run)
        yield


@compiled
def _run_windows(node, team, me, until_ps, chosen, clocks, calls, drawn, one):
    """Run windows of `chosen` clocks, 0 = of 1 to `clocks`. calls: of PARTS; one: only one window."""
    engine = node.engine[0]
    while True:
        engine.window_ps = (chosen if chosen > 0 else 1 + _draw(drawn) % clocks) * engine.grid_ps
        if calls > 0:
            _call(node, engine.now_ps, calls, drawn)
        status = run_engine(node, team, me, -1)
        if one or status != Status.UNTIL or until_ps < 0:
            return status


@compiled
def _call(node, now_ps, calls, drawn):
    """Call units of a machine in which one will act."""
    first_ps = NEVER
    for k in range(len(node.wake_ps)):
        first_ps = min(first_ps, node.wake_ps[k])
    if first_ps == NEVER:
        return
    for k in range(len(node.wake_ps)):
        if _draw(drawn) % PARTS < calls:
            node.wake_ps[k] = min(node.wake_ps[k], now_ps)
    for queue in range(len(node.dispatch)):
        dispatch = node.dispatch[queue]
        if dispatch.last_cu > 0 and _draw(drawn) % PARTS < calls:
            dispatch.wake_ps = min(dispatch.wake_ps, now_ps)


@compiled
def _draw(drawn):
    """A random number of 31 bits (a linear congruential generator, constants of Knuth's MMIX)."""
    drawn[0] = drawn[0] * 6364136223846793005 + 1442695040888963407
    return (drawn[0] >> 33) & 0x7FFFFFFF


def ways():
    """Arguments of `windows`: all lengths, random lengths, and with calls that no unit asked for."""
    return [{"length": length} for length in LENGTHS] + [{"seed": 3}, {"length": 1.0, "calls": 0.3}, {"calls": 0.1}]


def counters(gpu):
    """Unit -> its counters as bytes."""
    return {unit: records.tobytes() for unit, records in gpu.counted().items()}


def facts(gpu):
    """All counters, the time series and the timeline of a GPU that has come to rest."""
    recorded = dict(vars(gpu.recorded()))
    series = {name: values.tobytes() for name, values in recorded.pop("series").items()}
    return counters(gpu), series, [values.tobytes() for values in recorded.values()], gpu.rest_ps
