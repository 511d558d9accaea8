"""`t3sim show`: print a results archive."""

from typing import Any

import click

from sim import results
from sim.counters import COUNTERS, unit_of_measure
from sim.energy import DEFAULT, Energy, energy_of, energy_presets, load_energy
from sim.results import EXTRAPOLATED, Failure, ResultsArchive, ResultsError, RunResult
from sim.run.result import AT_ONCE
from sim.run.shares import bounded_by, peak_tera_flop_per_s, shares, tera_flop_per_s
from sim.scenario.archive import is_scenario
from sim.scenario.result import COLUMN
from sim.view.command_text import again, command_of
from sim.view.counter_names import NAMES, TITLES, formula
from sim.view.energy_tables import configuration_energies, show_energies, show_energy
from sim.view.heading import evidence_text, run_heading, runs_heading
from sim.view.scenario_tables import show_scenario
from tracer.elf.names import short_name
from traces.command.output_format import with_format
from traces.command.tables import duration, print_json, print_table, print_text, print_warnings, share
from traces.errors import UserError
from traces.units import ps_to_ns

COLUMNS = (
    *("failure", "preset", "time_ns", "dram_read_sectors", "dram_write_sectors", "l2_hit_rate"),
    f"{EXTRAPOLATED}from_workgroups",
)
"""Columns of `runs_frame` in the table of several runs, after the swept fields; the speed-ups of scenarios follow."""


@click.command()
@click.argument("result", type=click.Path())
@click.option("--run", "number", type=int, help="Number of the run, counted from 0, if there are several.")
@click.option(
    "--unit",
    help=f"All counters of one unit that the run has ({', '.join(COUNTERS)}), summed over its instances.",
)
@click.option("--names", type=click.Choice(list(NAMES)), help="Counters under the names of another tool, per kernel.")
@click.option("--energy", metavar="NAME", help=f"Energy by unit: {', '.join(energy_presets())}, or a .toml file.")
@with_format
def show(
    result: str, number: int | None, unit: str | None, names: str | None, energy: str | None, as_json: bool
) -> None:
    """Show the results archive RESULT: time, traffic, hit rates and kernels; for several runs, a table.

    Example: t3sim show result.h5 --unit hbm

    Example: t3sim show result.h5 --names nsight

    Example: t3sim show result.h5 --energy hbm2_12nm

    For an archive of t3sim t3, --energy without --run compares the configurations.
    """
    if sum(map(bool, (unit, names, energy))) > 1:
        raise UserError("show: --unit, --names and --energy print different tables: give one of them")
    archive = results.open(result)
    shown = [run for place, run in archive.results() if number in (None, place)]
    print_warnings(dict.fromkeys(line for run in shown for line in run.warnings))
    if len(archive.runs) != 1 and number is None:
        if energy and is_scenario(archive):
            energies = _scenario_energies(archive, energy)
            if as_json:
                print_json({"energy": {name: spent.as_dict() for name, spent in energies.items()}})
            else:
                show_energies(energies, (run for _, run in archive.results()))
            return
        if unit or names or energy:
            raise UserError(f"{result}: holds {len(archive.runs)} runs: choose one with --run")
        _show_runs(archive, as_json)
        return
    run = archive.run(number or 0)
    if not run.kernels and (unit or names or energy):
        raise UserError(f"{result}: run {number or 0} has no kernels, therefore no counters")
    if names:
        _show_names(run, names, as_json)
    elif unit:
        _show_unit(run, unit, as_json)
    elif as_json:
        print_json(results_dict(run, energy or DEFAULT))
    elif energy:
        show_energy(run_energy(run, energy))
    else:
        show_results(run)
        print_text("\n".join([*_origin(archive, run), f"written by {run.writer}"]))


def _origin(archive: ResultsArchive, run: RunResult) -> list[str]:
    """Lines that say how the result was made: its trace, and the command that makes it again."""
    lines = [f"trace {run.trace_fingerprint}"] if run.trace_fingerprint else []
    command = again(archive.run(0) if is_scenario(archive) else run)
    return lines + ([f"made by: {command.command}", *command.files] if command else [])


def _show_runs(archive: ResultsArchive, as_json: bool) -> None:
    if is_scenario(archive) and not as_json:
        show_scenario(archive.run(0), {run.point[COLUMN]: run for number, run in archive.results() if number})
        print_text("\n".join(_origin(archive, archive.run(0))))
        return
    if as_json:
        runs = [
            {"point": run.point, "failure": run.reason}
            if isinstance(run, Failure)
            else {"point": run.point, **results_dict(run)}
            for run in archive.runs
        ]
        print_json({"study": archive.study, "runs": runs})
        return
    frame = archive.runs_frame()
    swept = list(dict.fromkeys(name for run in archive.runs for name in run.point))
    shown = (*COLUMNS, *(name for name in frame if name.endswith(".speedup")))
    columns = [*swept, *(name for name in shown if name in frame and name not in swept)]
    rows = [
        (str(number), *(row[name] for name in columns)) for number, row in zip(frame.index, _rows(frame), strict=True)
    ]
    print_table(f"{len(frame)} runs, {len(archive.failures())} failed", ("run", *columns), rows)
    print_text("\n".join(runs_heading(archive)))


def _rows(frame: Any) -> list[dict[str, Any]]:
    """Rows of a frame as plain values; "" for a missing value."""
    plain: list[dict[str, Any]] = frame.astype(object).where(frame.notna(), "").to_dict("records")
    return plain


