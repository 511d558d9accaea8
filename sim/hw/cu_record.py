"""The record of one compute unit: constants from the spec, resident workgroups, state, counters."""

import numpy as np

from sim.hw.prefetch import host_record
from traces.schema import BARRIERS, MAX_CLUSTER, PHASE_BARRIERS, Pipe
from traces.units import whole_period_ps

MAX_WORKGROUPS = 32
MAX_SCHEDULERS = 8
PIPES = len(Pipe)
ARRAYS = 8
"""Largest number of arrays of a shared program, each with its own shift (sim.host.program)."""

# States of a workgroup's request for a Tracker entry (`asks`).
NOT_ASKED = 0
ASKS = 1  # the Tracker has not seen the request
WAITS = 2  # no entry was free
GRANTED = 3

PHASES = np.dtype([("arrived", "i4"), ("copies", "i4"), ("completed", "i8"), ("arrivals", "i4"), ("bytes", "i4")])
"""A transaction barrier: arrivals in this phase, copies under way, phases completed, arrivals of a phase, bytes that
are expected from other workgroups less those that came."""

RESIDENT = np.dtype(
    [
        ("tag", "i8"),  # workgroup number in the grid, -1 = free place
        ("started_ps", "i8"),
        ("ended_ps", "i8"),  # when its last warp left; the dispatcher frees the place later (D7)
        ("asked_ps", "i8"),  # when it asked the Tracker for an entry ...
        ("asked_tag", "i8"),  # ... for this tile
        ("asks", "i4"),
        ("pad", "i4"),
        ("slab", "i4"),  # of the trace window
        ("alive", "i4"),  # warps that have not exited
        ("first_warp", "i4"),
        ("warps", "i4"),
        ("queue", "i4"),  # dispatch queue that sent it
        ("comm", "i4"),  # 1: a collective's workgroup, its requests travel in the communication streams
        ("arrived", "i4", BARRIERS),
        ("phases", PHASES, PHASE_BARRIERS),
        ("shift_bytes", "i8", ARRAYS),  # its address - the address in its events, per array
        ("cluster", "i8"),  # number of its cluster, unique among those on the GPU; -1 = none
        ("rank", "i4"),  # in its cluster ...
        ("size", "i4"),  # ... of so many workgroups ...
        ("members", "i2", MAX_CLUSTER),  # ... and their CUs and places (`sim.hw.signals.member`), by rank
        ("cluster_warps", "u8"),  # its warps that have arrived at the barrier of the cluster, a bit each ...
        ("cluster_arrived", "i4"),  # ... their number ...
        ("cluster_phases", "i4"),  # ... and phases completed
        ("told_ps", "i8"),  # when all its warps had arrived or ended, -1 = not yet
    ],
    align=True,
)

COUNTERS = {
    "warp_instructions": "warp instructions of the issued events",
    "events": "warp events issued",
    "slot_stall_ps": "sum over warps: time asleep until data came",
    "barrier_stall_ps": "sum over warps: time at a barrier",
    "issue_busy_ps": "sum over schedulers: time with the issue slot in use",
    "alu_busy_ps": "sum over schedulers: time with the pipe for integers and logic in use",
    "fma_busy_ps": "sum over schedulers: time with the fp32 pipe in use",
    "fp64_busy_ps": "sum over schedulers: time with the fp64 pipe in use",
    "sfu_busy_ps": "sum over schedulers: time with the pipe for transcendental functions in use",
    "tensor_busy_ps": "sum over schedulers: time with the matrix pipe in use",
    "tensor_held_ps": "sum over schedulers: time for which other pipes hold up the matrix pipe",
    "shared_busy_ps": "time with the shared-memory port in use",
    "tensor_macs": "multiply-accumulates done by the matrix pipes",
    "shared_bytes": "bytes through the shared-memory port",
    "workgroups": "workgroups that ran here",
}
"""Counter fields of CU and their meaning."""

