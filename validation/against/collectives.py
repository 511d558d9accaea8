"""Collectives of NCCL on real machines against ours: every measured row, 64 B to 4 GB.

`python -m validation.against.collectives` writes `validation/tables/collectives.md`. Measured: nccl-tests, out of place
(`validation/references/nccl_*.csv`). Ours: `t3sim collective` with the library of the preset. `sim/collective/
library.toml` has two calibrated values for each machine, algorithm and protocol: `launch_ps` and `channel_ps`. Curves
of 2 and 4 A100 or H100, and of 8 V100, give them (`--calibrate` prints them again). Curves of 8 A100 and 8 H100 are
held out: they give no value, but they were in view when the model was made (`collectives_notes.md`).
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.collective import Collective, CollectiveResult, simulate_collective
from traces.command.document import Bullets, Heading, Table, Text, notes, to_markdown, write_page
from traces.units import MIB, NS_PER_US
from validation.csv_file import read_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "collectives_notes.md"
TABLE = HERE / "tables" / "collectives.md"
REFERENCES = tuple(
    HERE / "references" / f"{name}.csv"
    for name in ("nccl_v100", "nccl_a100", "nccl_a100_8gpu", "nccl_alltoall_a100_h100")
)
LARGE_BYTES = 4 * MIB
TARGETS = (0.12, 0.05)
"""Goal for the mean absolute error, below LARGE_BYTES and from there on."""
WORST = 5
CURVE_COLUMNS = ("machine", "GPUs", "collective", "rows", "kind", "below 4 MiB", "from 4 MiB")
ROW_COLUMNS = ("machine", "GPUs", "collective", "bytes", "protocol", "channels", "measured", "ours", "error")


class System(NamedTuple):
    """A measured machine: its preset, and the numbers of GPUs whose curves calibrate its row."""

    preset: str
    calibrates: tuple[int, ...]


SYSTEMS = {
    "Tesla V100-SXM2-32GB": System("v100", (8,)),
    "a100_sxm": System("a100_80g", (2, 4)),
    "8xA100-80GB SXM NVLink": System("a100_80g", ()),
    "h100_sxm": System("h100_sxm", (2, 4)),
}


class Case(NamedTuple):
    """One measured curve."""

    system: str
    gpus: int
    kind: str

    @property
    def calibrates(self) -> bool:
        return self.gpus in SYSTEMS[self.system].calibrates


@dataclass(frozen=True)
class Row:
    """A measured time and ours."""

    case: Case
    bytes: int
    measured_us: float
    ours: CollectiveResult

    @property
    def ours_us(self) -> float:
        return self.ours.time_ns / NS_PER_US

    @property
    def error(self) -> float:
        return self.ours_us / self.measured_us - 1

    @property
    def large(self) -> bool:
        return self.bytes >= LARGE_BYTES


NAMES = {"alltoall": "all_to_all", "point_to_point": "send_recv"}
"""Name of a collective in REFERENCES -> here."""


@cache
def measured() -> dict[Case, dict[int, float]]:
    """Case -> size in bytes -> time in us."""
    times_us: dict[Case, dict[int, float]] = {}
    for (case, size), row in published().items():
        times_us.setdefault(case, {})[size] = float(row["time_us"])
    return times_us


@cache
def published() -> dict[tuple[Case, int], dict[str, str]]:
    """(case, size in bytes) -> row of its file."""
    rows = {}
    for row in (row for path in REFERENCES for row in read_csv(path)):
        case = Case(row["system"], int(row["gpus"]), NAMES.get(row["collective"], row["collective"]))
        rows[case, int(row["bytes"])] = row
    return rows


def question(case: Case, data_bytes: int, overrides: Sequence[str] = ()) -> Collective:
    """A row as a question to `t3sim collective`."""
    return Collective(load_preset(SYSTEMS[case.system].preset, overrides), case.kind, case.gpus, data_bytes)


def rows_of(case: Case, store: Store | None = None, stored: bool = False) -> list[Row]:
    """Every row of a curve. stored: only those whose runs the store has."""
    return [
        Row(case, size, time_us, simulate_collective(question(case, size), store))
        for size, time_us in measured()[case].items()
        if not (stored and store) or all(store.path(run.key).exists() for run in question(case, size).runs().values())
    ]


def mean_absolute(rows: Iterable[Row]) -> float | None:
    """Mean absolute relative error, None without rows."""
    errors = [row.error for row in rows]
    return mean_errors(errors).absolute if errors else None


class Point(NamedTuple):
    """A row of the calibration: measured time, ours without a launch, both in us, and the channels."""

    measured_us: float
    bare_us: float
    channels: int


def calibration_points() -> dict[tuple[str, str, str], list[Point]]:
    """(row of library.toml, algorithm, protocol) -> points of the curves that calibrate it."""
    found: dict[tuple[str, str, str], list[Point]] = {}
    for case in filter(lambda case: case.calibrates, measured()):
        for size, time_us in measured()[case].items():
            asked = question(case, size, ["collective.launch_ps=0"])
            ours = simulate_collective(asked, Store())
            choice = asked.choice()
            point = Point(time_us, ours.time_ns / NS_PER_US, choice.channels)
            found.setdefault((choice.row, choice.algorithm, choice.protocol), []).append(point)
    return found


def calibrated(points: Sequence[Point]) -> tuple[float, float, float]:
    """(launch, time of a channel, both in us, mean absolute error) with the least mean error of the points."""
    theirs, bare, channels = np.array(points).T
    best = (np.inf, 0.0, 0.0)
    for channel in np.arange(0, 2, 0.02):
        for launch in np.arange(0, 60, 0.2):
            best = min(best, (float(np.abs((bare + launch + channels * channel) / theirs - 1).mean()), launch, channel))
    error, launch, channel = best
    return float(launch), float(channel), error


def curve_row(case: Case, rows: Sequence[Row]) -> list[str]:
    small, large = (mean_absolute(row for row in rows if row.large == side) for side in (False, True))
    kind = "calibration" if case.calibrates else "held out"
    return [*map(str, case), str(len(rows)), kind, *("" if e is None else f"{100 * e:.1f} %" for e in (small, large))]


def size_row(row: Row) -> list[str]:
    how = f"{row.ours.algorithm}, {row.ours.protocol}"
    cells = (*row.case, row.bytes, how, row.ours.channels, f"{row.measured_us:.2f}", f"{row.ours_us:.2f}")
    return [*map(str, cells), f"{100 * row.error:+.1f} %"]


def _sentence(name: str, chosen: Callable[[Row], bool], rows: Sequence[Row]) -> str:
    parts = []
    for side, where, target in ((True, "from 4 MiB", TARGETS[1]), (False, "below", TARGETS[0])):
        own = [row for row in rows if row.large == side and chosen(row)]
        if own:
            parts.append(
                f"{where} {100 * (mean_absolute(own) or 0):.1f} % of {len(own)} rows (goal {100 * target:.0f} %)"
            )
    return f"{name}: {', '.join(parts)}."


def table(found: dict[Case, list[Row]]) -> str:
    """All curves as Markdown, with the explanation of NOTES."""
    rows = [row for own in found.values() for row in own]
    worst = sorted(rows, key=lambda row: -abs(row.error))[:WORST]
    head = (
        "Generated by `python -m validation.against.collectives`. Measured: `validation/references/nccl_*.csv`. Ours:\n"
        "`t3sim collective` with the library of the preset. Times in us."
    )
    means = [
        _sentence("Mean absolute error of all rows", lambda row: True, rows),
        _sentence("Curves that calibrate", lambda row: row.case.calibrates, rows),
        _sentence("Curves held out (in view, see below)", lambda row: not row.case.calibrates, rows),
    ]
    missing = sum(map(len, measured().values())) - len(rows)
    if missing:
        means.append(f"{missing} measured rows are missing: they have not been simulated with these values yet.")
    return to_markdown(
        [
            Heading("Collectives of real machines", 1),
            Text(head),
            Bullets([f"{name}: preset `{system.preset}`." for name, system in SYSTEMS.items()]),
            Bullets(means),
            Table(CURVE_COLUMNS, [curve_row(case, own) for case, own in found.items()]),
            Text(f"The {WORST} rows with the largest errors:"),
            Table(ROW_COLUMNS, [size_row(row) for row in worst]),
            notes(NOTES),
            Heading("All rows", 2),
            Table(ROW_COLUMNS, [size_row(row) for row in rows]),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Collectives of NCCL on real machines against ours.")
    parser.add_argument("--calibrate", action="store_true", help="print the calibrated values, write nothing")
    parser.add_argument("--stored", action="store_true", help="only rows whose runs are in the store")
    arguments = parser.parse_args()
    if arguments.calibrate:
        for name, points in calibration_points().items():
            launch_us, channel_us, error = calibrated(points)
            print(*name, f"launch {launch_us:.1f} us, channel {channel_us:.2f} us: {100 * error:.1f} %", len(points))
        return
    write_page(TABLE, table({case: rows_of(case, Store(), arguments.stored) for case in measured()}))


if __name__ == "__main__":
    main()
