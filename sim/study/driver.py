"""A study from its file to its archive: all runs of all points are done once, then the archive is put together."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sim import results
from sim.results import Failure, ResultsError, RunResult, write_runs
from sim.run.runner import Outcomes, Progress, reserved, run_all
from sim.run.store import Store
from sim.study.study import Study
from traces.write import output_path


@dataclass
class Outcome:
    """How a study ended.

    Attributes:
        archive: where the results are, or will be when nothing is lost.
        points: of the study.
        runs: distinct simulations behind them.
        kept: of these, in the store before.
        failed: points that have a reason in place of results.
        lost: one line for each point and run of it that was lost. With one or more the archive is not written: the same
            call does what is left.
    """

    archive: Path
    points: int
    runs: int
    kept: int
    failed: int
    lost: list[str]


def run_study(
    study: Study,
    folder: Path,
    workers: int | None = None,
    scheduler: str | None = None,
    *,
    store: Store | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Do the runs of a study and write its archive; the same bytes, however often it was interrupted.

    Args:
        study: `load_study`.
        folder: for the archive, which is named by the study's content.
        workers, scheduler, fresh, progress: see `sim.run.runner.run_all`.
        store: of finished runs; None = the user's.

    Raises:
        UserError: a folder that cannot be written, no Dask, no scheduler.
    """
    archive = folder / study.archive_name
    output_path(archive)
    runs = {run.key: run for point in study.points for run in point.runs}
    if not fresh and _is_whole(archive, study.digest):
        failed = len(results.open(archive).failures())
        return Outcome(archive, len(study.points), len(runs), len(runs), failed, [])
    with reserved(store or Store(), runs.values()) as keeping:
        outcomes = run_all(runs.values(), keeping, workers=workers, scheduler=scheduler, fresh=fresh, progress=progress)
        if not outcomes.lost:
            write_runs(archive, _rows(study, outcomes), study.digest)
    failed = sum(bool(point.failure(outcomes)) for point in study.points)
    lost = [
        f"point {point.number}: {outcomes.lost[run.key]} ({run.title})"
        for point in study.points
        for run in point.runs
        if run.key in outcomes.lost
    ]
    return Outcome(archive, len(study.points), len(runs), len(outcomes.from_store), failed, lost)


def _is_whole(archive: Path, digest: str) -> bool:
    """Is the archive there, and is it that of this study?"""
    with suppress(ResultsError):
        return results.open(archive).study == digest
    return False


def _rows(study: Study, outcomes: Outcomes) -> Iterator[RunResult | Failure]:
    for point in study.points:
        yield from point.rows(outcomes)
