"""A sweep from its study to its archive: what is done already is kept, the rest runs, and all of it is merged."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sim import results
from sim.study.cluster import default_workers, run_here, run_on_cluster
from sim.study.point import Point
from sim.study.store import PointStore
from sim.study.study import Study
from traces.write import output_path

Progress = Callable[[int, int], None]
"""Called with (points done by this call, points that it has to do)."""


@dataclass
class Outcome:
    """How a sweep ended.

    Attributes:
        archive: where the results are, or will be when nothing is lost.
        points: of the study.
        kept: of these, done by an earlier call.
        failed: that have a reason in place of results.
        lost: one line for each point whose worker was lost. With one or more the archive is not written: the same call
            does what is left.
    """

    archive: Path
    points: int
    kept: int
    failed: int
    lost: list[str]


def sweep(
    study: Study,
    folder: Path,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run what is left of a study and write its archive; the same bytes, however often it was interrupted.

    Args:
        study: `load_study`.
        folder: for the archive, which is named by the study's content, and for finished points until then.
        workers: processes of a local Dask cluster; 0 = this process, without Dask; None = one per core.
        scheduler: address of a Dask scheduler to use instead.
        progress: called before the first and after each point.

    Raises:
        UserError: a folder that cannot be written, another sweep of the same study at work, no scheduler.
    """
    archive = folder / study.archive_name
    output_path(archive)
    store = PointStore(archive, len(study.points))
    if store.whole(study.digest):
        store.clear()
        failed = len(results.open(archive).failures())
        return Outcome(archive, len(study.points), len(study.points), failed, [])
    with store.locked():
        finished = set(store.finished())
        left = [point for point in study.points if point.number not in finished]
        lost = _run(left, store, default_workers() if workers is None else workers, scheduler, progress)
        failed = 0 if lost else store.merge(study.digest)
    return Outcome(archive, len(study.points), len(finished), failed, lost)


def _run(
    left: list[Point], store: PointStore, workers: int, scheduler: str | None, progress: Progress | None
) -> list[str]:
    ended = 0

    def done(point: Point, reason: str) -> None:
        nonlocal ended
        ended += 1
        if progress is not None:
            progress(ended, len(left))

    def target(number: int) -> str:
        return str(store.path(number).resolve())

    if progress is not None:
        progress(0, len(left))
    if not left:
        return []
    if scheduler is None and workers == 0:
        return run_here(left, target, done)
    return run_on_cluster(left, target, done, min(workers, len(left)), scheduler)
