"""Runs on Dask workers: those of a local Dask cluster, or of a Dask scheduler by its address.

Workers write the results themselves, so they need to see the folder of the store; under Slurm, PBS or Kubernetes the
scheduler comes from Dask's own launchers. Local workers end with this process, however it ends.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from sim.presets import load_preset
from sim.run.reason import reason_of
from sim.run.run import Run, gemm_run
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from traces.errors import UserError

WORKERS_PER_RUN = 2
"""A run that has lost so many workers of the local cluster is given up: too large for the memory, mostly."""
SCHEDULER_PATIENCE_S = 10
LOOPBACK = "127.0.0.1"
"""Of our own scheduler, workers and dashboard: whoever reaches a Dask scheduler can run code in its workers."""
Ended = Callable[[str, str, str], None]
"""Called for each run that has ended, with its key, why it failed and why it was lost; "" = not so."""


def run_on_workers(
    work: Callable[[Run, str], str], runs: Mapping[str, Run], ended: Ended, workers: int, scheduler: str | None
) -> None:
    """Do runs on Dask workers.

    Args:
        work: does a run of a key and returns why it failed, "" where it did not; picklable.
        runs: key -> run, in the order in which they are started.
        ended: called as they end, in any order.
        workers: processes of a local cluster.
        scheduler: address of a Dask scheduler; None = a local cluster.

    Raises:
        UserError: no Dask, no scheduler at the address, or what `work` raised: the rest is given up.
    """
    with _client(workers, scheduler) as (client, as_completed):
        left, key_of = iter(runs.items()), {}

        def start(count: int | None) -> list[Any]:
            """Submit the next runs, each once for all who ask for its key."""
            started = []
            for key, run in islice(left, count):
                future = client.submit(work, run, key, key=f"t3sim-{key}", pure=False)
                key_of[future] = key
                started.append(future)
            return started

        # A local worker that is lost takes along what waits for it, so that nothing does.
        ending = as_completed(start(workers if scheduler is None else None))
        for future in ending:
            _report(future, key_of.pop(future), ended)
            future.release()
            ending.update(start(1))


def _report(future: Any, key: str, ended: Ended) -> None:
    if future.status == "finished":
        ended(key, future.result(), "")
    elif future.status != "error":
        ended(key, "", f"{future.status}, the scheduler is gone")
    elif isinstance(future.exception(), UserError):
        raise future.exception()
    else:
        ended(key, "", reason_of(future.exception()))


@contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator[tuple[Any, Any]]:
    """A Dask client, and the function that waits for its futures."""
    try:
        import dask
        import distributed
    except ImportError:
        raise UserError("workers: need Dask: pip install 't3sim[study]', or --workers 0 for this process") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what is lost is reported, without tracebacks
    if scheduler is None:
        compile_machine()  # once here, not once in every worker
        with _interrupts_ignored(), dask.config.set({"distributed.scheduler.allowed-failures": WORKERS_PER_RUN - 1}):
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=0,
                host=LOOPBACK,
                dashboard_address=f"{LOOPBACK}:0",
                silence_logs=logging.CRITICAL,
            )
        with cluster, distributed.Client(cluster) as client:
            yield client, distributed.as_completed
        return
    try:
        client = distributed.Client(scheduler, timeout=SCHEDULER_PATIENCE_S)
    except (OSError, ValueError) as problem:
        raise UserError(f"--scheduler {scheduler}: no Dask scheduler answers there ({reason_of(problem)})") from None
    with client:
        yield client, distributed.as_completed


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes started meanwhile ignore Ctrl-C for good: this one ends them, in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def compile_machine() -> None:
    """Compile the machine, if it has not been."""
    gemm_run(load_preset("v100"), GemmSource(GemmProblem(64, 64, 32), GemmKernel(64, 64, 32, 2, 2))).execute()


def default_workers() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
