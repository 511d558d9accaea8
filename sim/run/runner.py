"""Many runs: each distinct one is simulated once, and one whose result the store has is not simulated at all.

    with reserved(Store(), runs) as store:
        outcomes = run_all(runs, store, workers=2)
        outcomes.result(runs[0])

Each result is in the store as soon as its run ends. So nothing that has ended is lost, whatever stops the rest, and the
results are the same bytes for any number of workers.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory

from sim.machine.limits import check_limits
from sim.run.apart import execute_apart
from sim.run.hold import holding
from sim.run.reason import reason_of
from sim.run.result import RunResult
from sim.run.run import Run
from sim.run.store import Store
from sim.run.workers import default_workers, run_on_workers
from traces.errors import UserError

Progress = Callable[[int, int], None]
"""Called with (runs that this call has done, runs that it has to do), before the first and after each."""


class OtherRunError(Exception):
    """The run is not the same here as where it was asked for."""


@dataclass
class Outcomes:
    """How runs ended.

    Attributes:
        store: that has the results.
        from_store: keys of the runs whose results it had before.
        failed: key -> why, on one line; the run would fail again.
        lost: key -> why, on one line: its worker or scheduler is gone, the memory was full; it may be tried again.
    """

    store: Store
    from_store: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def result(self, run: Run) -> RunResult:
        """What a run found.

        Raises:
            UserError: somebody has removed it from the store.
        """
        found = self.store.get(run.key)
        if found is None:
            raise UserError(f"{self.store.folder}: the result of {run.title} has gone: ask for it again")
        return run.signed(found)


def run_all(
    runs: Iterable[Run],
    store: Store,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Outcomes:
    """Do all runs that the store has no result of, those that take longest first.

    Args:
        runs: what to simulate; equal ones are one.
        store: where results are kept; workers must see its folder.
        workers: processes of a local Dask cluster; 0 or 1 = this process, without Dask; None = one per core.
        scheduler: address of a Dask scheduler to use instead.
        fresh: simulate, whatever the store has; the results replace it.
        progress: see Progress.

    Raises:
        UserError: workers below 0, no Dask, no scheduler, a store that cannot be written.
    """
    workers = default_workers() if workers is None else workers
    if workers < 0:
        raise UserError(f"workers: found {workers}, allowed is 0 and more")
    wanted = {run.key: run for run in runs}
    outcomes = Outcomes(store, set() if fresh else {key for key in wanted if store.get(key) is not None})
    left = {key: run for key, run in wanted.items() if key not in outcomes.from_store}
    left = dict(sorted(left.items(), key=lambda item: -item[1].cost))
    ended = _recorder(outcomes, len(left), progress)
    if left:
        work = partial(do_run, store=store, fresh=fresh)
        if scheduler is None and workers <= 1:
            _run_here(work, left, ended)
        else:
            run_on_workers(work, left, ended, min(workers, len(left)), scheduler)
    return outcomes


def _recorder(outcomes: Outcomes, whole: int, progress: Progress | None) -> Callable[[str, str, str], None]:
    done = 0
    if progress:
        progress(0, whole)

    def ended(key: str, failed: str, lost: str) -> None:
        nonlocal done
        done += 1
        if failed:
            outcomes.failed[key] = failed
        elif lost or not outcomes.store.path(key).exists():
            outcomes.lost[key] = lost or f"its result is not in {outcomes.store.folder} as this process sees it"
        if progress:
            progress(done, whole)

    return ended


def _run_here(work: Callable[[Run, str], str], runs: dict[str, Run], ended: Callable[[str, str, str], None]) -> None:
    """Do runs in this process, one after the other."""
    for key, run in runs.items():
        failed = lost = ""
        try:
            failed = work(run, key)
        except (MemoryError, OSError, OtherRunError) as problem:
            lost = reason_of(problem)
        ended(key, failed, lost)


def do_run(run: Run, key: str, *, store: Store, fresh: bool) -> str:
    """Do one run, and keep its result. Returns why it failed, "" where it did not.

    Raises:
        UserError: the store cannot be written.
        OtherRunError: see there.
        MemoryError, OSError: of this machine and moment, not of the run.
    """
    if run.key != key:
        raise OtherRunError("a file that it names has changed, or this worker has another one or another t3sim")
    if not fresh and store.get(key) is not None:
        return ""  # somebody else has done it meanwhile
    try:
        check_limits(run.preset.machine)
        policy = run.foreign_policy
        result = execute_apart(run, policy) if policy else run.execute()
    except (MemoryError, OSError):
        raise
    except Exception as error:  # a fault of the simulator or of a policy fails its run only, as a UserError does
        return reason_of(error)
    store.write(key, result)
    return ""


@contextmanager
def reserved(store: Store, runs: Iterable[Run]) -> Iterator[Store]:
    """A store that keeps the results of these runs as long as the block lasts.

    It is the given one, or, with a warning, a temporary folder where that one cannot be written.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(holding(store.folder, [run.key for run in runs]))
        except OSError as problem:
            folder = stack.enter_context(TemporaryDirectory(prefix="t3sim-store-"))
            text = f"results cannot be kept in {store.folder} ({problem.strerror}): a temporary folder takes its place"
            warnings.warn(text, RuntimeWarning, stacklevel=3)  # of the `with` block
            store = Store(folder, sys.maxsize)
        yield store
