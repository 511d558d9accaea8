"""`t3sim profile`: a profile of PyTorch beside a simulated machine, and what overlap would buy."""

from typing import Any

import click

from sim.presets import load_preset
from sim.scenario.asked import ALL, asked_configurations, check_overlap
from sim.scenario.profile import (
    Compared,
    ProfileResult,
    ProfileScenario,
    compared,
    error_of,
    excess_ns,
    overlapped,
    speedup,
)
from sim.scenario.result import LIBRARY, NVLS, T3, T3_MCA
from sim.verbs.accuracy_option import with_accuracy
from sim.verbs.machine_options import with_machine
from sim.verbs.schedule_run import show_limits, simulate, with_configurations, with_workers
from tracer.models.schedule import Exchange
from tracer.profile.kineto import read_profile
from traces.command.output_format import with_format
from traces.command.tables import Quantity, duration, print_json, print_table, print_text, share
from traces.units import PS_PER_NS, bytes_text, time_text

TODAY = (LIBRARY, NVLS)
"""Configurations that a program can have today. They are always simulated if the machine has them."""
SHOWN = 20
"""Most rows of a table for people; --json has all."""


@click.command()
@click.argument("path", metavar="PROFILE.JSON[.GZ]")
@with_machine("h100_sxm")
@with_configurations(f"{T3}, {T3_MCA}")
@with_accuracy("1%")
@with_workers
@with_format
def profile(
    path: str,
    preset: str,
    overrides: tuple[str, ...],
    overlap: bool,
    chosen: tuple[str, ...],
    accuracy: float,
    workers: int,
    fresh: bool,
    as_json: bool,
) -> None:
    """Measured times of a PyTorch profile beside simulated ones, and what overlap would buy.

    Example: t3sim profile rank0.pt.trace.json.gz --preset h100_sxm

    Example: t3sim profile rank0.pt.trace.json.gz --preset b200 --configuration NVLS --configuration T3 --json

    The profile is of one process, with the shapes of arguments: torch.profiler.profile(record_shapes=True), then
    export_chrome_trace. Each different kernel and collective is simulated once and kept in the store of finished runs.
    Library and NVLS are simulated too, if the machine has them: one of them is what the program does today.
    docs/profiles.md says which operators are known.
    """
    check_overlap(chosen, overlap)
    machine, found = load_preset(preset, overrides), read_profile(path)
    has, asked = asked_configurations((ALL,), machine), asked_configurations(chosen or (T3, T3_MCA), machine)
    today = (name for name in TODAY if name in has and name not in asked)
    scenario = ProfileScenario(machine, found, accuracy, overlap, (*asked, *today))
    done = simulate("profile", scenario, workers, fresh)
    if as_json:
        print_json(profile_dict(done.result) | done.costs())
        return
    show_profile(done.result)
    click.echo(done.costs_text())


def profile_dict(result: ProfileResult) -> dict[str, Any]:
    """Plain values for JSON."""
    return {
        **result.scenario.facts(),
        "excess_ns": _excess_ns(compared(result)),
        "steps": [
            row._asdict() | {"operator_class": str(row.operator_class), "work": work_text(row.work), "error": row.error}
            for row in compared(result)
        ],
        "pairs": [row._asdict() | {"exchange": work_text(row.exchange)} for row in overlapped(result)],
        "speedups": {name: speedup(result, name) for name in result.scenario.shown},
        "not_simulated": [row._asdict() for row in result.scenario.left_out()],
        "not_fused": result.scenario.not_fused,
    }


def show_profile(result: ProfileResult) -> None:
    """Print the tables of a profile."""
    scenario, measured = result.scenario, result.scenario.profile
    print_text(
        f"{scenario.preset.name}: {scenario.preset.title}\n"
        f"{measured.name}: {measured.gpu or 'a GPU without a name'}, {measured.gpus} processes; kernels run "
        f"{time_text(measured.busy_ns * PS_PER_NS)} of {time_text(measured.span_ns * PS_PER_NS)}\n"
    )
    rows, left_out = compared(result), scenario.left_out()
    more_ns = _excess_ns(rows)
    classes: dict[str, list[float]] = {}
    for row in rows:
        sums = classes.setdefault(str(row.operator_class), [0, 0, 0, 0])
        with_excess_ns = row.simulated_ns + (more_ns if row.is_kernel else 0)
        for place, value in enumerate((1, row.measured_ns, row.simulated_ns, with_excess_ns)):
            sums[place] += row.calls * value
    table: list[tuple[object, ...]] = [
        (name, round(calls), _time(measured_ns), share(measured_ns / measured.time_ns), _time(simulated_ns),
         *(_error(error_of(one, measured_ns)) for one in (simulated_ns, with_excess_ns)))
        for name, (calls, measured_ns, simulated_ns, with_excess_ns) in classes.items()
    ]  # fmt: skip
    missing_ns = sum(row.measured_ns for row in left_out)
    table.append(("not simulated", sum(row.calls for row in left_out), _time(missing_ns),
                  share(missing_ns / measured.time_ns), None, None, None))  # fmt: skip
    class_columns = ("class", "calls", "measured", "share", "simulated", "error", "with the excess")
    print_table(f"Kernels: {time_text(measured.time_ns * PS_PER_NS)}", class_columns, table)
    print_text(
        f"Excess: {time_text(more_ns * PS_PER_NS)}. The shortest kernel takes that longer than it is simulated.\n"
    )
    steps = [
        (
            work_text(row.work),
            row.calls,
            _time(row.measured_ns),
            _time(row.simulated_ns),
            _error(row.error),
            row.bound_by,
        )
        for row in rows[:SHOWN]
    ]
    columns = ("kernel or exchange, a call", "calls", "measured", "simulated", "error", "bound by")
    print_table("Longest steps", columns, steps)
    _show_overlap(result)
    missing = [(row.operator, row.calls, _time(row.measured_ns), row.reason) for row in left_out[:SHOWN]]
    if missing:
        print_table("Not simulated", ("operator", "calls", "measured, all", "why"), missing)
    show_limits(scenario)


def _show_overlap(result: ProfileResult) -> None:
    """What overlap would buy, if that is asked for."""
    if not result.scenario.overlap:
        return
    pairs = overlapped(result)
    if not pairs:
        print_text("No GEMM and all-reduce or reduce-scatter of its output that can overlap: overlap buys nothing.")
        return
    names = result.scenario.shown
    print_table(
        "GEMMs and the exchanges of their outputs, a call",
        ("GEMM", "exchange", "calls", "measured", "today", *names),
        [
            (
                *(row.gemm, work_text(row.exchange), row.calls, _time(row.measured_ns), row.today),
                *(_time(row.simulated_ns[name]) for name in names),
            )
            for row in pairs
        ],
    )
    print_table(
        "All kernels of the profile, if these pairs were as in a configuration",
        ("configuration", "time", "speed-up"),
        [
            (name, _time(result.scenario.profile.time_ns / ratio), Quantity(ratio, f"{ratio:.3f}"))
            for name, ratio in ((name, speedup(result, name)) for name in names)
        ],
    )


def _excess_ns(rows: list[Compared]) -> float:
    return excess_ns((row.measured_ns, row.simulated_ns) for row in rows if row.is_kernel)


def work_text(work: str | Exchange) -> str:
    return work if isinstance(work, str) else f"{work.kind} of {bytes_text(work.bytes)}, {work.gpus} GPUs"


def _time(time_ns: float) -> Quantity:
    return duration(time_ns * PS_PER_NS)


def _error(value: float | None) -> Quantity | None:
    return None if value is None else Quantity(value, f"{value:+.1%}")
