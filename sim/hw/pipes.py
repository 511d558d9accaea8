"""Issue slots, execution pipes and the shared-memory port of a CU: each is booked until a time.

Each warp scheduler has one issue slot and one pipe of each kind, or one for all kinds of vector instructions but those
of the matrix unit (`cu.one_vector_pipe`: the VALU of a SIMD, AMD). A run of arithmetic occupies its pipe for its
instructions. A matrix event occupies the tensor pipe for work / rate. The warp waits for the result, or with
`traces.schema.LATER` only until all instructions have issued. While the tensor pipe has work, those of other pipes
hold it up for a share of their time (D66). A CU has one shared-memory (LDS) port.
"""

import numpy as np

from sim.hw.bits import quotient
from sim.hw.warp import slot_done, slot_take
from tracer.compile.jit import compiled
from tracer.compile.ones import ones
from traces.schema import LATER, Pipe


@compiled(inline=True)
def book_issue(cu, scheduler, event, now_ps):
    """Occupy the issue slot for the instructions of the event. Returns when it is free again.

    Reads: event. Writes: cu.
    """
    busy_ps = event.count * cu.issue_ps
    cu.issue_free_ps[scheduler] = now_ps + busy_ps
    cu.issue_busy_ps += busy_ps
    cu.warp_instructions += event.count
    cu.events += 1
    return now_ps + busy_ps


@compiled(inline=True)
def compute(cu, scheduler, warps, w, event, now_ps):
    """Book the pipe of a run of arithmetic. Returns when the warp may continue. Reads: event. Writes: cu, warps."""
    pipe = event.pipe
    if pipe == Pipe.TENSOR and event.work > 0:  # in multiply-accumulates of fp16
        rate = cu.tensor_macs_per_clk
        busy_ps = quotient(event.work * cu.period_ps + rate - 1, rate)
        cu.tensor_busy_ps += busy_ps
        cu.tensor_macs += event.row_stride if event.row_stride > 0 else event.work
    else:
        busy_ps = event.count * cu.pipe_ps[pipe]
        _count_busy(cu, pipe, busy_ps)
    booked = cu.pipe_of[pipe]
    start_ps = max(now_ps, cu.pipe_free_ps[scheduler, booked])
    _hold_tensor(cu, scheduler, event, start_ps)
    cu.pipe_free_ps[scheduler, booked] = start_ps + busy_ps
    free_ps = book_issue(cu, scheduler, event, now_ps)
    result_ps = max(free_ps, start_ps + max(busy_ps, event.cycles * cu.period_ps))
    if event.space != LATER:
        return result_ps
    slot_take(warps.warp[w], event.slot)
    slot_done(warps, w, event.slot, result_ps)
    return free_ps


@compiled(inline=True)
def _hold_tensor(cu, scheduler, event, start_ps):
    """Instructions that start while the tensor pipe has work: products that come later start later. Writes: cu."""
    held_ps = event.count * cu.tensor_hold_ps[event.pipe]
    if held_ps > 0 and cu.pipe_free_ps[scheduler, Pipe.TENSOR] > start_ps:
        cu.pipe_free_ps[scheduler, Pipe.TENSOR] += held_ps
        cu.tensor_held_ps += held_ps


@compiled(inline=True)
def _count_busy(cu, pipe, busy_ps):
    """Count the time of a run of arithmetic at its pipe. Writes: cu."""
    if pipe == Pipe.ALU:
        cu.alu_busy_ps += busy_ps
    elif pipe == Pipe.FMA:
        cu.fma_busy_ps += busy_ps
    elif pipe == Pipe.SFU:
        cu.sfu_busy_ps += busy_ps
    elif pipe == Pipe.FP64:
        cu.fp64_busy_ps += busy_ps


@compiled(inline=True)
def access_shared(cu, warps, w, event, now_ps):
    """Book the LDS port for a shared-memory access of `count` instructions. Its slot clears a latency later.

    Reads: event. Writes: cu, warps.
    """
    volume = np.int64(event.count) * ones(event.mask) * np.int64(event.width_bytes)
    clocks = quotient(volume + cu.shared_bytes_per_clk - 1, cu.shared_bytes_per_clk)
    busy_ps = max(clocks, np.int64(event.count)) * cu.period_ps
    cu.shared_free_ps = max(cu.shared_free_ps, now_ps) + busy_ps
    cu.shared_busy_ps += busy_ps
    cu.shared_bytes += volume
    warp = warps.warp[w]
    slot_take(warp, event.slot)
    slot_done(warps, w, event.slot, cu.shared_free_ps + cu.shared_latency_ps)
