"""Kernels of public PyTorch profiles: simulated times, against the measured ones.

`python -m validation.against.profiles` writes `tables/profiles.md` from three files. `predictions/profiles.csv` was
made from the shapes in the profiles, and committed before the times were looked at; it stays as it is, and so does
`references/profiles.csv`: the measured times of its rows. `--simulate FOLDER` makes `tables/profiles.csv`, the times of
today's code, with the measured times in view, from the profiles of a folder (PROFILES names them).
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from sim.presets import load_preset
from sim.scenario.profile import ProfileScenario, compared, excess_ns
from sim.scenario.result import LIBRARY, NVLS
from sim.verbs.profile import work_text
from sim.verbs.schedule_run import simulate
from tracer.models.schedule import OperatorClass
from tracer.profile.kineto import read_profile
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from validation.csv_file import read_csv, write_csv

HERE = Path(__file__).parents[1]
PREDICTIONS, REFERENCE = HERE / "predictions" / "profiles.csv", HERE / "references" / "profiles.csv"
TODAY = HERE / "tables" / "profiles.csv"
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
SIMULATED = (*COLUMNS, "measured_ns", "simulated_ns", "bound_by")
WITHIN = 0.15
"""Error of a kernel that counts as small."""
SHORT_NS = 10_000
"""Shorter kernels are a group of their own: overheads that no simulation has are a large part of their time."""
COMMUNICATION = str(OperatorClass.COMMUNICATION)
LONGEST = 60
"""Rows of the table of single kernels."""


CALIBRATED = ("aiter::rmsnorm", ",cols=128,")
"""Operator and part of the text of two kernels. `dispatch.workgroup_ps` of mi300x is the difference of their times."""


class Row(NamedTuple):
    """A kernel of a profile; times of a call."""

    profile: str
    preset: str
    operator_class: str
    work: str
    calls: int
    measured_ns: float
    simulated_ns: float
    excess_ns: float = 0.0
    calibrates: bool = False

    @property
    def error(self) -> float:
        return self.simulated_ns / self.measured_ns - 1

    @property
    def error_with_excess(self) -> float:
        return (self.simulated_ns + self.excess_ns) / self.measured_ns - 1


def simulate_all(folder: Path, names: Sequence[str], workers: int) -> None:
    """Simulate the kernels of some profiles; the rows of a profile are replaced when all of it is simulated."""
    for name in names:
        preset = PROFILES[name]
        scenario = ProfileScenario(load_preset(preset), read_profile(folder / name), ACCURACY, True, (LIBRARY, NVLS))
        rows = [tuple(row.values()) for row in read_csv(TODAY) if row["profile"] != name]
        for each in compared(simulate("profile", scenario, workers, fresh=False).result):
            described = name, preset, str(each.operator_class), each.operator, work_text(each.work), f"{each.calls}"
            rows.append((*described, f"{each.measured_ns:.1f}", f"{each.simulated_ns:.1f}", each.bound_by))
        write_csv(TODAY, SIMULATED, sorted(rows))


def predicted_rows() -> list[Row]:
    """The blind predictions, the longest in all calls first.

    Raises:
        ValueError: a kernel is not in both files.
    """
    measured_ns, predicted_ns = (
        {tuple(row[name] for name in COLUMNS): row[time] for row in read_csv(file)}
        for file, time in ((REFERENCE, "measured_ns"), (PREDICTIONS, "simulated_ns"))
    )
    differ = sorted(measured_ns.keys() ^ predicted_ns.keys())
    if differ:
        raise ValueError(f"not in both of {REFERENCE.name}, {PREDICTIONS.name}: {differ[0]}")
    return _rows((*key, measured_ns[key], predicted_ns[key]) for key in measured_ns)


def todays_rows() -> list[Row]:
    """The same profiles with today's code, without the kernels that a value was calibrated on."""
    operator, part = CALIBRATED
    rows = [row for row in read_csv(TODAY) if row["operator"] != operator or part not in row["work"]]
    return _rows(tuple(row[name] for name in SIMULATED) for row in rows)


def _rows(found: Iterable[Sequence[str]]) -> list[Row]:
    rows = [
        Row(profile, preset, operator_class, work, int(calls), float(measured), float(simulated))
        for profile, preset, operator_class, _, work, calls, measured, simulated, *_ in found
    ]
    return sorted(rows, key=lambda row: (-row.calls * row.measured_ns, row.profile, row.work))


