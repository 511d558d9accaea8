"""Rows of `t3sim explore`: every run and every configuration of some archives, with its fields, figures and origins.

A field says what a row is (machine, workload, swept values, values of the machine that differ). A figure is a result.
Each column names the place in the archive from which its values come.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.hw.request import Stream
from sim.presets import Preset
from sim.results import ResultsArchive, RunResult
from sim.run.shares import bounded_by, shares, tera_flop_per_s
from sim.scenario.result import ALL_CONFIGURATIONS, COLUMN, REDUCE_AT_ONCE, SOFTWARE, T3, T3_MCA, T3_NVLS, TRAFFIC
from sim.view.command_text import command_of
from tracer.elf.names import short_name, short_names
from traces.units import MEGA, NS_PER_US, PS_PER_US

Value = str | int | float | bool | None
RUN, CONFIGURATION = "run", "configuration"
"""Kinds of rows."""
PHASES = {"GEMM": "gemm_ns", "reduce-scatter": "rs_ns", "all-gather": "ag_ns"}
"""Part of the time of a configuration -> its figure."""
REDUCED = {"GEMM": "gemm_ns", "all-reduce": "ag_ns"}
"""The same with an all-reduce in one kernel."""
FUSED = "GEMM and reduce-scatter at once"
SHOWN_KERNELS = 6
"""Kernels of a run whose times are shown one by one; the others are added up."""


@dataclass(frozen=True)
class Column:
    """A column of the rows.

    Attributes:
        name: unique; the unit of measure stands at its end.
        meaning: one line. place: of the values in a results archive.
        is_figure: a result; else it says what the row is.
        of_machine: a value of the machine, which differs between rows.
    """

    name: str
    meaning: str
    place: str
    is_figure: bool = False
    of_machine: bool = False


@dataclass
class Row:
    """A run or a configuration.

    Attributes:
        kind: RUN or CONFIGURATION.
        values: name of a column -> value.
        times: part -> microseconds. traffic: part -> MB of DRAM.
        origin: file, number of the run in it, program, hash of the code, command that makes it again.
        preset: its machine.
    """

    kind: str
    values: dict[str, Value]
    times: dict[str, float]
    traffic: dict[str, float]
    origin: dict[str, Value]
    preset: Preset
    label: str = ""
    machine: dict[str, list[Value]] = field(default_factory=dict)


COLUMNS = {
    column.name: column
    for column in (
        Column("kind", "a run is one simulation; a configuration is put together from runs", "figures"),
        Column("machine", "name of the preset", "spec: name"),
        Column("workload", "the kernels, or the problem of the GEMM", "input"),
        Column("GPUs", "number of GPUs", "input: gpus"),
        Column("simulation", "run of the scenario, or its configuration", "point, figures"),
        Column("bounded by", "busiest unit, or what the run waits for", "kernels/*/totals, spec", True),
        Column(
            "time, us", "time of all that the row holds", "kernels/*: end_ps, or figures: CONFIGURATION.time_ns", True
        ),
        Column("speed-up", "time of Sequential / time", "figures: CONFIGURATION.speedup", True),
        Column(
            "TFLOP/s",
            "2 x multiply-accumulates / time of the kernels",
            "input, or kernels/*/totals: cu.tensor_macs",
            True,
        ),
        Column(
            "DRAM, MB", "reads and writes of DRAM, per GPU", "kernels/*/totals: hbm, or figures: dram_*_bytes", True
        ),
        Column("link, MB", "sent over links, per GPU", "link_bytes, or figures: CONFIGURATION.link_bytes", True),
    )
}
"""Columns that every page has."""
COLUMNS_LAST = ("", "", "GPUs", "workload", "machine")
"""Fields in the order in which they end a row's name, after the configuration and the swept values."""


