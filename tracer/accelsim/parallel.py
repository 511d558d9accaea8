"""Read the kernels of a list in several processes.

Worker w parses kernels w, w + jobs, w + 2 jobs, ... It sends batches of workgroups through a bounded queue, so memory
stays bounded. The consumer reads the queues in the order of the list, so the result is the same as with one process.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

from tracer.accelsim.kernel import AccelsimKernel
from tracer.accelsim.problems import Problems, TraceError
from tracer.accelsim.reader import AccelsimTrace, open_or_skip
from traces.errors import UserError
from traces.source import KernelInfo, KernelSource, Prefill, Workgroup

QUEUE_BATCHES = 4
BATCH_EVENTS = 1 << 16
"""Approximate number of events of a batch (4 MB)."""
LISTEN_S = 1.0
"""If the queue is empty for this time, the consumer checks that the worker still runs."""
WORKGROUPS, END, ERROR = "workgroups", "end", "error"


def parse_kernels(files: list[Path], lenient: bool, queue: "Queue[tuple[str, Any]]") -> None:
    """A worker. For every file it sends workgroups in batches, then END with the problems, or ERROR with a message."""
    for file in files:
        problems = Problems(lenient=lenient)
        batch: list[Workgroup] = []
        events = 0
        try:
            kernel = open_or_skip(file, problems)
            problems.oddities.clear()  # the main process reports problems of the header
            if kernel is None:
                continue
            for workgroup in kernel.workgroups():
                batch.append(workgroup)
                events += len(workgroup.events)
                if events >= BATCH_EVENTS:
                    queue.put((WORKGROUPS, batch))
                    batch, events = [], 0
        except UserError as error:
            queue.put((ERROR, str(error)))
            return
        queue.put((WORKGROUPS, batch))
        queue.put((END, problems))


class ParallelKernel:
    """A kernel (a KernelSource) that a worker reads. A second reading parses the file in this process."""

    def __init__(
        self, kernel: AccelsimKernel, worker: Any, queue: "Queue[tuple[str, Any]]", problems: Problems
    ) -> None:
        self.info: KernelInfo = kernel.info
        self._kernel, self._worker, self._queue, self._problems = kernel, worker, queue, problems
        self._fresh = True

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in the order of the file, starting at number `start`."""
        if not self._fresh:
            yield from self._kernel.workgroups(start)
            return
        yield from islice(self.drain(), start, None)

    def drain(self) -> Iterator[Workgroup]:
        """The remaining workgroups of the kernel in the queue."""
        while self._fresh:
            kind, content = self._next()
            if kind == WORKGROUPS:
                yield from content
                continue
            self._fresh = False
            if kind == ERROR:
                raise TraceError(content)
            self._problems.merge(content)

    def _next(self) -> tuple[str, Any]:
        while True:
            with suppress(Empty):
                return self._queue.get(timeout=LISTEN_S)
            if not self._worker.is_alive() and self._queue.empty():
                self._fresh = False
                raise TraceError(f"{self._kernel.header.path}: the reading process died")

    def fingerprint(self) -> str:
        """SHA-256 of the file's bytes."""
        return self._kernel.fingerprint()


class ParallelTrace:
    """The same commands as `trace`, parsed by `jobs` processes (a TraceSource)."""

    def __init__(self, trace: AccelsimTrace, jobs: int) -> None:
        if jobs < 1:
            raise UserError(f"jobs: found {jobs}, allowed 1 or more")
        self._trace, self._jobs = trace, jobs
        self.path, self.problems = trace.path, trace.problems

    def fingerprint(self) -> str:
        """SHA-256 of the commands and of the files' bytes."""
        return self._trace.fingerprint()

    def commands(self) -> Iterator[KernelSource | Prefill]:
        """Kernels and prefills in program order. The processes end with the iteration."""
        context = get_context("spawn")
        files = self._trace.files
        jobs = min(self._jobs, len(files))
        queues: list[Queue[tuple[str, Any]]] = [context.Queue(QUEUE_BATCHES) for _ in range(jobs)]
        workers = [
            context.Process(target=parse_kernels, args=(files[w::jobs], self.problems.lenient, queues[w]), daemon=True)
            for w in range(jobs)
        ]
        try:
            for worker in workers:
                worker.start()
            for number, command in self._trace.numbered_commands():
                if isinstance(command, Prefill):
                    yield command
                    continue
                turn = number % jobs
                kernel = ParallelKernel(command, workers[turn], queues[turn], self.problems)
                yield kernel
                for _ in kernel.drain():
                    pass
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()
