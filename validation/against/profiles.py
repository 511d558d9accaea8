"""Kernels of public PyTorch profiles: times that were predicted from their shapes, against the measured ones.

`python -m validation.against.profiles` writes `tables/profiles.md` from three files. `--simulate FOLDER` makes
`tables/profiles.csv` from the shapes in the profiles of a folder (PROFILES names them), without their times.
`predictions/profiles.csv` was made so, and committed before the times were looked at; it stays as it is. `--measure
FOLDER` makes `references/profiles.csv`: the times.
"""

from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from sim.presets import load_preset
from sim.scenario.profile import ProfileScenario, compared
from sim.scenario.result import LIBRARY, NVLS
from sim.verbs.profile import work_text
from sim.verbs.schedule_run import simulate
from tracer.models.schedule import OperatorClass
from tracer.profile.kineto import Profile, read_profile
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from validation.csv_file import read_csv, write_csv

HERE = Path(__file__).parents[1]
PREDICTIONS, REFERENCE = HERE / "predictions" / "profiles.csv", HERE / "references" / "profiles.csv"
TODAY = HERE / "tables" / "profiles.csv"
"""Times with today's code."""
NOTES, TABLE = HERE / "against" / "profiles_notes.md", HERE / "tables" / "profiles.md"
SOURCE = "https://github.com/AMD-AGI/TraceLens/tree/171dd74721ca1ec45709e5805b68ae1f65e27811/tests/traces (MIT)"
MODELS = (
    "gaunernst_bert-small-uncased__1016001",
    "Falconsai_nsfw_image_detection__1016002",
    "Qwen_Qwen1.5-0.5B-Chat__1016005",
    "facebook_timesformer-base-finetuned-k400__1016002",
    "google_owlv2-large-patch14-ensemble__1016001",
)
PROFILES = {
    **{f"h100/{model}.json.gz": "h100_sxm" for model in MODELS},
    "b200/eager_trace.json.gz": "b200",
    **{f"mi300/{model}.json.gz": "mi300x" for model in MODELS},
    "inference/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz": "mi300x",
}
"""Profile of SOURCE -> its machine."""
ACCURACY = 0.01
COLUMNS = ("profile", "preset", "class", "operator", "work", "calls")
SIMULATED, MEASURED = (*COLUMNS, "simulated_ns", "bound_by"), (*COLUMNS, "measured_ns", "source")
PADDING = ",pad=dense"
"""Field of GEMMs with odd rows, which the predictions lack."""
WITHIN = 0.15
"""Error of a kernel that counts as small."""
SHORT_NS = 10_000
"""Shorter kernels are a group of their own: overheads that no simulation has are a large part of their time."""
LONGEST = 60
"""Rows of the table of single kernels."""


class Row(NamedTuple):
    """A kernel of a profile; times of a call."""

    profile: str
    preset: str
    operator_class: str
    work: str
    calls: int
    measured_ns: float
    predicted_ns: float
    today_ns: float | None

    @property
    def error(self) -> float:
        """Of the prediction."""
        return self.predicted_ns / self.measured_ns - 1

    @property
    def error_today(self) -> float | None:
        return None if self.today_ns is None else self.today_ns / self.measured_ns - 1


def without_times(profile: Profile) -> Profile:
    """The profile with equal times for all kernels: a prediction must not depend on them."""
    calls = tuple(call._replace(time_ns=1, end_ns=call.begin_ns) for call in profile.calls)
    return profile._replace(calls=calls, busy_ns=1, span_ns=1)


def simulate_all(folder: Path, workers: int) -> None:
    """Simulate the kernels of all profiles from their shapes."""
    rows = []
    for name, preset in PROFILES.items():
        profile = without_times(read_profile(folder / name))
        scenario = ProfileScenario(load_preset(preset), profile, ACCURACY, True, (LIBRARY, NVLS))
        for each in compared(simulate("profile", scenario, workers, fresh=False).result):
            described = name, preset, str(each.operator_class), each.operator, work_text(each.work), each.calls
            rows.append((*described, each.simulated_ns, each.bound_by))
    write_csv(TODAY, SIMULATED, sorted(rows))


def measure(folder: Path) -> None:
    """Take the measured times of the predicted kernels from the profiles."""
    rows = []
    for name, preset in PROFILES.items():
        scenario = ProfileScenario(load_preset(preset), read_profile(folder / name), ACCURACY, True, (LIBRARY, NVLS))
        for block, step in scenario.steps():
            calls = scenario.calls_of(block, step)
            described = name, preset, str(step.operator_class), calls[0].name, work_text(step.work), len(calls)
            rows.append((*described, sum(call.time_ns for call in calls) / len(calls), SOURCE))
    write_csv(REFERENCE, MEASURED, sorted(rows))


