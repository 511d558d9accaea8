"""Measure the NVIDIA GPU of this machine: `python -m validation.against.measure_gpu -o gpu.csv`.

Without a GPU the command prints a message and measures nothing.

    gemm      time of the paper's sub-layer GEMMs (torch), each with an empty L2; their L2 and DRAM sectors with
              Nsight Compute if `ncu` can read the counters
    chase     load-to-use latency of L1, L2 and DRAM: a chain of dependent loads of one lane
    stream    read, write and copy of buffers far larger than L2

The command needs torch. chase and stream also need cupy (NVRTC compiles their CUDA code). Measurements that are not
possible are left out and named on stderr. Rows have their provenance; `validation.against.gpu_measurements` reads and
compares them.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from tracer.workloads import PAPER_CASES, named_sublayer
from traces.schema import Cache
from validation.against.gpu_rows import CHASES, Chase, MeasuredRow, ncu_sums, write_rows

REPEATS = 20
FLUSH_BYTES = 512 << 20
"""Bytes written before every GEMM: more than twice the size of any L2."""
STREAM_BYTES = 1 << 30
NCU_METRICS = {
    "l2_read_sectors": "lts__t_sectors_op_read.sum",
    "l2_write_sectors": "lts__t_sectors_op_write.sum",
    "dram_read_sectors": "dram__sectors_read.sum",
    "dram_write_sectors": "dram__sectors_write.sum",
}
"""Quantity -> metric of Nsight Compute."""


CUDA = r"""
typedef unsigned long long u64;
extern "C" __global__ void chase_ca(const u64 *at, int warm, int loads, u64 *out) {
    for (int i = 0; i < warm; ++i) at = (const u64 *)__ldca(at);
    long long began = clock64();
    for (int i = 0; i < loads; ++i) at = (const u64 *)__ldca(at);
    out[1] = (u64)at;  // the last load must have come
    out[0] = clock64() - began;
}
extern "C" __global__ void chase_cg(const u64 *at, int warm, int loads, u64 *out) {
    for (int i = 0; i < warm; ++i) at = (const u64 *)__ldcg(at);
    long long began = clock64();
    for (int i = 0; i < loads; ++i) at = (const u64 *)__ldcg(at);
    out[1] = (u64)at;
    out[0] = clock64() - began;
}
extern "C" __global__ void stream_read(const uint4 *from, uint4 *to, size_t count) {
    uint4 sum = make_uint4(0, 0, 0, 0);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x) {
        uint4 value = from[i];
        sum.x ^= value.x; sum.y ^= value.y; sum.z ^= value.z; sum.w ^= value.w;
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x9e3779b9u) to[0] = sum;  // never for zeros: keeps the loads
}
extern "C" __global__ void stream_write(const uint4 *from, uint4 *to, size_t count) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        to[i] = make_uint4(1, 2, 3, 4);
}
extern "C" __global__ void stream_copy(const uint4 *from, uint4 *to, size_t count) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (size_t)blockDim.x)
        to[i] = from[i];
}
"""


class NoGpu(Exception):
    """A GPU or a tool is missing. The text names it."""


def find_gpu() -> tuple[Any, str]:
    """torch with a CUDA device, and the provenance of its measurements.

    Raises:
        NoGpu: no driver, no torch, or torch sees no device.
    """
    if shutil.which("nvidia-smi") is None:
        raise NoGpu("no NVIDIA GPU on this machine (nvidia-smi is missing)")
    try:
        import torch
    except ImportError:
        raise NoGpu("an NVIDIA driver but no torch: pip install torch") from None
    if not torch.cuda.is_available():
        raise NoGpu("torch sees no CUDA device")
    return torch, _provenance(torch)


def _provenance(torch: Any) -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader", "--id=0"]
    device = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"validation/against/measure_gpu.py on {torch.cuda.get_device_name(0)}; driver, largest SM and memory "
        f"clock: {device}; "
        f"torch {torch.__version__}, CUDA {torch.version.cuda}; median of {REPEATS}; {date.today().isoformat()}"
    )


def measure_gemms(torch: Any, gemms: list[str]) -> Iterator[MeasuredRow]:
    """Median time in us of each sub-layer GEMM, fp16 row-major, alone, with an empty L2."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for name in gemms:
        run = _gemm(torch, name)
        times_us = []
        for repeat in range(REPEATS + 3):
            flush.fill_(repeat & 1)
            times_us.append(_event_us(torch, run))
        yield MeasuredRow("gemm", name, "time", median(times_us[3:]), "us")


def _gemm(torch: Any, name: str) -> Callable[[], Any]:
    """The GEMM of a sub-layer on random operands, with the padded rows of the problem."""
    problem, _ = named_sublayer(name)
    a = torch.randn(problem.m, problem.lda, dtype=torch.float16, device="cuda")[:, : problem.k]
    b = torch.randn(problem.k, problem.ldb, dtype=torch.float16, device="cuda")[:, : problem.n]
    c = torch.empty(problem.m, problem.ldc, dtype=torch.float16, device="cuda")[:, : problem.n]
    return lambda: torch.matmul(a, b, out=c)


