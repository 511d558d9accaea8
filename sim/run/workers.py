"""Simulate runs on Dask workers, of a local Dask cluster or of a Dask scheduler at an address.

Workers write the results, so they need access to the folder of the store. Under Slurm, PBS or Kubernetes, Dask's own
launchers start the scheduler. Local workers end with this process, even if it is killed.
"""

import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any

from sim.presets import load_preset
from sim.run.reason import reason_of
from sim.run.run import Run, gemm_run
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from traces.errors import Notice, UserError
from traces.output import scratch_folder

WORKERS_PER_RUN = 2
"""After a run has lost this many workers of the local cluster, it is lost. Most such runs need too much memory."""
SCHEDULER_PATIENCE_S = 10
"""Time in which a scheduler must answer. If no worker comes in it either, the user is told what is waited for."""
LOOPBACK = "127.0.0.1"
"""Address of the local scheduler, workers and dashboard. Anybody who reaches a Dask scheduler can run code in its
workers."""
Ended = Callable[[str, str, str], None]
"""Called for each run that has ended, with its key, why it failed ("" = it did not), why it was lost (the same)."""


def run_on_workers(
    work: Callable[[Run, str], str], runs: Mapping[str, Run], ended: Ended, workers: int, scheduler: str | None
) -> None:
    """Simulate runs on Dask workers.

    Args:
        work: simulates a run with a key and returns why it failed; "" = it did not. Must be picklable.
        runs: key -> run, in the order in which they are started.
        ended: called when a run ends, in any order.
        workers: processes of a local cluster.
        scheduler: address of a Dask scheduler; None = a local cluster.

    Raises:
        UserError: Dask is missing, no scheduler at the address, or `work` raised it. The other runs are then cancelled.
    """
    with _client(workers, scheduler) as (client, as_completed):
        left, key_of = iter(runs.items()), {}

        def start(count: int | None) -> list[Any]:
            """Submit the next runs. Dask runs each key once, even for several clients."""
            started = []
            for key, run in islice(left, count):
                future = client.submit(work, run, key, key=f"t3sim-{key}", pure=False)
                key_of[future] = key
                started.append(future)
            return started

        # A lost local worker also loses the runs in its queue. So submit no more runs than workers.
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
    """Context manager: a Dask client, and the function that waits for its futures."""
    try:
        import dask
        import distributed
    except ImportError:
        raise UserError("workers: need Dask: pip install 't3sim[study]', or --workers 0 for this process") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # lost runs are reported without tracebacks
    if scheduler is None:
        compile_machine()  # once here, not once in every worker
        with scratch_folder("dask") as scratch:
            settings = {
                "distributed.scheduler.allowed-failures": WORKERS_PER_RUN - 1,
                "temporary-directory": str(scratch),
            }
            with _interrupts_ignored(), dask.config.set(settings):
                cluster = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    memory_limit=0,
                    host=LOOPBACK,
                    dashboard_address=f"{LOOPBACK}:0",
                    local_directory=str(scratch),
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
        try:
            client.wait_for_workers(1, timeout=SCHEDULER_PATIENCE_S)
        except TimeoutError:  # a batch system may start them in minutes
            text = f"--scheduler {scheduler}: it has no workers yet; the runs start when one comes"
            warnings.warn(text, Notice, stacklevel=3)  # of the `with` block
        yield client, distributed.as_completed


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Context manager: processes started in the block ignore Ctrl-C. This process ends them in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def compile_machine() -> None:
    """Compile the compiled functions of the machine, if they are not in the cache."""
    gemm_run(load_preset("v100"), GemmSource(GemmProblem(64, 64, 32), GemmKernel(64, 64, 32, 2, 2))).execute()
