"""Measure the NVIDIA GPU of this machine: `python -m validation.against.measure_gpu -o gpu.csv`.

Without a GPU the command prints a message and measures nothing.

    gemm, operator   time of the paper's sub-layer GEMMs and of the kernels in `predictions/*_shapes.csv`, as PyTorch
                     runs them (`validation.against.gpu_kernels`), each with an empty L2
    launch           time of the shortest kernel: between two events, and in a graph of many
    counters         L2 and DRAM sectors of all these kernels and their time alone, if Nsight Compute can read them
    chase, stream, loaded, beside   memory and contention (`validation.against.gpu_memory`)

The command needs torch, and cupy for the memory. What is not possible is left out and named on stderr. Rows have their
provenance; `validation.against.gpu_measurements` reads and compares them. `gpu_kernels.csv` beside `gpu.csv` has the
names and the grids of the kernels.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from tracer.workloads import PAPER_NAMES, named_sublayer
from validation.against.gpu_kernels import LISTS, kernel_call, shapes
from validation.against.gpu_memory import (
    BESIDE_CALLS,
    FLUSH_BYTES,
    LOADED_RUNS,
    REPEATS,
    event_us,
    measure_beside,
    measure_loaded,
    measure_memory,
)
from validation.against.gpu_rows import (
    SECTORS,
    MeasuredRow,
    NcuCase,
    NotPossible,
    ncu_cases,
    write_kernels,
    write_rows,
)

GRAPH_KERNELS = 100
KERNEL_TIME = "gpu__time_duration.sum"
METRICS = ("lts__t_sectors_op_read", "lts__t_sectors_op_write", "dram__sectors_read", "dram__sectors_write")
NCU_METRICS = {quantity: f"{metric}.sum" for quantity, metric in zip(SECTORS, METRICS, strict=True)}
"""Quantity -> metric of Nsight Compute."""
MARKER = "spin_kernel"
"""Kernel of torch.cuda._sleep. It ends the kernels of a case for Nsight Compute."""


def find_gpu() -> tuple[Any, str]:
    """torch with a CUDA device, and the provenance of its measurements.

    Raises:
        NotPossible: no driver, no torch, or torch sees no device.
    """
    if shutil.which("nvidia-smi") is None:
        raise NotPossible("no NVIDIA GPU on this machine (nvidia-smi is missing)")
    try:
        import torch
    except ImportError:
        raise NotPossible("an NVIDIA driver but no torch: pip install torch") from None
    if not torch.cuda.is_available():
        raise NotPossible("torch sees no CUDA device")
    return torch, _provenance(torch)


def _provenance(torch: Any) -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader", "--id=0"]
    device = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"validation/against/measure_gpu.py on {torch.cuda.get_device_name(0)}; driver, largest SM and memory "
        f"clock: {device}; "
        f"torch {torch.__version__}, CUDA {torch.version.cuda}; median of {REPEATS} "
        f"(loaded: of {LOADED_RUNS}; beside: mean of {BESIDE_CALLS} calls); {date.today().isoformat()}"
    )


def cases() -> list[str]:
    """The paper's sub-layers, then the kernels whose time is predicted."""
    return [*PAPER_NAMES, *(row["kernel"] for of in LISTS for row in shapes(of))]


def kind_of(case: str) -> str:
    """gemm or operator."""
    return "operator" if ":" in case and not case.startswith("gemm:") else "gemm"


def call_of(torch: Any, case: str) -> Callable[[], Any]:
    """A function that runs a case once, on tensors made before. A sub-layer's rows are padded as its problem says.

    Raises:
        ValueError: PyTorch has no such kernel.
    """
    if ":" in case:
        return kernel_call(torch, case)
    problem, _ = named_sublayer(case)
    a = torch.randn(problem.m, problem.lda, dtype=torch.float16, device="cuda")[:, : problem.k]
    b = torch.randn(problem.k, problem.ldb, dtype=torch.float16, device="cuda")[:, : problem.n]
    c = torch.empty(problem.m, problem.ldc, dtype=torch.float16, device="cuda")[:, : problem.n]
    return lambda: torch.matmul(a, b, out=c)