def _event_us(torch: Any, run: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000


def count_sectors(gemms: list[str]) -> Iterator[MeasuredRow]:
    """L2 and DRAM sectors of each GEMM, summed over its kernels.

    Raises:
        NoGpu: ncu is missing or has no permission to read the counters.
    """
    if shutil.which("ncu") is None:
        raise NoGpu("no Nsight Compute (ncu)")
    for name in gemms:
        command = [
            *("ncu", "--csv", "--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off"),
            *("--metrics", ",".join(NCU_METRICS.values())),
            *(sys.executable, "-m", "validation.against.measure_gpu", "--only-gemm", name),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
        sums = ncu_sums(done.stdout)
        missing = [metric for metric in NCU_METRICS.values() if metric not in sums]
        if done.returncode or missing:
            raise NoGpu(f"ncu gave no {', '.join(missing) or 'counters'}: {(done.stderr or done.stdout)[-300:]}")
        for quantity, metric in NCU_METRICS.items():
            yield MeasuredRow("gemm", name, quantity, sums[metric], "sector")


def run_only(torch: Any, name: str) -> None:
    """Run one warm-up, then the GEMM alone between the profiler marks for ncu."""
    run = _gemm(torch, name)
    run()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def measure_memory() -> Iterator[MeasuredRow]:
    """Latencies in clocks of the SM and in ns, bandwidths in GB/s (bytes that the program moves).

    Raises:
        NoGpu: cupy is missing.
    """
    try:
        import cupy
    except ImportError:
        raise NoGpu("no cupy: pip install cupy-cuda12x or cupy-cuda13x, matching the driver") from None
    module = cupy.RawModule(code=CUDA, options=("--std=c++14",))
    flush = cupy.zeros(FLUSH_BYTES, dtype=cupy.uint8)
    for chase in CHASES:
        yield from _chase(cupy, module, chase, flush)
    yield from _streams(cupy, module)


def chain_offsets(chase: Chase) -> np.ndarray:
    """Byte offsets that a chase visits, as in `tracer.streams.PointerChase`. One more than its loads."""
    return np.arange(chase.warm + chase.loads + 1, dtype=np.int64) * chase.stride_bytes % chase.buffer_bytes


def _chase(cupy: Any, module: Any, chase: Chase, flush: Any) -> Iterator[MeasuredRow]:
    ring = cupy.zeros(chase.buffer_bytes // 8, dtype=cupy.uint64)
    offsets = cupy.asarray(chain_offsets(chase))
    ring[offsets[:-1] // 8] = (offsets[1:] + ring.data.ptr).astype(cupy.uint64)
    out = cupy.zeros(2, dtype=cupy.uint64)
    kernel = module.get_function("chase_cg" if chase.cache == Cache.BYPASS_L1 else "chase_ca")

    def run(loads: int) -> float:
        flush.fill(0)
        return _cupy_us(cupy, lambda: kernel((1,), (1,), (ring, np.int32(chase.warm), np.int32(loads), out)))

    clocks, times_us = [], []
    for _ in range(REPEATS):
        short_us, long_us = run(0), run(chase.loads)
        clocks.append(int(out[0]) / chase.loads)
        times_us.append(long_us - short_us)
    yield MeasuredRow("chase", chase.level, "latency", median(clocks), "clock")
    yield MeasuredRow("chase", chase.level, "latency", median(times_us) / chase.loads * 1000, "ns")


def _streams(cupy: Any, module: Any) -> Iterator[MeasuredRow]:
    source = cupy.zeros(STREAM_BYTES // 16 * 4, dtype=cupy.uint32)
    target = cupy.zeros_like(source)
    processors = cupy.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    for flow, buffers in (("read", 1), ("write", 1), ("copy", 2)):
        kernel = module.get_function(f"stream_{flow}")
        arguments = (source, target, np.uint64(STREAM_BYTES // 16))
        run = partial(kernel, (8 * processors,), (256,), arguments)
        times_us = [_cupy_us(cupy, run) for _ in range(REPEATS + 3)]
        yield MeasuredRow("stream", flow, "bandwidth", buffers * STREAM_BYTES / median(times_us[3:]) / 1000, "GB/s")


def _cupy_us(cupy: Any, run: Callable[[], Any]) -> float:
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end)) * 1000


def measure(torch: Any, gemms: list[str]) -> list[MeasuredRow]:
    """All rows that this machine can measure. The others are named on stderr."""
    rows: list[MeasuredRow] = []
    for part in (lambda: measure_gemms(torch, gemms), lambda: count_sectors(gemms), measure_memory):
        try:
            rows.extend(part())
        except NoGpu as missing:
            print(f"left out: {missing}", file=sys.stderr)
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="gpu.csv", help="CSV to write (default gpu.csv)")
    parser.add_argument("--gemm", action="append", help="only this sub-layer, e.g. t-nlg/fc2/tp8; may be repeated")
    parser.add_argument("--only-gemm", help=argparse.SUPPRESS)  # what ncu runs
    given = parser.parse_args(arguments)
    try:
        torch, provenance = find_gpu()
    except NoGpu as missing:
        print(f"{missing}: nothing measured, nothing written")
        return 0
    if given.only_gemm:
        run_only(torch, given.only_gemm)
        return 0
    gemms = given.gemm or [f"{model}/{layer}/tp{tp}" for model, layer, tp in PAPER_CASES]
    rows = measure(torch, gemms)
    write_rows(given.output, torch.cuda.get_device_name(0), provenance, rows)
    print(f"{given.output}: {len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
