"""Speed of single units. Each unit runs alone, at full speed, on prepared requests.

`request_ns` gives the CPU time of one request. A first run compiles; then the fastest of ROUNDS counts.
"""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from sim.host.gpu import Gpu
from sim.host.window import Launch
from sim.hw.cu import cu_step
from sim.hw.dispatcher import dispatch_step
from sim.hw.fifo import (
    Pool,
    fifo_fill,
    fifo_full,
    fifo_head,
    fifo_head_ps,
    fifo_pop,
    fifo_push,
    fifo_push_copy,
    fifo_take,
)
from sim.hw.l2 import l2_step
from sim.hw.l2_expect import l2_prefill
from sim.hw.lsu import lsu_retry_ps
from sim.hw.noc import noc_requests
from sim.hw.prefetch import host_aligned
from sim.hw.request import LINE_BYTES, NEVER, Op
from sim.machine.build import build
from sim.machine.wiring import lookahead_ps
from sim.presets import load_preset
from sim.run.dram import channel_spec, drive, stream_state
from sim.run.dram_stream import Stream
from tracer.coalesce import LINES_PER_EVENT, coalesce
from tracer.compile.jit import compiled
from tracer.streams import BufferStream, Flow
from traces.schema import EVENT, PLAIN_STRIDE, Kind

ATOM_BYTES = 64
BANK_LINES = 512
CHANNEL_BYTES = 1 << 30
LINES_PER_ROUND = 256
MEMORY_PS = 500_000
"""Time from a CU's request to its answer, in the benchmark of the CU alone."""
PACKETS_PER_WINDOW = 6
"""Packets that each CU sends in a time window, in the benchmark of the crossbar."""
ROUNDS = 5


class Loop(NamedTuple):
    """Loop of a benchmark: the compiled function, and a function that makes its arguments with new state."""

    function: Callable[..., object]
    fresh: Callable[[], tuple[Any, ...]]


