"""Runs whose time windows have any length and begin anywhere, and whose units are called when they did not ask."""

from contextlib import contextmanager

import numpy as np
import pytest

import sim.host.gpu
from sim.hw.request import NEVER
from sim.machine.engine import Status, run_engine

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
    random = np.random.default_rng(seed)

    def run(node, team, me, until_ps):
        engine = node.engine[0]
        clocks = int(engine["lookahead_ps"] // engine["grid_ps"])
        while True:
            chosen = int(random.integers(1, clocks + 1)) if length is None else max(1, int(length * clocks))
            engine["window_ps"] = chosen * engine["grid_ps"]
            if calls and node.wake_ps.min() < NEVER:
                _call(node.wake_ps, engine["now_ps"], random.random(len(node.wake_ps)) < calls)
                launched = node.dispatch["last_cu"] > 0
                _call(node.dispatch["wake_ps"], engine["now_ps"], launched & (random.random(len(launched)) < calls))
            status = run_engine(node, team, me, -1)
            if look:
                look(node)
            if status != Status.UNTIL or until_ps < 0:
                return status

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim.host.gpu, "run_engine", run)
        yield


def _call(wake_ps, now_ps, chosen):
    wake_ps[chosen] = np.minimum(wake_ps[chosen], now_ps)


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