def rows_of(measured: Path, predicted: Path, today: Path) -> list[Row]:
    """Rows of the files of these times; the longest in all calls first. Today's times may lack whole profiles.

    Raises:
        ValueError: a kernel is not in all files.
    """
    measured_ns, predicted_ns, today_ns = (
        {_key(row): float(row[name]) for row in read_csv(file)}
        for file, name in ((measured, "measured_ns"), (predicted, "simulated_ns"), (today, "simulated_ns"))
    )
    there = {key[0] for key in today_ns}
    differ = measured_ns.keys() ^ predicted_ns.keys() | today_ns.keys() ^ {
        key for key in measured_ns if key[0] in there
    }
    if differ:
        raise ValueError(f"not in all of {measured.name}, {predicted.name}, {today.name}: {sorted(differ)[0]}")
    found = [
        Row(profile, preset, operator_class, work, int(calls), measured_ns[key], predicted_ns[key], today_ns.get(key))
        for key in measured_ns
        for profile, preset, operator_class, _, work, calls in [key]
    ]
    return sorted(found, key=lambda row: (-row.calls * row.measured_ns, row.profile, row.work))


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name].replace(PADDING, "") for name in COLUMNS)


def _summary(rows: list[Row], group: str, name: str) -> list[str]:
    """Of a group of rows: total times of all calls, and errors of single kernels; predicted, then today's."""
    measured = sum(row.calls * row.measured_ns for row in rows)
    cells = [group, name, f"{len(rows)}", f"{measured / 1e6:,.3f}"]
    for times in ([row.predicted_ns for row in rows], [row.today_ns for row in rows]):
        known = [time for time in times if time is not None]
        if len(known) < len(rows):
            return [*cells, "-", "-", "-"]
        total = sum(row.calls * time for row, time in zip(rows, known, strict=True))
        errors = [abs(time / row.measured_ns - 1) for row, time in zip(rows, known, strict=True)]
        cells += [f"{100 * (total / measured - 1):+.1f} %", f"{100 * median(errors):.1f} %"]
        cells.append(f"{sum(error <= WITHIN for error in errors)}")
    return cells


def table(rows: list[Row]) -> str:
    """The page."""
    groups: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        short = " under 10 us" if row.measured_ns < SHORT_NS else ""
        groups[row.preset, row.operator_class + short].append(row)
    columns = (
        *("machine", "class", "kernels", "measured, all calls (ms)"),
        *("error of the sum, predicted", "median absolute error of a kernel", "within 15 %"),
        *("error of the sum, today", "median", "within 15 %, today"),
    )
    profiles: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        profiles[row.preset, row.profile].append(row)
    single = [
        (row.preset, row.work, f"{row.calls:,}", f"{row.measured_ns / 1000:,.1f}", f"{row.predicted_ns / 1000:,.1f}",
         f"{100 * row.error:+.1f} %", "-" if row.error_today is None else f"{100 * row.error_today:+.1f} %")
        for row in rows[:LONGEST]
    ]  # fmt: skip
    order = list(OperatorClass)
    by_class = sorted(groups, key=lambda key: (key[0], [str(each) for each in order].index(key[1].split(" under")[0]),
                                               "under" in key[1]))  # fmt: skip
    return to_markdown(
        [
            Heading("Kernels of public profiles", 1),
            Text(
                "Generated by `python -m validation.against.profiles`. Predicted: "
                "`validation/predictions/profiles.csv`, committed before the measured times were looked at (blind). "
                f"Measured: `validation/references/profiles.csv`, from {SOURCE}. "
                "Today: `validation/tables/profiles.csv`, with the measured times in view."
            ),
            Table(columns, [_summary(groups[key], *key) for key in by_class]),
            Heading("By profile", 2),
            Table(("machine", "profile", *columns[2:]), [_summary(profiles[key], *key) for key in sorted(profiles)]),
            Heading("The longest in all calls", 2),
            Table(
                ("machine", "kernel or exchange", "calls", "measured (us)", "predicted (us)", "error", "error, today"),
                single,
            ),
            notes(NOTES),
        ]
    )


@click.command()
@click.option("--simulate", "shapes", type=click.Path(path_type=Path), help="Folder with PROFILES: simulate.")
@click.option("--measure", "times", type=click.Path(path_type=Path), help="Folder with PROFILES: take the times.")
@click.option("--workers", type=int, default=1, show_default=True)
def main(shapes: Path | None, times: Path | None, workers: int) -> None:
    if shapes:
        simulate_all(shapes, workers)
    if times:
        measure(times)
    write_page(TABLE, table(rows_of(REFERENCE, PREDICTIONS, TODAY)))


if __name__ == "__main__":
    main()
