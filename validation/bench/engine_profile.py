"""CPU time of each phase of the engine's time windows. Each phase is called and measured separately.

`TimedGpu` runs kernels like `sim.host.gpu.Gpu`. The engine opens and closes windows. Between, `TimedGpu` calls the
phases of `sim.machine.build.PHASES` one by one from Python. It measures CPU time,
because machines are shared. The cost of calling an empty phase and reading the clock is measured first and subtracted.
The phases of a window take tens of microseconds; their times are right within a few percent. A phase that is much
shorter than the call itself gives about 0.
"""

from time import process_time

from sim.host.gpu import Gpu
from sim.machine.build import phases_of
from sim.machine.engine import Status, close_window, open_window
from tracer.compile.jit import compiled

EMPTY_CALLS = 2000
BETWEEN = "dispatch, next window"


@compiled
def _nothing(node, begin_ps, end_ps):
    return begin_ps


class TimedGpu(Gpu):
    """A GPU that measures the CPU time of its phases.

    Attributes:
        phase_s: phase -> CPU seconds so far.
    """

    def __init__(self, machine):
        super().__init__(machine)
        self._phases = phases_of(self.node)
        self.phase_s = dict.fromkeys([*(phase.title for phase in self._phases), BETWEEN], 0.0)
        self._call_s = self._empty_call_s()

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
            status, begin_ps, end_ps = open_window(self.node, until_ps)
            self._spent(BETWEEN, began_s)
            if status != Status.OPEN:
                return Status(status)
            for phase in self._phases:
                began_s = process_time()
                if phase.spread:
                    phase.run(self.node, 0, len(getattr(self.node, phase.spread)), end_ps)
                else:
                    phase.run(self.node, begin_ps, end_ps)
                self._spent(phase.title, began_s)
            began_s = process_time()
            close_window(self.node, 1)
            self._spent(BETWEEN, began_s)

    def _spent(self, title: str, began_s: float) -> None:
        self.phase_s[title] += process_time() - began_s - self._call_s