def with_excess(rows: list[Row]) -> list[Row]:
    """The rows of kernels with the excess of the shortest kernel of their profile."""
    found = []
    for row in rows:
        alike = [one for one in rows if one.profile == row.profile and one.operator_class != COMMUNICATION]
        shortest = min(alike, default=row, key=lambda one: (one.measured_ns, one.simulated_ns))
        more_ns = excess_ns([(shortest.measured_ns, shortest.simulated_ns)]) if row in alike else 0.0
        found.append(row._replace(excess_ns=more_ns, calibrates=row == shortest))
    return found


def _class_of(row: Row) -> tuple[str, str]:
    return row.preset, row.operator_class + (" under 10 us" if row.measured_ns < SHORT_NS else "")


def _profile_of(row: Row) -> tuple[str, str]:
    return row.preset, row.profile


def _summary(rows: Sequence[Row]) -> list[str]:
    """Of a group of rows: their number, total time of all calls, and errors."""
    if not rows:
        return ["-"] * 6
    measured, simulated = (sum(row.calls * time for row, time in zip(rows, times, strict=True)) for times in (
        [row.measured_ns for row in rows], [row.simulated_ns for row in rows]))  # fmt: skip
    errors = [abs(row.error) for row in rows]
    others = [abs(row.error_with_excess) for row in rows if not row.calibrates]
    return [
        f"{len(rows)}",
        f"{measured / 1e6:,.3f}",
        f"{100 * (simulated / measured - 1):+.1f} %",
        f"{100 * median(errors):.1f} %",
        f"{sum(error <= WITHIN for error in errors)}",
        f"{100 * median(others):.1f} %" if others else "-",
    ]


def _groups(group_of: Callable[[Row], tuple[str, str]], title: str, predicted: list[Row], today: list[Row]) -> Table:
    order = [str(each) for each in OperatorClass]
    keys = {group_of(row) for row in (*predicted, *today)}
    ranked = sorted(keys, key=lambda key: (key[0], *([order.index(key[1].split(" under")[0])]
                                                     if group_of is _class_of else []), key[1]))  # fmt: skip
    rows = [
        [
            *key,
            *(cell for rows in (predicted, today) for cell in _summary([row for row in rows if group_of(row) == key])),
        ]
        for key in ranked
    ]
    each = (
        "kernels",
        "measured, all calls (ms)",
        "error of the sum",
        "median error of a kernel",
        "within 15 %",
        "median with the excess",
    )
    named = [f"{name}, {when}" for when in ("predicted", "today") for name in each]
    return Table(("machine", title, *named), rows)


def table(predicted: list[Row], today: list[Row]) -> str:
    """The page."""
    single = [
        (row.preset, row.work, f"{row.calls:,}", f"{row.measured_ns / 1000:,.1f}", f"{row.simulated_ns / 1000:,.1f}",
         f"{100 * row.error:+.1f} %")
        for row in today[:LONGEST]
    ]  # fmt: skip
    return to_markdown(
        [
            Heading("Kernels of public profiles", 1),
            Text(
                "Generated by `python -m validation.against.profiles`. Predicted: "
                "`validation/predictions/profiles.csv`, committed before the measured times were looked at (blind). "
                f"Measured: `validation/references/profiles.csv`, from {SOURCE}. "
                "Today: `validation/tables/profiles.csv`, with the measured times in view; calls that are told apart "
                "today were one kernel in the predictions. Two kernels are missing today: `dispatch.workgroup_ps` of "
                "mi300x is calibrated on them."
            ),
            Text(
                "With the excess: each kernel is given the time that the shortest one of its profile takes longer than "
                "it is simulated. That one is calibrated, so it is not in these medians."
            ),
            _groups(_class_of, "class", predicted, today),
            Heading("By profile", 2),
            _groups(_profile_of, "profile", predicted, today),
            Heading("The longest in all calls, today", 2),
            Table(("machine", "kernel or exchange", "calls", "measured (us)", "simulated (us)", "error"), single),
            notes(NOTES),
        ]
    )


@click.command()
@click.option("--simulate", "folder", type=click.Path(path_type=Path), help="Folder with PROFILES: simulate them.")
@click.option("--profile", "names", multiple=True, type=click.Choice(list(PROFILES)), help="Only these.")
@click.option("--workers", type=int, default=1, show_default=True)
def main(folder: Path | None, names: tuple[str, ...], workers: int) -> None:
    if folder:
        simulate_all(folder, names or tuple(PROFILES), workers)
    write_page(TABLE, table(with_excess(predicted_rows()), with_excess(todays_rows())))


if __name__ == "__main__":
    main()
