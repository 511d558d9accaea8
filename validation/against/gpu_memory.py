"""Memory of an NVIDIA GPU, measured with CUDA code that cupy compiles (NVRTC).

    chase    load-to-use latency of L1, L2 and DRAM: a chain of dependent loads of one lane
    ladder   the same for buffers from 0.5 to 96 MiB, and the bandwidth with which all SMs read them again and again
    stream   read, write and copy of buffers far larger than L2
    loaded   the latency of DRAM on one SM, while other SMs stream
    beside   the time of a GEMM while other SMs stream. The GEMM's kernel is made for the SMs that are left. Without
             traffic the others only keep their SMs, so the difference is what the shared memory system costs.

Streams beside something run until a flag is set. They take all shared memory of their SMs, so nothing else runs there.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import sleep
from typing import Any

import numpy as np

from traces.schema import Cache
from validation.against.gpu_rows import BESIDE, BUFFERS, CHASES, IDLE, LADDER, LOADED, Chase, MeasuredRow, NotPossible

REPEATS = 20
FLUSH_BYTES = 1 << 30
"""Far more than any L2."""
STREAM_BYTES = 1 << 30
BESIDE_CALLS, LOADED_RUNS, LADDER_RUNS = 40, 3, 5
MAX_SHARED_OPTIN = 97
"""cudaDevAttrMaxSharedMemoryPerBlockOptin. A workgroup with that much leaves no room for another one on its SM."""
AGAIN_BYTES = 4 << 30
"""Bytes that are read from a buffer again and again."""
PLACED_S = 0.005
"""Time for the workgroups of a stream to take their SMs."""
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
extern "C" __global__ void read_again(const uint4 *from, uint4 *to, size_t count, int passes) {
    uint4 sum = make_uint4(0, 0, 0, 0);
    const size_t step = gridDim.x * (size_t)blockDim.x;
    for (int pass = 0; pass < passes; ++pass)
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += step) {
            uint4 value = __ldcg(from + i);
            sum.x ^= value.x + pass; sum.y ^= value.y; sum.z ^= value.z; sum.w ^= value.w;
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
static __device__ u64 now_ns() { u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
// flow: 0 nothing, 1 read, 2 write, 3 copy. Four accesses of 16 bytes per lane are in flight. The stream ends when
// *stop is set, or after 4e9 clocks. done: turns, nanoseconds and clocks of each workgroup.
extern "C" __global__ void beside(int flow, const uint4 *from, uint4 *to, size_t count, volatile int *stop, u64 *done) {
    const size_t lanes = blockDim.x, step = 4 * lanes * gridDim.x;
    size_t i = 4 * lanes * blockIdx.x + threadIdx.x;
    uint4 value[4] = {};
    u64 turns = 0, began = now_ns();
    long long first = clock64();
    while (!*stop && clock64() - first < 4000000000ll) {
        if (flow == 0) { __nanosleep(500); continue; }
        if (flow & 1) for (int k = 0; k < 4; ++k) {
            uint4 one = from[i + k * lanes];
            if (flow == 3) value[k] = one;
            else { value[0].x ^= one.x; value[0].y ^= one.y; value[0].z ^= one.z; value[0].w ^= one.w; }
        }
        if (flow & 2) for (int k = 0; k < 4; ++k) to[i + k * lanes] = value[k];
        i += step;
        if (i + 3 * lanes >= count) i = 4 * lanes * blockIdx.x + threadIdx.x;
        ++turns;
    }
    if ((value[0].x ^ value[0].y ^ value[0].z ^ value[0].w) == 0x9e3779b9u) to[threadIdx.x] = value[0];  // never
    if (threadIdx.x == 0) {
        u64 *own = done + 3 * blockIdx.x;
        own[0] = turns; own[1] = now_ns() - began; own[2] = clock64() - first;
    }
}
"""
FLOWS = (IDLE, "read", "write", "copy")
"""Flows in the order of their numbers in CUDA."""
LANES, ACCESSES = 1024, 4


def load_cupy() -> Any:
    """cupy.

    Raises:
        NotPossible: it is missing.
    """
    try:
        import cupy
    except ImportError:
        raise NotPossible("no cupy: pip install cupy-cuda12x or cupy-cuda13x, matching the driver") from None
    return cupy


def measure_memory() -> Iterator[MeasuredRow]:
    """Latencies in clocks of the SM and in ns, bandwidths in GB/s (bytes that the program moves).

    Raises:
        NotPossible: cupy is missing.
    """
    cupy = load_cupy()
    module = _compiled(cupy)
    flush = cupy.zeros(FLUSH_BYTES, dtype=cupy.uint8)
    for chase in CHASES:
        yield from _chase(cupy, module, chase, flush)
    for chase in LADDER:
        yield from _chase(cupy, module, chase, flush, "ladder", LADDER_RUNS)
        yield _read_again(cupy, module, chase)
    yield from _streams(cupy, module)