def rows_of(archives: Iterable[ResultsArchive]) -> tuple[list[Row], dict[str, Column], list[str]]:
    """All rows, the columns in order, and one line for each point that failed."""
    rows: list[Row] = []
    columns, failed = dict(COLUMNS), []
    for archive in archives:
        file = Path(archive.path).name
        for number, run in archive.results():
            swept = {name: value for name, value in run.point.items() if name != COLUMN}
            columns |= {name: Column(name, "swept by the study", "point") for name in swept}
            found = [_run_row(run, columns)] if run.kernels else list(_configuration_rows(run, columns))
            for row in found:
                row.values |= {name: value if isinstance(value, Value) else str(value) for name, value in swept.items()}
                row.origin |= {"file": file, "run": number}
            rows += found
        failed += [f"{file}, run {number}: {failure.point}: {failure.reason}" for number, failure in archive.failures()]
    _add_machines(rows, columns)
    used = [column for column in columns.values() if _says_something(column.name, rows)]
    _label(rows, [column for column in used if not column.is_figure])
    return rows, {column.name: column for column in sorted(used, key=lambda column: column.is_figure)}, failed


def _says_something(name: str, rows: list[Row]) -> bool:
    """Has a column values, other than those of the column of GPUs?"""
    values = [row.values.get(name) for row in rows]
    repeated = name == "t3.gpus" and values == [row.values.get("GPUs") for row in rows]
    return not repeated and any(value is not None for value in values)


def differs_within(name: str, rows: list[Row]) -> bool:
    """Has a column several values among rows of machines with one name?"""
    found = {(row.preset.name, str(row.values.get(name))) for row in rows}
    return len(found) > len({machine for machine, _ in found})


def _origin(run: RunResult) -> dict[str, Value]:
    return {"program": run.writer, "code": run.code, "command": command_of(run)}


def _run_row(run: RunResult, columns: dict[str, Column]) -> Row:
    values: dict[str, Value] = {
        "kind": RUN,
        "machine": run.preset.name,
        "workload": _workload(run),
        "GPUs": run.input.get("gpus", 1),
        "simulation": run.point.get(COLUMN),
        "time, us": run.time_ps / PS_PER_US,
        "bounded by": bounded_by(run),
        "TFLOP/s": tera_flop_per_s(run),
        "DRAM, MB": int(run.dram_bytes.sum()) / MEGA,
        "link, MB": run.link_bytes / MEGA if run.link_bytes else None,
    }
    for unit, share in shares(run).items():
        name = f"{unit}, % of peak"
        columns.setdefault(name, Column(name, "busy time, or work / peak rate x time", "kernels/*/totals, spec", True))
        values[name] = 100 * share
    for ratio, value in run.ratios().items():
        columns.setdefault(ratio, Column(ratio, "ratio of counters (docs/counters.md)", "kernels/*/totals", True))
        values[ratio] = value
    streams = {stream.name.lower().replace("_", " "): int(run.dram_bytes[stream]) / MEGA for stream in Stream}
    return Row(RUN, values, _kernel_times(run), streams, _origin(run), run.preset)


def _kernel_times(run: RunResult) -> dict[str, float]:
    times: dict[str, float] = {}
    for number, kernel in enumerate(run.kernels):
        name = short_name(kernel.name) if number < SHOWN_KERNELS else "other kernels"
        times[name] = times.get(name, 0.0) + kernel.time_ps / PS_PER_US
    waits_us = run.time_ps / PS_PER_US - sum(times.values())
    return times | ({"launch and gaps": waits_us} if waits_us > 0 else {})


def _configuration_rows(run: RunResult, columns: dict[str, Column]) -> Iterable[Row]:
    """The configurations of the row of a scenario; a row without configurations has its figures."""
    names = [name for name in ALL_CONFIGURATIONS if f"{name}.time_ns" in run.figures]
    shared: dict[str, Value] = {
        "machine": run.preset.name,
        "workload": _workload(run),
        "GPUs": run.options.get("gpus"),
    }
    for name in names:
        own = {key.removeprefix(f"{name}."): value for key, value in run.figures.items() if key.startswith(f"{name}.")}
        yield _configuration_row(name, own, shared, run)
    if not names:
        numbers = {name: value for name, value in run.figures.items() if isinstance(value, int | float)}
        columns |= {name: Column(name, "figure of the run", "figures", True) for name in numbers}
        origin = _origin(run)
        yield Row(
            RUN, shared | {"kind": RUN, "simulation": run.point.get(COLUMN)} | numbers, {}, {}, origin, run.preset
        )


