"""Runs tasks in one process or several. What is done is in the store at once; the order of ending decides nothing."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.connection import wait
from threading import Thread

from traces.errors import UserError
from validation.experiments.store import Store
from validation.experiments.task import Outcome, Task

Progress = Callable[[str, int, int], None]
"""Called with (task, tasks done, tasks)."""


def run_tasks(
    tasks: Iterable[Task], store: Store, workers: int = 1, progress: Progress | None = None
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Do all tasks that the store has not done.

    Returns:
        (key -> outcome of every task that is done, key -> why of those that failed), in the order of `tasks`.

    Raises:
        UserError: fewer than one worker, or a store that cannot be written.
    """
    if workers < 1:
        raise UserError(f"workers: found {workers}, allowed is 1 and more")
    wanted = {task.key: task for task in tasks}
    done = {key: outcome for key in wanted if (outcome := store.get(key)) is not None}
    missing = sorted((task for key, task in wanted.items() if key not in done), key=lambda task: -task.cost)
    failed: dict[str, str] = {}
    for task, outcome, problem in _run(missing, store, min(workers, len(missing))):
        if problem:
            failed[task.key] = problem
        else:
            done[task.key] = outcome
        if progress:
            progress(task.title, len(done) + len(failed), len(wanted))
    return (
        {key: done[key] for key in wanted if key in done},
        {key: failed[key] for key in wanted if key in failed},
    )


def _run(tasks: list[Task], store: Store, workers: int) -> Iterator[tuple[Task, Outcome, str]]:
    """(task, what it found, why it failed) as they end."""
    if workers <= 1:
        yield from ((task, *_do(task, store)) for task in tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_end_with_parent) as pool:
        running = {pool.submit(_do, task, store): task for task in tasks}
        try:
            for future in as_completed(running):
                yield running[future], *future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _do(task: Task, store: Store) -> tuple[Outcome, str]:
    """One task, into the store. A mistake in its input fails it alone."""
    try:
        outcome = task.work()
    except UserError as problem:
        return {}, str(problem)
    store.put(task.key, outcome)
    return outcome, ""


def _end_with_parent() -> None:
    """A worker whose parent was killed has nobody to work for."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()