def _compiled(cupy: Any) -> Any:
    return cupy.RawModule(code=CUDA, options=("--std=c++14",))


def chain_offsets(chase: Chase) -> np.ndarray:
    """Byte offsets that a chase visits, as in `tracer.streams.PointerChase`. One more than its loads."""
    return np.arange(chase.warm + chase.loads + 1, dtype=np.int64) * chase.stride_bytes % chase.buffer_bytes


def _chase(
    cupy: Any, module: Any, chase: Chase, flush: Any, kind: str = "chase", runs: int = REPEATS
) -> Iterator[MeasuredRow]:
    walks = _walks(_chain(cupy, module, chase), chase, flush, runs)
    clocks = median(clocks / chase.loads for clocks, _ in walks)
    time_us = median(time_us for _, time_us in walks)
    yield MeasuredRow(kind, chase.level, "latency", clocks, "clock")
    yield MeasuredRow(kind, chase.level, "latency", time_us / chase.loads * 1000, "ns")


def _chain(cupy: Any, module: Any, chase: Chase) -> Callable[[int], tuple[float, int]]:
    """A function of a number of loads that walks the chain: time of the kernel in us, clocks of the loads."""
    ring = cupy.zeros(chase.buffer_bytes // 8, dtype=cupy.uint64)
    offsets = cupy.asarray(chain_offsets(chase))
    ring[offsets[:-1] // 8] = (offsets[1:] + ring.data.ptr).astype(cupy.uint64)
    out = cupy.zeros(2, dtype=cupy.uint64)
    kernel = module.get_function("chase_cg" if chase.cache == Cache.BYPASS_L1 else "chase_ca")

    def run(loads: int) -> tuple[float, int]:
        time_us = _cupy_us(cupy, lambda: kernel((1,), (1,), (ring, np.int32(chase.warm), np.int32(loads), out)))
        return time_us, int(out[0])

    return run


def _walks(run: Callable[[int], tuple[float, int]], chase: Chase, flush: Any, runs: int) -> list[tuple[int, float]]:
    """Clocks of the loads of a chase and their time in us, of several walks, each with an empty L2."""
    found = []
    for _ in range(runs):
        flush.fill(0)
        short_us, _ = run(0)
        flush.fill(0)
        long_us, clocks = run(chase.loads)
        found.append((clocks, long_us - short_us))
    return found


def _read_again(cupy: Any, module: Any, chase: Chase) -> MeasuredRow:
    """Bandwidth of all SMs that read the buffer of a chase again and again, past L1."""
    source, target = cupy.zeros(chase.buffer_bytes // 4, dtype=cupy.uint32), cupy.zeros(4, dtype=cupy.uint32)
    processors = cupy.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    kernel, passes = module.get_function("read_again"), max(2, AGAIN_BYTES // chase.buffer_bytes)

    def time_us(times: int) -> float:
        arguments = source, target, np.uint64(chase.buffer_bytes // 16), np.int32(times)
        run = partial(kernel, (2 * processors,), (LANES,), arguments)
        return median(_cupy_us(cupy, run) for _ in range(LADDER_RUNS))

    moved_bytes = passes * chase.buffer_bytes
    return MeasuredRow(
        "ladder", chase.level, "bandwidth", moved_bytes / (time_us(2 * passes) - time_us(passes)) / 1000, "GB/s"
    )


def _streams(cupy: Any, module: Any) -> Iterator[MeasuredRow]:
    source = cupy.zeros(STREAM_BYTES // 16 * 4, dtype=cupy.uint32)
    target = cupy.zeros_like(source)
    processors = cupy.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    for flow, buffers in BUFFERS.items():
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


class Stream:
    """Streams of some SMs that run beside other work, as a context.

    Attributes:
        GBps, clock_MHz: their bandwidth and their clock, afterwards.
    """

    def __init__(self, cupy: Any, module: Any, flow: str, sms: int):
        self.cupy, self.sms = cupy, sms
        self.number, self.buffers = FLOWS.index(flow), BUFFERS.get(flow, 0)
        self.kernel = module.get_function("beside")
        self.shared_bytes = cupy.cuda.runtime.deviceGetAttribute(MAX_SHARED_OPTIN, 0)
        self.kernel.max_dynamic_shared_size_bytes = self.shared_bytes
        self.source = cupy.zeros(STREAM_BYTES // 4, dtype=cupy.uint32)
        self.target = cupy.zeros_like(self.source)
        self.queue = cupy.cuda.Stream(non_blocking=True)
        self.GBps = self.clock_MHz = 0.0

    def __enter__(self) -> "Stream":
        cupy = self.cupy
        self.stop = cupy.zeros(1, dtype=cupy.int32)
        self.done = cupy.zeros(3 * max(self.sms, 1), dtype=cupy.uint64)
        cupy.cuda.runtime.deviceSynchronize()
        if self.sms:
            arguments = (
                np.int32(self.number),
                self.source,
                self.target,
                np.uint64(STREAM_BYTES // 16),
                self.stop,
                self.done,
            )
            with self.queue:
                self.kernel((self.sms,), (LANES,), arguments, shared_mem=self.shared_bytes)
            sleep(PLACED_S)
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop.fill(1)
        self.cupy.cuda.runtime.deviceSynchronize()
        if self.sms:
            self.GBps, self.clock_MHz = stream_figures(self.done.get(), self.buffers)


def stream_figures(done: np.ndarray, buffers: int) -> tuple[float, float]:
    """Bandwidth of streams in GB/s, mean clock of their SMs in MHz.

    done: turns, nanoseconds and clocks of each workgroup; a turn is ACCESSES of 16 bytes per lane.
    """
    turns, times_ns, clocks = done.reshape(-1, 3).T.astype(float)
    return float((turns * buffers * LANES * ACCESSES * 16 / times_ns).sum()), float((clocks / times_ns).mean()) * 1000


def measure_loaded() -> Iterator[MeasuredRow]:
    """Latency of DRAM in ns on one SM, and the bandwidth of the streams on the others.

    Raises:
        NotPossible: cupy is missing.
    """
    cupy = load_cupy()
    module = _compiled(cupy)
    chase = next(chase for chase in CHASES if chase.level == "HBM")
    run = _chain(cupy, module, chase)
    flush = cupy.zeros(FLUSH_BYTES, dtype=cupy.uint8)
    clock_GHz = _clock_GHz(run, chase, flush)
    for beside in LOADED:
        clocks, rates = [], []
        for _ in range(LOADED_RUNS):
            flush.fill(0)
            with Stream(cupy, module, beside.flow, beside.sms) as stream:
                clocks.append(run(chase.loads)[1] / chase.loads)
            rates.append(stream.GBps)
        yield MeasuredRow("loaded", beside.case, "latency", median(clocks) / clock_GHz, "ns")
        if beside.flow != IDLE:
            yield MeasuredRow("loaded", beside.case, "bandwidth", median(rates), "GB/s")


def _clock_GHz(run: Callable[[int], tuple[float, int]], chase: Chase, flush: Any) -> float:
    """Clock of the SM in a chase: clocks of the loads over their time."""
    return median(clocks / time_us / 1000 for clocks, time_us in _walks(run, chase, flush, LOADED_RUNS))


def measure_beside(torch: Any, gemm: Callable[[str], Callable[[], Any]]) -> Iterator[MeasuredRow]:
    """Time of a GEMM in us while other SMs stream, and the bandwidth of these streams.

    gemm: makes the call of a named GEMM.

    Raises:
        NotPossible: cupy is missing, or cuBLAS cannot make a kernel for fewer SMs.
    """
    cupy = load_cupy()
    module = _compiled(cupy)
    processors = cupy.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    for beside in BESIDE:
        run = gemm(beside.gemm)
        _set_sms(torch, processors - beside.sms)
        try:
            for _ in range(3):
                run()
            with Stream(cupy, module, beside.flow, beside.sms) as stream:
                time_us = event_us(torch, run, BESIDE_CALLS)
        finally:
            _set_sms(torch, 0)
        yield MeasuredRow("beside", beside.case, "time", time_us, "us")
        yield MeasuredRow("beside", beside.case, "clock", stream.clock_MHz, "MHz")
        if beside.flow != IDLE:
            yield MeasuredRow("beside", beside.case, "bandwidth", stream.GBps, "GB/s")


def _set_sms(torch: Any, sms: int) -> None:
    """Make cuBLAS choose its kernels for a number of SMs; 0 = all."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {line.split()[-1] for line in maps if "/libcublas.so" in line}
    if not paths:
        raise NotPossible("no libcublas in this process")
    library = ctypes.CDLL(paths.pop())
    status = library.cublasSetSmCountTarget(ctypes.c_void_p(torch.cuda.current_blas_handle()), ctypes.c_int(sms))
    if status:
        raise NotPossible(f"cublasSetSmCountTarget: status {status}")


def event_us(torch: Any, run: Callable[[], Any], calls: int = 1) -> float:
    """Time of a call between two events; of several calls in a row, the mean."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / calls