def possible_calls(torch: Any, names: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name and call of each case that PyTorch runs. The others are named on stderr."""
    for name in names:
        try:
            run = call_of(torch, name)
            run()
            torch.cuda.synchronize()
        except Exception as problem:
            print(f"left out: {name}: {str(problem)[:200]}", file=sys.stderr)
            continue
        yield name, run


def measure_times(torch: Any, names: list[str]) -> Iterator[MeasuredRow]:
    """Median time in us of each case alone, between two events, with no line of its data and no dirty line in L2."""
    flush = torch.zeros(FLUSH_BYTES // 8, dtype=torch.int64, device="cuda")
    for name, run in possible_calls(torch, names):
        yield MeasuredRow(kind_of(name), name, "time", _time_us(torch, run, flush), "us")


def measure_launch(torch: Any) -> Iterator[MeasuredRow]:
    """Time of a kernel that does nearly nothing: as `measure_times`, and from kernel to kernel in a graph."""
    flush = torch.zeros(FLUSH_BYTES // 8, dtype=torch.int64, device="cuda")
    one = torch.zeros(1, device="cuda")
    yield MeasuredRow("launch", "between events", "time", _time_us(torch, lambda: one.add_(1), flush), "us")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_KERNELS):
            one.add_(1)
    times_us = [event_us(torch, graph.replay) / GRAPH_KERNELS for _ in range(REPEATS + 3)]
    yield MeasuredRow("launch", "in a graph", "time", median(times_us[3:]), "us")


def _time_us(torch: Any, run: Callable[[], Any], flush: Any) -> float:
    times_us = []
    for _ in range(REPEATS + 3):
        flush.sum()  # reads: lines that are clean replace all others
        flush.sum()
        times_us.append(event_us(torch, run))
    return median(times_us[3:])


def profile(names: list[str]) -> list[tuple[str, NcuCase]]:
    """What Nsight Compute says of each case.

    Raises:
        NotPossible: ncu is missing or has no permission to read the counters.
    """
    if shutil.which("ncu") is None:
        raise NotPossible("no Nsight Compute (ncu)")
    command = [
        *("ncu", "--csv", "--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off"),
        *("--print-units", "base"),
        *("--metrics", ",".join((*NCU_METRICS.values(), KERNEL_TIME))),
        *(sys.executable, "-m", "validation.against.measure_gpu", "--only", *names),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
    found = ncu_cases(done.stdout, MARKER)
    if done.returncode or len(found) != len(names) or not any(one.sums for one in found):
        text = (done.stderr or done.stdout)[-300:]
        raise NotPossible(f"ncu gave counters of {len(found)} cases, not of {len(names)}: {text}")
    return list(zip(names, found, strict=True))


def count_sectors(cases: list[tuple[str, NcuCase]]) -> Iterator[MeasuredRow]:
    """L2 and DRAM sectors of each case, summed over its kernels, and the time of the kernels without launches."""
    for name, (sums, _) in cases:
        for quantity, metric in NCU_METRICS.items():
            if sums.get(metric):
                yield MeasuredRow(kind_of(name), name, quantity, sums[metric], "sector")
        if sums.get(KERNEL_TIME):
            yield MeasuredRow(kind_of(name), name, "kernel_time", sums[KERNEL_TIME] / 1000, "us")


def run_only(torch: Any, names: list[str]) -> None:
    """Run each case once between the profiler marks for ncu, and a marker kernel after it."""
    calls = dict(possible_calls(torch, names))
    for name in names:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        if name in calls:
            calls[name]()
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def measure(
    torch: Any,
    names: list[str],
    keep: Callable[[list[MeasuredRow]], None],
    keep_kernels: Callable[[list[tuple[str, NcuCase]]], None],
) -> list[MeasuredRow]:
    """All rows that this machine can measure. The others are named on stderr.

    keep: called after each part. keep_kernels: called with what Nsight Compute says of the cases.
    """

    def counted() -> Iterator[MeasuredRow]:
        cases = profile(names)
        keep_kernels(cases)
        return count_sectors(cases)

    rows: list[MeasuredRow] = []
    parts: tuple[Callable[[], Iterator[MeasuredRow]], ...] = (
        lambda: measure_times(torch, names),
        lambda: measure_launch(torch),
        measure_memory,
        measure_loaded,
        lambda: measure_beside(torch, lambda name: call_of(torch, name)),
        counted,
    )
    for part in parts:
        try:
            rows.extend(part())
        except NotPossible as missing:
            print(f"left out: {missing}", file=sys.stderr)
        if rows:
            keep(rows)
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="gpu.csv", help="CSV to write (default gpu.csv)")
    parser.add_argument("--case", action="append", help="only this one, e.g. t-nlg/fc2/tp8; may be repeated")
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)  # what ncu runs
    given = parser.parse_args(arguments)
    try:
        torch, provenance = find_gpu()
    except NotPossible as missing:
        print(f"{missing}: nothing measured, nothing written")
        return 0
    if given.only:
        run_only(torch, given.only)
        return 0
    gpu = torch.cuda.get_device_name(0)
    kernels = Path(given.output).with_name(f"{Path(given.output).stem}_kernels.csv")
    rows = measure(
        torch,
        given.case or cases(),
        lambda rows: write_rows(given.output, gpu, provenance, rows),
        lambda found: write_kernels(kernels, gpu, provenance, found),
    )
    print(f"{given.output}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