def _configuration_row(name: str, own: Mapping[str, Any], shared: Mapping[str, Value], run: RunResult) -> Row:
    last = "all-reduce" if name in REDUCE_AT_ONCE else "ag"
    traffic = {
        kind.replace("ag", last).replace("_", " "): own[f"dram_{kind}_bytes"] / MEGA
        for kind in TRAFFIC
        if own[f"dram_{kind}_bytes"]
    }
    values = {
        **shared,
        "kind": CONFIGURATION,
        "simulation": name,
        "time, us": own["time_ns"] / NS_PER_US,
        "speed-up": own.get("speedup"),
        "DRAM, MB": sum(traffic.values()),
        "link, MB": own["link_bytes"] / MEGA,
    }
    return Row(CONFIGURATION, values, _phase_times(name, own), traffic, _origin(run), run.preset)


def _phase_times(name: str, own: Mapping[str, Any]) -> dict[str, float]:
    """Parts that add up to the time: phases, or one part for phases that overlap."""
    if name in REDUCE_AT_ONCE:
        return {part: own[figure] / NS_PER_US for part, figure in REDUCED.items()}
    phases = {part: own[figure] / NS_PER_US for part, figure in PHASES.items()}
    overlapped_us = own["time_ns"] / NS_PER_US - phases["all-gather"]
    if (
        name in (T3, T3_MCA, T3_NVLS, *SOFTWARE)
        or abs(overlapped_us - phases["GEMM"] - phases["reduce-scatter"]) > 1 / NS_PER_US
    ):
        return {FUSED: overlapped_us, "all-gather": phases["all-gather"]}
    return phases


def _workload(run: RunResult) -> str:
    """A short name of what ran."""
    if "problem" in run.input:
        return "GEMM " + " x ".join(str(run.input["problem"][side]) for side in "mnk")
    if "collective" in run.input:
        return str(run.input["collective"]).replace("_", " ")
    return short_names([kernel.name for kernel in run.kernels]) or "scenario"


def _add_machines(rows: list[Row], columns: dict[str, Column]) -> None:
    """Values of the machine that differ between rows become columns; each row keeps their sources."""
    machines = {id(row.preset): _values(row.preset) for row in rows}
    names = dict.fromkeys(name for values in machines.values() for name in values)
    differing = [name for name in names if len({str(values.get(name)) for values in machines.values()}) > 1]
    for row in rows:
        values = machines[id(row.preset)]
        for name in differing:
            row.values.setdefault(name, values.get(name))
            source = row.preset.sources.get(name)
            row.machine[name] = [values.get(name), source.kind if source else "", source.source if source else ""]
    for name in differing:
        columns.setdefault(name, Column(name, "value of the machine", f"spec: {name}", of_machine=True))


def _values(preset: Preset) -> dict[str, Value]:
    return {name: value if isinstance(value, Value) else str(value) for name, value in preset.values().items()}


def _label(rows: list[Row], fields: list[Column]) -> None:
    """A short name for each row: as few of its fields as tell rows apart. Equal names get a number."""
    names = [column.name for column in fields if not column.of_machine or differs_within(column.name, rows)]
    chosen = [name for name in names if name != "kind" and len({str(row.values.get(name)) for row in rows}) > 1]
    chosen.sort(key=lambda name: COLUMNS_LAST.index(name) if name in COLUMNS_LAST else name != "simulation")
    seen: dict[str, int] = {}
    for row, label in zip(rows, _names(rows, chosen), strict=True):
        seen[label] = seen.get(label, 0) + 1
        row.label = label if seen[label] == 1 else f"{label} #{seen[label]}"


def _names(rows: list[Row], fields: list[str]) -> list[str]:
    """The names of the rows, by the first fields that tell all rows apart, or by all."""
    for some in range(len(fields)):
        found = [_name(row, fields[:some]) for row in rows]
        if len(set(found)) == len(rows):
            return found
    return [_name(row, fields) for row in rows]


def _name(row: Row, names: list[str]) -> str:
    parts = [_part(name, row.values[name]) for name in names if row.values.get(name) is not None]
    return ", ".join(parts) or str(row.values["workload"])


def _part(name: str, value: Value) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if name in ("machine", "workload", "simulation"):
        return text
    return f"{text} GPU{'s' * (text != '1')}" if name == "GPUs" else f"{name.rpartition('.')[2]} {text}"
