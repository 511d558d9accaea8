"""Many runs: each distinct run is simulated once, or not at all if the store has its result.

    with reserved(Store(), runs) as store:
        outcomes = run_all(runs, store, workers=2)
        outcomes.result(runs[0])

Each result is in the store as soon as its run ends. An interruption loses no finished run. Results have the same bytes
for any number of workers and threads.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from sim.host.team import check_threads, cores, use_threads
from sim.presets.check import check_machine
from sim.run.apart import execute_apart
from sim.run.hold import holding
from sim.run.reason import reason_of
from sim.run.result import RunResult
from sim.run.run import Run
from sim.run.store import Store
from sim.run.workers import run_on_workers
from traces.errors import Notice, UserError
from traces.output import remove_leftovers, scratch_folder

Progress = Callable[[int, int], None]
"""Called with (number of finished runs, number of runs to simulate), before the first run and after each run."""


class OtherRunError(Exception):
    """The run has another key in this process than in the process that requested it."""


@dataclass
class Outcomes:
    """How runs ended.

    Attributes:
        store: contains the results.
        from_store: keys of the runs whose results were in the store before.
        failed: key -> reason, one line. The run would fail again.
        lost: key -> reason, one line: its worker or scheduler ended, the memory was full. A new try can succeed.
    """

    store: Store
    from_store: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    def result(self, run: Run) -> RunResult:
        """The result of a run.

        Raises:
            UserError: the result was removed from the store.
        """
        result = self.store.get(run.key)
        if result is None:
            raise UserError(f"{self.store.folder}: the result of {run.title} was removed: simulate it again")
        return run.signed(result)


def run_all(
    runs: Iterable[Run],
    store: Store,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    threads: int | None = None,
    fresh: bool = False,
    in_order: bool = False,
    progress: Progress | None = None,
) -> Outcomes:
    """Simulate all runs that have no result in the store.

    Args:
        runs: the runs; equal runs are simulated once.
        store: results are stored there; workers must see its folder.
        workers: processes of a local Dask cluster; 0 or 1 = this process, without Dask; None = one per core.
        scheduler: address of a Dask scheduler to use instead.
        threads: of each run; None = one on several workers, all cores in this process.
        fresh: simulate runs that the store has too; the new results replace the old ones.
        in_order: begin them in the order of `runs`; else the longest first, which ends sooner.
        progress: see Progress.

    Raises:
        UserError: workers below 0, bad threads, Dask is missing, no scheduler answers, the store cannot be written.
    """
    workers = cores() if workers is None else workers
    if type(workers) is not int or workers < 0:
        raise UserError(f"workers: found {workers!r}, allowed is a whole number from 0")
    check_threads(threads)
    wanted = {run.key: run for run in runs}
    outcomes = Outcomes(store, set() if fresh else {key for key in wanted if store.get(key) is not None})
    left = {key: run for key, run in wanted.items() if key not in outcomes.from_store}
    if not in_order:
        left = dict(sorted(left.items(), key=lambda item: -item[1].cost))
    ended = _recorder(outcomes, len(left), progress)
    if left:
        here = scheduler is None and workers <= 1
        work = partial(do_run, store=store, fresh=fresh, threads=threads if here else threads or 1)
        if here:
            _run_here(work, left, ended)
        else:
            run_on_workers(work, left, ended, min(workers, len(left)), scheduler)
    return outcomes


def _recorder(outcomes: Outcomes, total: int, progress: Progress | None) -> Callable[[str, str, str], None]:
    done = 0
    if progress:
        progress(0, total)

    def ended(key: str, failed: str, lost: str) -> None:
        nonlocal done
        done += 1
        if failed:
            outcomes.failed[key] = failed
        elif lost or not outcomes.store.path(key).exists():
            outcomes.lost[key] = lost or f"its result is not in {outcomes.store.folder} as this process sees it"
        if progress:
            progress(done, total)

    return ended


def _run_here(work: Callable[[Run, str], str], runs: dict[str, Run], ended: Callable[[str, str, str], None]) -> None:
    """Simulate runs in this process, one after the other."""
    for key, run in runs.items():
        failed = lost = ""
        try:
            failed = work(run, key)
        except (MemoryError, OSError, OtherRunError) as problem:
            lost = reason_of(problem)
        ended(key, failed, lost)


def do_run(run: Run, key: str, *, store: Store, fresh: bool, threads: int | None = 1) -> str:
    """Simulate one run and store its result. Returns why it failed; "" = it did not.

    Raises:
        UserError: the store cannot be written.
        OtherRunError: the key of the run is not `key`.
        MemoryError, OSError: a problem of this machine at this time, not of the run.
    """
    if run.key != key:
        raise OtherRunError("a file of the run has changed, or this worker has another version of the file or of t3sim")
    if not fresh and store.get(key) is not None:
        return ""  # another process has simulated it meanwhile
    try:
        check_machine(run.preset.machine)
        policy = run.foreign_policy
        with use_threads(threads):
            result = execute_apart(run, policy) if policy else run.execute()
    except (MemoryError, OSError):
        raise
    except Exception as error:  # an error in the simulator or in a policy fails this run only, like a UserError
        return reason_of(error)
    store.write(key, result)
    return ""


@contextmanager
def reserved(store: Store, runs: Iterable[Run]) -> Iterator[Store]:
    """Context manager: a store that removes no result of these runs while the block runs.

    It is the given store. If that store cannot be written or is refused, it is a temporary folder, with a warning.
    """
    with ExitStack() as stack:
        try:
            store.make()
            remove_leftovers(store.folder)
            stack.enter_context(holding(store.folder, [run.key for run in runs]))
        except (OSError, UserError) as problem:
            folder = stack.enter_context(scratch_folder("store"))
            text = f"results cannot be kept in {store.folder} ({problem}): a temporary folder takes its place"
            warnings.warn(text, Notice, stacklevel=3)  # of the `with` block
            store = Store(folder, sys.maxsize)
        yield store
