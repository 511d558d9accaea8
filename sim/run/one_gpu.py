"""Replay the commands of a trace on one GPU and collect the results."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sim.counters import difference, totals
from sim.host.checkpoint import Checkpoint
from sim.host.gpu import Gpu, Pause
from sim.machine.line_trace import line_of
from sim.presets import Preset
from sim.results import KernelResult, Results
from sim.run.standing import Standing, content_of, standing_of
from tracer.compile.fingerprint import source_fingerprint
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
    checkpoint: Checkpoint | None = None,
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
        checkpoint: where to keep how far it is; if there is such a file the run goes on from there, and its results
            are the same to the last bit. The caller removes it when the results are safe.

    Returns:
        Results, one KernelResult per kernel.

    Raises:
        UserError: a kernel that does not fit the machine, a kernel number that is not there, a deadlock, the
            checkpoint of another run.
    """
    gpu = Gpu(preset.machine, interval_ps, (lambda node: line_trace(line_of(node))) if line_trace else None)
    options = {"kernels": None if kernels is None else sorted(kernels), "flush_l2": flush_l2}
    identity = _identity(source, preset, options | {"interval_ps": interval_ps}) if checkpoint else {}
    saved = checkpoint.open(identity, standing_of) if checkpoint else None
    done = saved.done if saved else []
    start_ps, number = preset.machine.dispatch.launch_ps, 0
    for command in source.commands():
        if isinstance(command, Prefill):
            if saved is None:
                gpu.prefill(command.address, command.bytes)
            continue
        if (kernels is None or number in kernels) and (saved is None or number == saved.kernel):
            standing = saved or Standing(number, start_ps, gpu.counted(), done)
            done.append(_run_one(gpu, command, standing, flush_l2, progress, checkpoint))
            start_ps, saved = max(done[-1].end_ps + preset.machine.dispatch.gap_ps, gpu.now_ps), None
        number += 1
    _check_all_found(kernels, number)
    series = gpu.series() if interval_ps else {}
    return Results(preset, source.fingerprint(), options, done, interval_ps, series)


def _identity(source: TraceSource, preset: Preset, options: dict[str, Any]) -> dict[str, Any]:
    """All that decides the results of a run, as plain values."""
    code = source_fingerprint(__name__, Path(__file__).resolve())
    machine = {"name": preset.name, **preset.values()}
    return {"code": code, "machine": machine, "trace": source.fingerprint(), "options": options}


def _run_one(
    gpu: Gpu,
    kernel: KernelSource,
    standing: Standing,
    flush_l2: bool,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> KernelResult:
    """Run a kernel from its launch, or from where it stands."""

    def pause() -> None:
        if checkpoint and checkpoint.due():
            checkpoint.write(content_of(standing, gpu.state()))

    end_ps = gpu.run_kernel(kernel, standing.start_ps, progress, Pause(pause) if checkpoint else None, standing.gpu)
    if flush_l2:
        gpu.flush_l2()
    after = gpu.counted()
    units = {unit: difference(after[unit], standing.before[unit]) for unit in after}
    return KernelResult(kernel.info.name, standing.start_ps, end_ps, units, totals(units))


def _check_all_found(kernels: Sequence[int] | None, count: int) -> None:
    missing = sorted(number for number in kernels or () if not 0 <= number < count)
    if missing:
        raise UserError(f"kernels: found {missing[0]}, allowed are 0 to {count - 1}: the trace has {count} kernels")
