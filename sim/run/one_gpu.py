"""Replay the commands of a trace on one GPU and collect the results."""

from collections.abc import Callable, Sequence

from sim.counters import difference, totals
from sim.host.gpu import Gpu, Progress
from sim.host.state import SavePoints
from sim.machine.line_trace import line_of
from sim.presets import Preset
from sim.run.extrapolation import Part, Watch, extended, figures_of, part_of, watch_of
from sim.run.result import KernelResult, RunResult
from sim.run.sequence_state import SequenceState, content_of, sequence_of
from traces.errors import UserError
from traces.source import KernelSource, Prefill, TraceSource, read_for_warnings


def simulate(
    source: TraceSource,
    preset: Preset,
    *,
    kernels: Sequence[int] | None = None,
    flush_l2: bool = True,
    interval_ps: int = 0,
    progress: Progress | None = None,
    line_trace: Callable[[str], None] | None = None,
    save_points: SavePoints | None = None,
    accuracy: float = 0.0,
) -> RunResult:
    """Replay a trace on one GPU: kernels in program order, one after the other (D19).

    Args:
        source: the trace; see `traces.source.TraceSource`.
        preset: the machine (`sim.presets.load_preset`).
        kernels: numbers of the kernels to run, counted from 0, each once; None = all.
        flush_l2: write back and empty L2 after every kernel; else L2 keeps its lines.
        interval_ps: of the time series, 0 = none.
        progress: called with (kernel, workgroups done, workgroups).
        line_trace: called with one line of text per time window.
        save_points: where the state can be saved; a resumed run gives the same results to the last bit.
        accuracy: largest relative error of time that the run may state; long kernels are simulated in part
            (`sim.run.extrapolation`), and no state is saved. 0 = all is simulated.

    Returns:
        RunResult, one KernelResult per kernel; `sim.run.run.Run.signed` adds input and options.

    Raises:
        UserError: a kernel that does not fit the machine, kernel numbers as `check_numbers`, a deadlock.
    """
    _check_chosen(kernels)  # before the simulation; how many kernels there are is known after it
    gpu = Gpu(preset.machine, interval_ps, (lambda node: line_trace(line_of(node))) if line_trace else None)
    saved = sequence_of(save_points.state) if save_points and save_points.state else None
    done = saved.done if saved else []
    start_ps, number = preset.machine.dispatch.launch_ps, 0
    parts: list[Part] = []
    for command in source.commands():
        if isinstance(command, Prefill):
            if saved is None:
                gpu.prefill(command.address, command.bytes)
            continue
        chosen = kernels is None or number in kernels
        if chosen and saved and number < saved.kernel:
            read_for_warnings(source, command)
        elif chosen:
            sequence = saved or SequenceState(number, start_ps, gpu.counted(), done)
            watch = watch_of(gpu, command, sequence.start_ps, accuracy)
            found = _run_one(gpu, command, sequence, flush_l2, progress, None if accuracy else save_points, watch)
            start_ps, saved = max(found.end_ps + preset.machine.dispatch.gap_ps, gpu.rest_ps), None
            parts.append(part_of(found, command, gpu, watch))
            done.append(extended(parts))
        number += 1
    check_numbers(kernels, number)
    result = RunResult(preset, {}, {}, done, figures=figures_of(parts))
    if done and not accuracy:
        result.kernel_ps = int(gpu.node.cus["last_exit_ps"].max())
    result.line_requests = int(gpu.node.lsus["line_requests"].sum())
    if interval_ps:
        result.interval_ps = interval_ps
        result.keep(gpu.recorded())
    return result


def _run_one(
    gpu: Gpu,
    kernel: KernelSource,
    sequence: SequenceState,
    flush_l2: bool,
    progress: Progress | None,
    save_points: SavePoints | None,
    watch: Watch | None,
) -> KernelResult:
    """Run a kernel from its launch, or from its saved state; with a watch, perhaps without its middle."""

    def offer_state() -> None:
        if save_points:
            save_points.act(lambda: content_of(sequence, gpu.state()))

    between_windows = watch.look if watch else offer_state if save_points else None
    source = watch.kernel if watch else kernel
    end_ps = gpu.run_kernel(source, sequence.start_ps, progress, between_windows, sequence.gpu)
    if flush_l2:
        gpu.flush_l2()
    after = gpu.counted()
    units = {unit: difference(after[unit], sequence.before[unit]) for unit in after}
    return KernelResult(kernel.info.name, sequence.start_ps, end_ps, units, totals(units))


def check_numbers(kernels: Sequence[int] | None, count: int) -> None:
    """Refuse numbers that name no kernel.

    Args:
        kernels: the numbers, counted from 0; None = all.
        count: kernels of the trace.

    Raises:
        UserError: no number, one twice, one that the trace does not have.
    """
    _check_chosen(kernels)
    missing = sorted(number for number in kernels or () if not 0 <= number < count)
    if missing:
        raise UserError(f"kernels: found {missing[0]}, allowed are 0 to {count - 1}: the trace has {count} kernels")


def _check_chosen(kernels: Sequence[int] | None) -> None:
    if kernels is not None and (not kernels or len(set(kernels)) < len(kernels)):
        raise UserError(f"kernels: found {list(kernels)}, allowed are one number or more, each once")
