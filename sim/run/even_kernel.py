"""Extrapolation of kernels whose workgroups are alike: two shorter kernels stand for a long one (D30).

The workgroups of an operator (`tracer.operators`) do the same on other data, again and again after `period` workgroups.
When L2 is full and the machine has been full of workgroups for a while, time and traffic grow evenly. So the kernel is
simulated twice, up to `first` and up to `second` workgroups, and what the workgroups between the two cost is added for
each further workgroup. Start and end of the kernel are in both runs, and cancel. Both are long enough to fill L2
FILLS times, and to fill the machine WAVES times. If that is most of the kernel, it is simulated whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from sim.counters import is_maximum, totals
from sim.host.gpu import Gpu, Progress
from sim.occupancy import occupancy
from sim.presets import Preset
from sim.run.extrapolation import FROM, OF, whole_numbers
from sim.run.result import KernelResult, RunResult
from tracer.operators.even_kernel import EvenKernel
from tracer.sequence import CommandSequence
from traces.schema import LINE_BYTES
from traces.source import KernelInfo, KernelSource, TraceSource, Workgroup

FILLS, WAVES = 2, 3
"""Least traffic of the first run in sizes of L2, and its least number of workgroups in full machines (assumed)."""
SECOND = 2
"""Length of the second run, in lengths of the first."""
GAIN = 2
"""A kernel is extrapolated if it is at least this many times as long as the two runs together."""


@dataclass(frozen=True)
class Shortened:
    """A kernel without most of its workgroups: it has the first `count` - 1 and the last, which may be incomplete."""

    whole: KernelSource
    count: int

    @property
    def info(self) -> KernelInfo:
        return self.whole.info

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        first = islice(self.whole.workgroups(start), max(0, self.count - 1 - start))
        yield from chain(first, self.whole.workgroups(self.whole.info.workgroups - 1))

    def fingerprint(self) -> str:
        return f"{self.whole.fingerprint()}/{self.count}"


def is_even(source: TraceSource) -> bool:
    """Are all kernels of a trace operators, whose workgroups are alike?"""
    return isinstance(source, CommandSequence) and all(isinstance(kernel, EvenKernel) for kernel in source.commands())


def simulate_even(
    source: TraceSource,
    preset: Preset,
    *,
    flush_l2: bool = True,
    interval_ps: int = 0,
    progress: Progress | None = None,
) -> RunResult:
    """Run the kernels of a trace one after the other, each with an empty L2; extrapolate the long ones.

    Args:
        source: a trace of operators (`is_even`).
        preset: the machine.
        flush_l2: write back L2 after each kernel, so that its counters contain all its writes.
        interval_ps: must be 0, there are no time series.
        progress: called with (kernel, workgroups done, workgroups).

    Returns:
        RunResult. If a kernel was extrapolated it has the figures FROM and OF, sums over the kernels.
    """
    done: list[KernelResult] = []
    simulated, lines, start_ps = 0, 0, preset.machine.dispatch.launch_ps
    kernels = [kernel for kernel in source.commands() if isinstance(kernel, EvenKernel)]
    for kernel in kernels:
        count, counted, length_ps, requests = _measured(kernel, preset, flush_l2, progress)
        done.append(KernelResult(kernel.info.name, start_ps, start_ps + length_ps, counted, totals(counted)))
        simulated, lines = simulated + count, lines + requests
        start_ps = done[-1].end_ps + preset.machine.dispatch.gap_ps
    whole = sum(kernel.info.workgroups for kernel in kernels)
    figures = {FROM: simulated, OF: whole} if simulated < whole else {}
    options = {"kernels": None, "flush_l2": flush_l2, "extrapolate": True}
    result = RunResult(preset, {"trace": source.fingerprint()}, options, done, figures=figures)
    result.line_requests = lines
    return result


def _measured(
    kernel: EvenKernel, preset: Preset, flush_l2: bool, progress: Progress | None
) -> tuple[int, dict[str, np.ndarray], int, int]:
    """Workgroups simulated, counters and time in ps of the whole kernel, line requests simulated."""
    whole = kernel.info.workgroups
    first = first_length(kernel, preset)
    second = SECOND * first + (whole - SECOND * first) % _step(kernel, preset)
    first += (whole - first) % _step(kernel, preset)
    if whole < GAIN * (first + second):
        counted, length_ps, lines = _run(kernel, preset, flush_l2, progress)
        return whole, counted, length_ps, lines
    before, before_ps, lines_before = _run(Shortened(kernel, first), preset, flush_l2, progress)
    after, after_ps, lines_after = _run(Shortened(kernel, second), preset, flush_l2, progress)
    share = (whole - second) / (second - first)
    counted = {unit: extended(before[unit], after[unit], share) for unit in after}
    return first + second, counted, after_ps + round(share * (after_ps - before_ps)), lines_before + lines_after


def first_length(kernel: EvenKernel, preset: Preset) -> int:
    """Least number of workgroups of the first run."""
    per_workgroup = int(LINE_BYTES * kernel.line_requests / kernel.info.workgroups)
    fill = -(-FILLS * preset.machine.l2.bytes // max(1, per_workgroup))
    return max(fill, WAVES * _wave(kernel, preset), 2 * kernel.period)


def _wave(kernel: EvenKernel, preset: Preset) -> int:
    """Workgroups that the machine holds at once."""
    cu, info = preset.machine.cu, kernel.info
    fit = occupancy(cu, int(np.prod(info.block)), info.registers, info.shared_bytes)
    return cu.count * fit.workgroups


def _step(kernel: EvenKernel, preset: Preset) -> int:
    """Runs differ by multiples of this, so that they end alike: whole periods, or whole waves."""
    return kernel.period if kernel.period > 1 else _wave(kernel, preset)


def _run(
    kernel: KernelSource, preset: Preset, flush_l2: bool, progress: Progress | None
) -> tuple[dict[str, np.ndarray], int, int]:
    """Counters, time in ps and line requests of a kernel on an idle machine."""
    gpu = Gpu(preset.machine)
    start_ps = preset.machine.dispatch.launch_ps
    end_ps = gpu.run_kernel(kernel, start_ps, progress)
    if flush_l2:
        gpu.flush_l2()
    return gpu.counted(), end_ps - start_ps, int(gpu.node.lsus["line_requests"].sum())


def extended(before: np.ndarray, after: np.ndarray, share: float) -> np.ndarray:
    """Counters after the longer run and `share` times the difference of the two runs; maxima stay unchanged."""
    whole = after.copy()
    for name in after.dtype.names or ():
        if not is_maximum(name):
            whole[name] += whole_numbers((after[name] - before[name]) * share)
    return whole
