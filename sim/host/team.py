"""The threads of a run, and their number. Compiled functions release the interpreter lock, so threads work at once.

Results do not depend on the number of threads.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tracer.compile.atomics import PLAIN
from traces.errors import UserError
from traces.variable import number_in

Work = Callable[[int], Any]
"""Called with the number of the thread, counted from 0."""
Failed = Callable[[], None]

VARIABLE = "T3SIM_THREADS"
QUOTA = Path("/sys/fs/cgroup/cpu.max")
MOST_THREADS = 256
GPU_THREADS = 8
"""Most threads of one GPU if nobody has chosen a number: more wait for the phases that have one thread
(`validation/tables/bench_threads_16_cores.md`: 8 are best for a GEMM, 4 for T3, 16 for neither)."""
_threads: ContextVar[int | None] = ContextVar("threads", default=None)


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Context manager: number of threads of each run in the block; None = the number outside the block.

    Raises:
        UserError: a count below 1 or above MOST_THREADS.
    """
    check_threads(count)
    before = _threads.set(_threads.get() if count is None else count)
    try:
        yield
    finally:
        _threads.reset(before)


def check_threads(count: int | None) -> None:
    """Refuse a number of threads that cannot be. None = not chosen.

    Raises:
        UserError: no whole number, below 1 or above MOST_THREADS.
    """
    if count is not None and (type(count) is not int or not 1 <= count <= MOST_THREADS):
        raise UserError(f"threads: found {count!r}, allowed is 1 to {MOST_THREADS}")


def chosen() -> int | None:
    """The number of threads of a run that somebody has chosen: by `use_threads`, else by $T3SIM_THREADS; else None.

    Raises:
        UserError: T3SIM_THREADS is not a whole number from 1 to MOST_THREADS.
    """
    wanted = number_in(VARIABLE, 1, MOST_THREADS)
    return _threads.get() or wanted


def threads() -> int:
    """Number of threads of a run that starts now: the chosen one, else as many as there are cores.

    Raises:
        UserError: as `chosen`.
    """
    if PLAIN:
        return 1  # plain Python cannot share records between threads
    return chosen() or min(cores(), MOST_THREADS)


def threads_of_each(gpus: int = 1) -> int:
    """Number of threads of each of some GPUs that are simulated at once."""
    count = max(1, threads() // gpus)
    return count if chosen() else min(count, GPU_THREADS)


def cores() -> int:
    """Cores that this process may use. In a container with a quota of CPU time: as many as the quota pays for."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = QUOTA.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return count
    return count if quota == "max" else max(1, min(count, int(quota) // int(period)))


class Team:
    """The calling thread (number 0) and workers that live as long as this object.

    Attributes:
        count: number of threads.
    """

    def __init__(self, count: int):
        self.count = count
        self._jobs: list[SimpleQueue[tuple[Work, Failed] | None]] = []
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self, work: Work, failed: Failed = lambda: None) -> Any:
        """Call `work` on all threads at once, and wait for all of them. Returns the result of the calling thread.

        Args:
            failed: called when the work of a thread has raised an error. It must make the other threads return soon.

        Raises:
            The error of a thread, if there was one.
        """
        if len(self._jobs) < self.count - 1:
            self._start()
        for jobs in self._jobs:
            jobs.put((work, failed))
        result, error = None, None
        try:
            result = work(0)
        except BaseException as problem:
            failed()
            error = problem
        for _ in self._jobs:
            ended = self._wait()
            error = error or ended  # other threads may have failed because the calling thread did
        if error:
            raise error
        return result

    def _start(self) -> None:
        self._jobs = [SimpleQueue() for _ in range(self.count - 1)]
        for number, jobs in enumerate(self._jobs, 1):
            threading.Thread(target=_serve, args=(number, jobs, self._ended), daemon=True).start()
        weakref.finalize(self, _end, self._jobs)

    def _wait(self) -> BaseException | None:
        """Wait until one worker has ended its work. Returns its error, or an interrupt of the user meanwhile."""
        interrupt = None
        while True:
            try:
                return self._ended.get() or interrupt
            except KeyboardInterrupt as problem:
                interrupt = problem


def _serve(
    number: int, jobs: "SimpleQueue[tuple[Work, Failed] | None]", ended: "SimpleQueue[BaseException | None]"
) -> None:
    """The life of a worker: do each job that comes; None ends it."""
    while job := jobs.get():
        work, failed = job
        error = None
        try:
            work(number)
        except BaseException as problem:
            failed()
            error = problem
        del job, work, failed  # a worker that waits keeps nothing alive
        ended.put(error)


def _end(queues: "list[SimpleQueue[tuple[Work, Failed] | None]]") -> None:
    for jobs in queues:
        jobs.put(None)