def _show_names(results: RunResult, names: str, as_json: bool) -> None:
    machine = results.preset.machine
    values = {
        counterpart: [counterpart.value(kernel, machine) for kernel in results.kernels] for counterpart in NAMES[names]
    }
    if as_json:
        kernels = [
            {"name": kernel.name} | {counterpart.name: numbers[place] for counterpart, numbers in values.items()}
            for place, kernel in enumerate(results.kernels)
        ]
        print_json({"names": names, "kernels": kernels})
        return
    rows = [
        (counterpart.name, *numbers, counterpart.unit, formula(counterpart), counterpart.remark)
        for counterpart, numbers in values.items()
    ]
    columns = (TITLES[names], *(short_name(kernel.name) for kernel in results.kernels), "unit", "t3sim", "remark")
    print_table(f"{results.preset.name}, as {TITLES[names]} counts", columns, rows)


def run_energy(results: RunResult, energies: str) -> Energy:
    """Energy of all kernels of a run. energies: name or file of the energies per event."""
    return energy_of(results.totals, results.preset.machine.hbm.row_bytes, load_energy(energies))


def _energy_dict(results: RunResult, energies: str) -> dict[str, Any] | None:
    """The energy as plain values; None = an archive of an older version, which lacks a counter."""
    try:
        return run_energy(results, energies).as_dict()
    except ResultsError:
        return None


def _scenario_energies(archive: ResultsArchive, energies: str) -> dict[str, Energy]:
    runs = {run.point[COLUMN]: run for _, run in archive.results() if run.kernels}
    return configuration_energies(runs, load_energy(energies))


def results_dict(results: RunResult, energies: str = DEFAULT) -> dict:
    """A run as plain values: the headline, ratios, energy, figures, and the headline per kernel."""
    if not results.kernels:
        return _described(results) | {"figures": results.figures}
    return {
        **results.headline(),
        "extrapolation": results.extrapolation,
        **({"figures": times} if (times := _times_at_once(results)) else {}),
        "tera_flop_per_s": tera_flop_per_s(results),
        "shares": shares(results),
        "bounded_by": bounded_by(results),
        "ratios": results.ratios(),
        "energy": _energy_dict(results, energies),
        "trace_fingerprint": results.trace_fingerprint,
        **_described(results),
        "kernels": [
            {"name": kernel.name, "start_ns": ps_to_ns(kernel.start_ps), "end_ns": ps_to_ns(kernel.end_ps)}
            | kernel.headline()
            for kernel in results.kernels
        ],
    }


def _times_at_once(results: RunResult) -> dict[str, Any]:
    """The times of kernels that ran at once."""
    return {name: value for name, value in results.figures.items() if name.startswith(AT_ONCE)}


def _described(results: RunResult) -> dict[str, Any]:
    return {
        "preset": results.preset.name,
        "input": results.input,
        "options": results.options,
        "command": command_of(results),
        "warnings": list(results.warnings),
    }


def show_results(results: RunResult) -> None:
    """Print the tables of a run; for a run without kernels, its figures."""
    lines = [f"{results.preset.name}: {results.preset.title}", results.preset.peaks().text(), *run_heading(results)]
    print_text("\n".join([*lines, ""]))
    if not results.kernels:
        print_table("Figures", ("figure", "value"), results.figures.items())
        return
    title = "The whole run, EXTRAPOLATED" if results.extrapolation else "The whole run"
    rows = [*results.extrapolation.items(), *results.headline().items(), *results.ratios().items()]
    print_table(title, ("figure", "value"), rows)
    if times := _times_at_once(results):
        print_table("Figures", ("figure", "value"), times.items())
    rate = tera_flop_per_s(results)
    used = [(unit, share(value)) for unit, value in shares(results).items()]
    print_text("")
    if used:
        print_table("Share of each peak, in the time of the kernels", ("unit", "share"), used)
    idle = results.totals.get("cu.workgroups") == 0
    unknown = "no unit: no workgroup ran" if idle else "an unknown unit: this result lacks counters"
    print_text(
        (f"{rate:,.4g} TFLOP/s of {peak_tera_flop_per_s(results):,.4g}; " if rate else "")
        + f"bounded by {bounded_by(results) or unknown}"
    )
    if len(results.kernels) > 1:
        columns = ("kernel", "time", "warp_instructions", "l2_read_sectors", "dram_read_sectors", "dram_write_sectors")
        rows = [
            (short_name(kernel.name), duration(kernel.time_ps), *(kernel.headline()[name] for name in columns[2:]))
            for kernel in results.kernels
        ]
        print_table("Kernels", columns, rows)
    print_text("\n".join(["", *(f"ledger: {fault}" for fault in results.wrong), evidence_text(results.preset)]))


def _show_unit(results: RunResult, unit: str, as_json: bool) -> None:
    first = results.kernels[0]
    terms = [name.split(".") for name in first.totals]
    counters = [term[1] for term in terms if term[0] == unit and len(term) == 2]  # without those of single streams
    if not counters:
        raise ResultsError(f"unit {unit!r}: allowed are {', '.join(dict.fromkeys(term[0] for term in terms))}")
    if as_json:
        kernels = [
            {"name": kernel.name} | {name: kernel.totals[f"{unit}.{name}"] for name in counters}
            for kernel in results.kernels
        ]
        print_json({"unit": unit, "kernels": kernels})
        return
    rows = [
        (name, *(kernel.totals[f"{unit}.{name}"] for kernel in results.kernels), unit_of_measure(name))
        for name in counters
    ]
    instances = f"{len(first.units[unit])} instances, " if unit in first.units else ""
    title = f"{unit}: {instances}sums (maxima where the name says max)"
    print_table(title, ("counter", *(short_name(kernel.name) for kernel in results.kernels), "unit"), rows)
