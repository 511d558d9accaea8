"""Contention for the memory of a GPU, simulated as `validation.against.gpu_memory` measures it.

    latency of DRAM   a chain of loads on one CU, streams on others
    GEMM              a GEMM on the CUs that streams leave, against the same GEMM without streams

Streams are `BufferStream`s whose warps have as many bytes in flight as the measured ones. The measured loop also waits
for its flag in every turn, so the rate of one CU is higher here. Hence ours are compared at equal bandwidth: latencies
between two numbers of CUs are interpolated, and beside a GEMM ours have as many CUs as give the measured bandwidth.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.store import Store, run_or_get
from sim.run.together import TogetherRun
from tracer.gemm.architecture import GpuFacts
from tracer.gemm.library import choose_kernel
from tracer.gemm.source import GemmSource
from tracer.kernels import make_kernels
from tracer.streams import BufferStream, Flow, PointerChase
from tracer.workloads import named_sublayer
from traces.source import KernelSource
from traces.units import PS_PER_NS
from validation.against.gpu_rows import BUFFERS, CHASES, IDLE, Beside

CUS = (8, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of CUs with streams."""
LOADS = 250
WARPS, AHEAD = 32, 4
"""Warps of a CU, accesses of 16 bytes that a lane has in flight."""
LONGEST_LATENCY_PS = 1_500_000
"""Streams are long enough for loads of this latency. Points with slower loads are left out."""
CU_GBps = 120
"""More than what a CU streams."""
CHASE_ADDRESS = 1 << 40
MORE = 2.5
"""A stream beside a GEMM is longer than the GEMM alone by this."""


class Point(NamedTuple):
    """Latency of a load from DRAM while streams move `GBps`."""

    GBps: float
    latency_ns: float


def latency_at(name: str, flow: str, GBps: float) -> float | None:
    """Latency of DRAM in ns while streams move GBps; None = they do not reach it with loads of LONGEST_LATENCY_PS.

    Args:
        name: preset.
        flow: key of BUFFERS, or IDLE.
    """
    return curve(name, next(iter(BUFFERS)))[0].latency_ns if flow == IDLE else at_bandwidth(curve(name, flow), GBps)


@cache
def curve(name: str, flow: str) -> tuple[Point, ...]:
    """Latency against bandwidth, from no stream on, with CUS.

    name: preset.
    """
    preset = load_preset(name)
    points = (_point(preset, flow, cus) for cus in (0, *CUS) if cus < preset.machine.cu.count)
    return tuple(point for point in points if point is not None)


def _point(preset: Preset, flow: str, cus: int) -> Point | None:
    """None: the loads take longer than LONGEST_LATENCY_PS, because the streams want more than the memory gives."""
    chase = next(chase for chase in CHASES if chase.level == "HBM")
    lanes = preset.machine.cu.lanes_per_warp
    chain = PointerChase(chase.buffer_bytes, LOADS, chase.stride_bytes, address=CHASE_ADDRESS, lanes=lanes)
    if cus == 0:
        return Point(0.0, _ends_ps(preset, [chain], [1])[0] / LOADS / PS_PER_NS)
    GBps = min(cus * CU_GBps, preset.peaks().dram_bytes_per_s / 1e9)
    stream = _stream(preset, flow, cus, GBps * LOADS * LONGEST_LATENCY_PS / PS_PER_NS)
    chain_ps, stream_ps = _ends_ps(preset, [chain, stream], [1, cus])
    if chain_ps > stream_ps:
        return None
    return Point(BUFFERS[flow] * stream.buffer_bytes * PS_PER_NS / stream_ps, chain_ps / LOADS / PS_PER_NS)


def at_bandwidth(points: tuple[Point, ...], GBps: float) -> float | None:
    """Latency in ns at a bandwidth, between points up to the largest bandwidth; None = the streams do not reach it."""
    most = max(range(len(points)), key=lambda k: points[k].GBps)
    rising = points[: most + 1]
    if GBps > rising[-1].GBps:
        return None
    return float(np.interp(GBps, [point.GBps for point in rising], [point.latency_ns for point in rising]))


def _stream(preset: Preset, flow: str, cus: int, wanted_bytes: float) -> BufferStream:
    lanes = preset.machine.cu.lanes_per_warp
    turn_bytes = cus * WARPS * AHEAD * lanes * 16
    turns = max(1, -(-int(wanted_bytes) // turn_bytes))
    return BufferStream(
        Flow[flow.upper()], turns * turn_bytes, workgroup_count=cus, warps=WARPS, unroll=AHEAD, lanes=lanes
    )


def _ends_ps(preset: Preset, sources: list[KernelSource], cus: list[int]) -> list[int]:
    """Time from the launch to the end of each kernel."""
    run = TogetherRun(preset=preset, sources=tuple(sources), cus=tuple(cus), flush_l2=False)
    figures = run_or_get(run, Store()).result.figures
    return [int(figures[f"at_once_{k}_ps"]) for k in range(len(sources))]


def slowdown(name: str, beside: Beside, GBps: float) -> float:
    """Time of a GEMM beside streams of this bandwidth over its time without them.

    name: preset.
    """
    preset = load_preset(name)
    left = preset.machine.cu.count - beside.sms
    (gemm,) = kernels_named(beside.gemm, gpu_facts(preset.machine)._replace(cus=left))
    (alone_ps,) = _ends_ps(preset, [gemm], [left])
    one_cu_GBps = curve(name, beside.flow)[1].GBps / CUS[0]
    cus = min(beside.sms, max(1, round(GBps / one_cu_GBps)))
    stream = _stream(preset, beside.flow, cus, MORE * GBps / BUFFERS[beside.flow] * alone_ps / PS_PER_NS)
    at_once_ps, stream_ps = _ends_ps(preset, [gemm, stream], [left, cus])
    if at_once_ps > stream_ps:
        raise ValueError(f"{beside.case}: the stream ends before the GEMM: make MORE larger")
    return at_once_ps / alone_ps


def kernels_named(case: str, gpu: GpuFacts) -> tuple[KernelSource, ...]:
    """The kernels of a text as for `t3sim kernel`, or the GEMM of a sub-layer. The library of the GPU chooses them."""
    if ":" in case:
        return make_kernels(case, gpu)
    problem, _ = named_sublayer(case)
    return (GemmSource(problem, choose_kernel(problem, gpu)),)
