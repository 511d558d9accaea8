"""Run a study: simulate each distinct run of its points once, then write the archive."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sim import results
from sim.results import Failure, ResultsError, RunResult, write_runs
from sim.run.runner import Outcomes, Progress, reserved, run_all
from sim.run.store import Store
from sim.study.study import Study
from traces.output import output_path


@dataclass
class Outcome:
    """How a study ended.

    Attributes:
        archive: path of the results. The file is written only if no run was lost.
        points: number of points of the study.
        runs: number of distinct runs of the points.
        kept: number of runs whose results were in the store before.
        failed: number of points that have a reason instead of results.
        lost: one line for each point and lost run. With one or more lines the archive is not written; the same call
            simulates the lost runs again.
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
    threads: int = 1,
    store: Store | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Simulate the runs of a study and write its archive. Interruptions do not change its bytes.

    Args:
        study: `load_study`.
        folder: folder of the archive, whose name has a digest of the study's content.
        workers, scheduler, threads, fresh, progress: see `sim.run.runner.run_all`.
        store: finished runs; None = the user's store.

    Raises:
        UserError: the folder cannot be written, Dask is missing, no scheduler answers.
    """
    archive = folder / study.archive_name
    output_path(archive)
    runs = {run.key: run for point in study.points for run in point.runs}
    if not fresh and _is_whole(archive, study.digest):
        failed = len(results.open(archive).failures())
        return Outcome(archive, len(study.points), len(runs), len(runs), failed, [])
    with reserved(store or Store(), runs.values()) as writable:
        outcomes = run_all(
            *(runs.values(), writable),
            workers=workers,
            scheduler=scheduler,
            threads=threads,
            fresh=fresh,
            progress=progress,
        )
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
    """True if the archive exists and belongs to this study."""
    with suppress(ResultsError):
        return results.open(archive).study == digest
    return False


def _rows(study: Study, outcomes: Outcomes) -> Iterator[RunResult | Failure]:
    for point in study.points:
        yield from point.rows(outcomes)
