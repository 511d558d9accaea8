"""Where the time of a run goes: the engine's time window with each of its phases called, and timed, on its own.

`TimedGpu` runs kernels as `sim.host.gpu.Gpu` does, with the loop of `sim.machine.engine.run_engine` in Python (without
time series and without the check for deadlock). CPU time, for machines are shared. What the call of an empty phase and
the look at the clock cost is measured first and subtracted, so the phases of a window, tens of microseconds each, come
out right to a few percent; what is much shorter than the call itself comes out as nothing.
"""

from collections.abc import Callable
from time import process_time

from sim.host.gpu import Gpu
from sim.hw.noc import noc_answers
from sim.hw.request import NEVER
from sim.machine.build import Node
from sim.machine.engine import (
    Status,
    _next_begin_ps,
    _retry_blocked,
    _run_banks,
    _run_channels,
    _run_cus,
    _run_dispatchers,
    _run_requests,
)
from tracer.compile.jit import compiled

EMPTY_CALLS = 2000


@compiled
def _nothing(node, begin_ps, end_ps):
    return begin_ps


@compiled
def _begin(node):
    return _next_begin_ps(node)


@compiled
def _dispatch(node, begin_ps, end_ps):
    """Place the workgroups of the window. Returns False if the host must bring some first."""
    if not _run_dispatchers(node, end_ps):
        return False
    node.engine[0].now_ps = end_ps
    node.engine[0].windows += 1
    return True


@compiled
def _cus(node, begin_ps, end_ps):
    _run_cus(node, end_ps)
    return NEVER


@compiled
def _requests(node, begin_ps, end_ps):
    return _run_requests(node, begin_ps, end_ps)


@compiled
def _banks(node, begin_ps, end_ps):
    _run_banks(node, end_ps)
    return NEVER


@compiled
def _answers(node, begin_ps, end_ps):
    return noc_answers(node.noc[0], node.fifos, node.pool, begin_ps, end_ps, node.cu_wake_ps)


@compiled
def _channels(node, begin_ps, end_ps):
    _run_channels(node, end_ps)
    return NEVER


@compiled
def _close(node, noc_ps, end_ps):
    """End of a window: when the NoC acts next, and who tries again."""
    node.engine[0].noc_ps = noc_ps
    _retry_blocked(node, end_ps)


PHASES: dict[str, Callable[[Node, int, int], int]] = {
    "CUs, load/store units and L1": _cus,
    "NoC, requests": _requests,
    "L2 banks": _banks,
    "NoC, answers": _answers,
    "HBM channels": _channels,
}
"""In the order of the engine; each returns when its packets go on, NEVER where it has none."""
BETWEEN = "dispatch, next window"


class TimedGpu(Gpu):
    """A GPU that notes where its time goes.

    Attributes:
        phase_s: phase -> seconds spent in it so far.
    """

    def __init__(self, machine):
        super().__init__(machine)
        self.phase_s = dict.fromkeys((*PHASES, BETWEEN), 0.0)
        self._call_s = self._empty_call_s()
        self._resume_ps = -1

    def _empty_call_s(self) -> float:
        _nothing(self.node, 0, 0)
        began_s = ended_s = process_time()
        for _ in range(EMPTY_CALLS):
            _nothing(self.node, 0, 0)
            ended_s = process_time()
        return (ended_s - began_s) / EMPTY_CALLS

    def _run_until(self, until_ps: int) -> Status:
        while True:
            began_s = process_time()
            begin_ps = self._resume_ps if self._resume_ps >= 0 else _begin(self.node)
            if begin_ps == NEVER:
                return Status.IDLE
            end_ps = begin_ps + int(self.node.engine[0]["window_ps"])
            placed = _dispatch(self.node, begin_ps, end_ps)
            self._resume_ps = -1 if placed else begin_ps
            self.phase_s[BETWEEN] += process_time() - began_s - 2 * self._call_s
            if not placed:
                return Status.NEEDS_WORKGROUPS
            self._run_phases(begin_ps, end_ps)

    def _run_phases(self, begin_ps: int, end_ps: int) -> None:
        noc_ps, began_s = NEVER, process_time()
        for name, phase in PHASES.items():
            noc_ps = min(noc_ps, phase(self.node, begin_ps, end_ps))
            now_s = process_time()
            self.phase_s[name] += now_s - began_s - self._call_s
            began_s = now_s
        _close(self.node, noc_ps, end_ps)
        self.phase_s[BETWEEN] += process_time() - began_s - self._call_s
