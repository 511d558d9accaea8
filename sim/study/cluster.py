"""Points on workers: a local Dask cluster, a Dask scheduler by its address, or this process.

Workers write the points' archives themselves, so they need to see the study's folder and the output's; under Slurm,
PBS or Kubernetes the scheduler comes from Dask's own launchers.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sim.presets import load_preset
from sim.run.one_gpu import simulate
from sim.study.point import Point, run_point
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from traces.errors import UserError

WORKERS_PER_POINT = 2
"""A point that has lost so many workers of the local cluster is given up: too large for the memory, mostly."""
SCHEDULER_PATIENCE_S = 10
LOOPBACK = "127.0.0.1"
"""Of our own scheduler, workers and dashboard: whoever reaches a Dask scheduler can run code in its workers."""
Done = Callable[[Point, str], None]
"""Called for each point that has ended, with the reason where it failed, else ""."""


def run_here(points: Sequence[Point], target: Callable[[int], str], done: Done) -> list[str]:
    """Run the points in this process, one after the other. Returns the same as `run_on_cluster`."""
    for point in points:
        done(point, run_point(point, target(point.number)))
    return []


def run_on_cluster(
    points: Sequence[Point], target: Callable[[int], str], done: Done, workers: int, scheduler: str | None
) -> list[str]:
    """Run the points on Dask workers.

    Args:
        points: in the order in which they are started.
        target: number of a point -> path of its archive.
        done: called as points end, in any order.
        workers: processes of a local cluster.
        scheduler: address of a Dask scheduler; None = a local cluster.

    Returns:
        One line for each point whose worker was lost; it has no archive.

    Raises:
        UserError: no Dask, no scheduler at the address, or a point that could not be written: the rest is given up.
    """
    lost = []
    with _client(workers, scheduler) as (client, as_completed):
        futures = {
            client.submit(
                run_point, point, target(point.number), key=f"t3sim-{target(point.number)}", pure=False
            ): point
            for point in points
        }
        for future in as_completed(futures):
            point = futures[future]
            if future.status == "finished":
                done(point, future.result())
            elif future.status != "error":
                lost.append(f"point {point.number}: {future.status}, the scheduler is gone")
            elif isinstance(future.exception(), UserError | OSError):
                raise future.exception()
            else:
                lost.append(f"point {point.number}: {_first_line(future.exception())}")
            future.release()
    return lost


def _first_line(error: Any) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator[tuple[Any, Any]]:
    """A Dask client, and the function that waits for its futures."""
    try:
        import dask
        import distributed
    except ImportError:
        raise UserError("sweep: needs dask: pip install 't3sim[sweep]', or --workers 0 for this process") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what is lost is reported, without tracebacks
    if scheduler is None:
        warm_machine()  # once here, not once in every worker
        with _interrupts_ignored(), dask.config.set({"distributed.scheduler.allowed-failures": WORKERS_PER_POINT - 1}):
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
        raise UserError(f"--scheduler {scheduler}: no Dask scheduler answers there ({_first_line(problem)})") from None
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


def warm_machine() -> None:
    """Compile the machine, if it has not been."""
    gemm = GemmSource(GemmProblem(64, 64, 32), GemmKernel(64, 64, 32, 2, 2))
    simulate(CommandSequence([gemm]), load_preset("v100"))


def default_workers() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