CU = host_record(
    [
        # constants
        ("period_ps", "i8"),
        ("issue_ps", "i8"),  # one warp instruction on a scheduler
        ("pipe_ps", "i8", PIPES),  # one warp instruction on a scheduler's pipe; 0 = paid by issue alone
        ("pipe_of", "i8", PIPES),  # the pipe whose time it takes
        ("tensor_macs_per_clk", "i8"),  # per scheduler
        ("tensor_hold_ps", "i8", PIPES),  # one warp instruction of another pipe holds up the matrix pipe
        ("schedulers", "i8"),
        ("lanes", "i8"),
        ("shared_bytes_per_clk", "i8"),
        ("shared_latency_ps", "i8"),
        ("answers", "i8"),  # fifo with the answers to this CU's reads
        # state
        ("issue_free_ps", "i8", MAX_SCHEDULERS),
        ("pipe_free_ps", "i8", (MAX_SCHEDULERS, PIPES)),
        ("shared_free_ps", "i8"),
        ("residents", "i8"),  # workgroups with warps that have not left
        ("taken", "i8"),  # places that are not free for the dispatcher
        ("ended", "i8"),  # workgroups that have ended since all were collected ...
        ("collected", "i8"),  # ... and those of them that the engine has collected
        ("asking", "i8"),  # workgroups that ask the Tracker for an entry
        ("clustered", "i8"),  # 1: a kernel in progress has clusters of workgroups
        ("tells", "i8"),  # workgroups whose warps have all arrived at the barrier of their cluster
        # counters
        ("warp_instructions", "i8"),
        ("events", "i8"),
        ("slot_stall_ps", "i8"),  # sum over warps: asleep until data came
        ("barrier_stall_ps", "i8"),
        ("issue_busy_ps", "i8"),  # sum over schedulers
        ("alu_busy_ps", "i8"),  # of pipes: sum over schedulers
        ("fma_busy_ps", "i8"),
        ("fp64_busy_ps", "i8"),
        ("sfu_busy_ps", "i8"),
        ("tensor_busy_ps", "i8"),
        ("tensor_held_ps", "i8"),
        ("shared_busy_ps", "i8"),
        ("tensor_macs", "i8"),
        ("shared_bytes", "i8"),
        ("workgroups", "i8"),
        ("last_exit_ps", "i8"),
        # tables
        ("resident", RESIDENT, MAX_WORKGROUPS),
        ("ended_slab", "i4", MAX_WORKGROUPS),
        ("ended_queue", "i4", MAX_WORKGROUPS),
        ("ended_tag", "i8", MAX_WORKGROUPS),
        ("ended_started_ps", "i8", MAX_WORKGROUPS),
        ("ended_ps", "i8", MAX_WORKGROUPS),
    ]
)


def make_cus(spec, answers):
    """One CU record per fifo in `answers`. spec: sim.spec.ComputeUnit."""
    cus = np.zeros(len(answers), CU)
    period_ps = whole_period_ps(spec.clock_MHz)
    cus["period_ps"] = period_ps
    cus["issue_ps"] = max(1, round(period_ps / spec.issue_per_clk))
    cus["pipe_of"] = np.arange(PIPES)
    for pipe, rate in (
        (Pipe.ALU, spec.alu_warps_per_clk),
        (Pipe.FMA, spec.fma_warps_per_clk),
        (Pipe.FP64, spec.fp64_warps_per_clk),
        (Pipe.SFU, spec.sfu_warps_per_clk),
    ):
        cus["pipe_ps"][:, pipe] = round(period_ps / rate)
        cus["pipe_of"][:, pipe] = Pipe.ALU if spec.one_vector_pipe else pipe
    cus["tensor_hold_ps"] = np.rint(cus["pipe_ps"] * spec.tensor_hold)
    cus["tensor_macs_per_clk"] = round(spec.tensor_macs_per_clk / spec.schedulers)
    cus["schedulers"], cus["lanes"] = spec.schedulers, spec.lanes_per_warp
    cus["shared_bytes_per_clk"] = spec.shared_bytes_per_clk
    cus["shared_latency_ps"] = spec.shared_latency_clk * period_ps
    cus["answers"] = answers
    cus["resident"]["tag"] = -1
    return cus
