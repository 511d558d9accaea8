"""Replay the commands of a trace on one GPU and collect the results."""

from collections.abc import Callable, Sequence

from sim.counters import difference, take, totals
from sim.gpu import Gpu
from sim.line_trace import line_of
from sim.presets import Preset
from sim.results import KernelResult, Results
from traces.errors import UserError
from traces.source import KernelSource, Prefill, TraceSource

Progress = Callable[[str, int, int], None]


def simulate(
    source: TraceSource,
    preset: Preset,
    *,
    kernels: Sequence[int] | None = None,
    flush_l2: bool = True,
    interval_ps: int = 0,
    progress: Progress | None = None,
    line_trace: Callable[[str], None] | None = None,
) -> Results:
    """Replay a trace: kernels in program order, one after the other (D19).

    Args:
        source: the trace; see `traces.source.TraceSource`.
        preset: the machine (`sim.presets.load_preset`).
        kernels: numbers of the kernels to run, counted from 0; None = all.
        flush_l2: write back and empty L2 after every kernel; else it keeps what it holds.
        interval_ps: of the time series, 0 = none.
        progress: called with (kernel, workgroups done, workgroups).
        line_trace: called with one line of text per time window.

    Returns:
        Results, one KernelResult per kernel.

    Raises:
        UserError: a kernel that does not fit the machine, a kernel number that is not there, a deadlock.
    """
    gpu = Gpu(preset.machine, interval_ps, (lambda node: line_trace(line_of(node))) if line_trace else None)
    done: list[KernelResult] = []
    start_ps, number = preset.machine.dispatch.launch_ps, 0
    for command in source.commands():
        if isinstance(command, Prefill):
            gpu.prefill(command.address, command.bytes)
            continue
        if kernels is None or number in kernels:
            done.append(_run_one(gpu, command, start_ps, flush_l2, progress))
            start_ps = max(done[-1].end_ps + preset.machine.dispatch.gap_ps, gpu.now_ps)
        number += 1
    _check_all_found(kernels, number)
    options = {"kernels": None if kernels is None else sorted(kernels), "flush_l2": flush_l2}
    series = gpu.series() if interval_ps else {}
    return Results(preset, source.fingerprint(), options, done, interval_ps, series)


def _run_one(gpu: Gpu, kernel: KernelSource, start_ps: int, flush_l2: bool, progress: Progress | None) -> KernelResult:
    before = {unit: take(unit, records) for unit, records in gpu.counters().items()}
    end_ps = gpu.run_kernel(kernel, start_ps, progress)
    if flush_l2:
        gpu.flush_l2()
    after = {unit: take(unit, records) for unit, records in gpu.counters().items()}
    units = {unit: difference(after[unit], before[unit]) for unit in after}
    return KernelResult(kernel.info.name, start_ps, end_ps, units, totals(units))


def _check_all_found(kernels: Sequence[int] | None, count: int) -> None:
    missing = sorted(number for number in kernels or () if not 0 <= number < count)
    if missing:
        raise UserError(f"kernels: found {missing[0]}, allowed are 0 to {count - 1}: the trace has {count} kernels")