def channel_loop(requests: int, random: bool) -> Loop:
    """One HBM channel (set G, map BG) with 64-byte reads of sequential or random addresses."""
    address = np.arange(requests, dtype=np.int64) * ATOM_BYTES % CHANNEL_BYTES
    if random:
        address = np.random.default_rng(1).integers(0, CHANNEL_BYTES // ATOM_BYTES, requests) * ATOM_BYTES
    reads = Stream(np.zeros(requests, np.uint8), address, np.zeros(requests, np.int64))
    spec = channel_spec("G", "BG")
    return Loop(drive, lambda: stream_state(reads, spec))


@compiled
def _fill_bank(bank, sets, lines):
    """Fill a bank with lines 0 .. lines - 1, distributed over its sets."""
    for k in range(lines):
        l2_prefill(bank, sets, k % bank.sets, k * LINE_BYTES)


@compiled
def _drive_bank(banks, sets, waiters, fifos, pool, requests, lines):
    """Push `requests` reads that hit through an L2 bank. Its request fifo is always full."""
    bank = banks[0]
    inbox, hits = fifos[bank.requests], fifos[bank.hits]
    pushed = 0
    answered = 0
    now_ps = np.int64(0)
    while answered < requests:
        while pushed < requests and fifo_fill(inbox) < inbox.limit:
            request = fifo_push(inbox, pool)
            request.line = (pushed % lines) * LINE_BYTES
            request.cache_set = (pushed % lines) % bank.sets
            request.sectors = request.full = 15
            request.op = Op.READ
            request.ready_ps = now_ps
            pushed += 1
        wake_ps = l2_step(bank, sets, waiters, fifos, pool, now_ps)
        while fifo_fill(hits) > 0:
            answered += fifo_head(hits, pool).sectors & 1
            fifo_pop(hits)
        now_ps = wake_ps if wake_ps < NEVER else now_ps + bank.period_ps
    return answered


def bank_loop(requests: int) -> Loop:
    """One L2 bank of t3_2024 with reads that hit."""
    node, _ = build(load_preset("t3_2024", ["cu.count=1"]).machine)
    _fill_bank(node.banks[0], node.l2_sets, BANK_LINES)
    state: tuple[Any, ...] = (node.banks[:1], node.l2_sets, node.waiters, node.fifos, node.pool)
    return Loop(_drive_bank, lambda: (*map(_aligned_copy, state), requests, BANK_LINES))


def _aligned_copy(records: Any) -> Any:
    if isinstance(records, Pool):
        return Pool(*map(np.copy, records))
    copy = host_aligned(records.shape, records.dtype)
    copy[...] = records
    return copy


@compiled
def _drive_noc(nocs, fifos, pool, bank_wake_ps, requests, window_ps):
    """Move at least `requests` reads to the banks, window by window. Each CU sends up to PACKETS_PER_WINDOW."""
    noc = nocs[0]
    moved = 0
    line = np.int64(0)
    begin_ps = np.int64(0)
    while moved < requests:
        for c in range(noc.cus):
            port = fifos[noc.first_port_fifo + c]
            for k in range(PACKETS_PER_WINDOW):
                if fifo_full(port):
                    break
                request = fifo_push(port, pool)
                request.line = line
                request.sectors = request.full = 15
                request.op = Op.READ
                request.source = c
                request.ready_ps = begin_ps + k * window_ps // PACKETS_PER_WINDOW
                line += LINE_BYTES
        noc_requests(noc, fifos, pool, begin_ps, begin_ps + window_ps, bank_wake_ps)
        for b in range(noc.banks):
            bank = fifos[noc.first_request_fifo + b]
            while fifo_fill(bank) > 0:
                fifo_take(bank, pool, begin_ps)
                moved += 1
        begin_ps += window_ps
    return moved


def noc_loop(requests: int) -> Loop:
    """The crossbar of t3_2024 (80 CUs to 64 banks) with read requests in the order of their lines."""
    machine = load_preset("t3_2024").machine
    node, _ = build(machine)
    state: tuple[Any, ...] = (node.noc, node.fifos, node.pool, node.bank_wake_ps)
    numbers = (requests, lookahead_ps(machine))
    return Loop(_drive_noc, lambda: (*map(_aligned_copy, state), *numbers))


@compiled
def _coalesce_all(events, addresses, line, sectors, full, rounds):
    lines = 0
    for _ in range(rounds):
        for k in range(len(events)):
            lines += coalesce(events[k], addresses, line, sectors, full)
    return lines


def coalesce_loop(requests: int) -> Loop:
    """The coalescer with full warps of adjacent 16-byte accesses, four lines each."""
    events = np.zeros(LINES_PER_ROUND // 4, EVENT)
    events["kind"], events["inner"], events["mask"] = Kind.LOAD, PLAIN_STRIDE, (1 << 32) - 1
    events["width_bytes"] = events["stride"] = 16
    events["base"] = np.arange(events.size) * 512
    outputs = (np.int64, np.uint8, np.uint8)

    def fresh():
        lines = (np.zeros(LINES_PER_EVENT, kind) for kind in outputs)
        return events, np.zeros(1, np.uint64), *lines, -(-requests // LINES_PER_ROUND)

    return Loop(_coalesce_all, fresh)


@compiled
def _drive_cu(
    output, cus, lsus, bulks, leaving, l1s, sets, fifos, pool, warps, clusters, events, addresses, window_ps, memory_ps
):
    """Run the workgroup on a CU to its end, window by window. Each answer comes memory_ps after its request."""
    cu, lsu, bulk, l1 = cus[0], lsus[0], bulks[0], l1s[0]
    peer, mail = clusters[0][0], clusters[1]
    port, answers = fifos[lsu.port], fifos[cu.answers]
    now_ps = np.int64(0)
    while cu.residents > 0:
        end_ps = now_ps + window_ps
        while now_ps < end_ps:
            now_ps = cu_step(
                *(cu, lsu, bulk, leaving[0], l1, sets, fifos, pool, warps[0], peer, mail),
                *(events, addresses, output, now_ps, end_ps),
            )
        while fifo_fill(port) > 0:
            request = fifo_head(port, pool)
            fifo_push_copy(answers, pool, request, request.ready_ps + memory_ps)
            fifo_take(port, pool, end_ps - window_ps)
        now_ps = min(now_ps, fifo_head_ps(answers, pool), lsu_retry_ps(lsu, fifos, pool))
    return lsu.line_requests


def cu_loop(requests: int, buffer_bytes: int = 16384) -> Loop:
    """CU, load/store unit and L1 of t3_2024. Eight warps read a buffer several times; later passes hit."""
    passes = max(2, -(-requests * LINE_BYTES // buffer_bytes))
    machine = load_preset("t3_2024", ["cu.count=1"]).machine
    gpu = Gpu(machine)
    gpu.launch([Launch(BufferStream(Flow.READ, buffer_bytes, workgroup_count=1, passes=passes))])
    node = gpu.node
    dispatch_step(node.dispatch, 0, node.cus, node.warps, node.staged[0], node.output.gates, NEVER)
    units = node.cus, node.lsus, node.bulks, node.leaving, node.l1s
    state: tuple[Any, ...] = (*units, node.l1_sets, node.fifos, node.pool, node.warps)
    slab = slice(int(node.staged[0][0]["slab"]) + 1)  # the first slab: the rest of the trace window is empty
    numbers = ((node.peers, node.mail), node.events[slab], node.addresses[slab], lookahead_ps(machine), MEMORY_PS)
    return Loop(partial(_drive_cu, node.output), lambda: (*map(_aligned_copy, state), *numbers))


def request_ns(loop: Loop, requests: int) -> float:
    """CPU time of one of the loop's requests in ns."""
    times_s = []
    for _ in range(ROUNDS + 1):
        arguments = loop.fresh()
        began_s = process_time()
        loop.function(*arguments)
        times_s.append(process_time() - began_s)
    return min(times_s[1:]) / requests * 1e9


LOOPS: dict[str, Callable[[int], Loop]] = {
    "HBM channel, sequential 64-byte reads": partial(channel_loop, random=False),
    "HBM channel, random 64-byte reads": partial(channel_loop, random=True),
    "L2 bank, 128-byte reads that hit": bank_loop,
    "crossbar, read requests from 80 CUs to 64 banks": noc_loop,
    "coalesce, 128-byte lines": coalesce_loop,
    "CU, load/store unit and L1, 128-byte lines that hit": cu_loop,
}
"""Title -> function that makes the loop for a number of requests."""
