"""Speed of single units: each driven alone, as fast as it goes, by requests made beforehand.

Every benchmark returns the CPU time of one request in ns, after a first, short run that compiles.
"""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter, process_time

import numpy as np

from sim.dram import run_stream
from sim.dram_stream import Stream
from sim.gpu import Gpu
from sim.hw.fifo import fifo_fill, fifo_head, fifo_pop, fifo_push
from sim.hw.l2 import l2_prefill, l2_step
from sim.hw.request import LINE_BYTES, NEVER, Op
from sim.machine import build
from sim.presets import load_preset
from tracer.coalesce import LINES_PER_EVENT, coalesce
from tracer.jit import kernel
from tracer.streams import BufferStream, Flow
from traces.schema import EVENT, PLAIN_STRIDE, Kind
from traces.source import KernelInfo, Workgroup

ATOM_BYTES = 64
BANK_LINES = 512
CHANNEL_BYTES = 1 << 30


def channel_ns(requests: int, random: bool) -> float:
    """One HBM channel (set G, map BG), 64-byte reads: sequential, or of random addresses."""
    address = np.arange(requests, dtype=np.int64) * ATOM_BYTES % CHANNEL_BYTES
    if random:
        address = np.random.default_rng(1).integers(0, CHANNEL_BYTES // ATOM_BYTES, requests) * ATOM_BYTES
    reads = Stream(np.zeros(requests, np.uint8), address, np.zeros(requests, np.int64))
    began_s, began_cpu_s = perf_counter(), process_time()
    result = run_stream(reads, "G", "BG")
    share = (process_time() - began_cpu_s) / (perf_counter() - began_s)  # of a core that this process had
    return result.wall_s * share / requests * 1e9


@kernel
def _fill_bank(bank, sets, lines):
    """Lines 0 .. lines - 1 of a bank, spread over its sets."""
    for k in range(lines):
        l2_prefill(bank, sets, k % bank.sets, k * LINE_BYTES)


@kernel
def _drive_bank(bank, sets, waiters, fifos, pool, requests, lines):
    """Push `requests` reads of present lines through an L2 bank, its request fifo always full."""
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


def bank_ns(requests: int) -> float:
    """One L2 bank of t3_2024, reads that hit."""
    node, _ = build(load_preset("t3_2024", ["cu.count=1"]).machine)
    bank = node.banks[0]
    _fill_bank(bank, node.l2_sets, BANK_LINES)
    drive = partial(_drive_bank, bank, node.l2_sets, node.waiters, node.fifos, node.pool)
    return _cpu_ns(lambda count: drive(count, BANK_LINES), requests)


@kernel
def _coalesce_all(events, addresses, line, sectors, full, rounds):
    lines = 0
    for _ in range(rounds):
        for k in range(len(events)):
            lines += coalesce(events[k], addresses, line, sectors, full)
    return lines


def coalesce_ns(requests: int) -> float:
    """Lanes to lines: full warps of 16-byte accesses side by side, four lines each."""
    events = np.zeros(64, EVENT)
    events["kind"], events["inner"], events["mask"] = Kind.LOAD, PLAIN_STRIDE, (1 << 32) - 1
    events["width_bytes"] = events["stride"] = 16
    events["base"] = np.arange(64) * 512
    line, sectors, full = (np.zeros(LINES_PER_EVENT, kind) for kind in (np.int64, np.uint8, np.uint8))
    run = partial(_coalesce_all, events, np.zeros(1, np.uint64), line, sectors, full)
    return _cpu_ns(lambda count: run(-(-count // 256)), requests)


class HeldKernel:
    """A kernel whose workgroups were made beforehand."""

    def __init__(self, source: BufferStream):
        self.info: KernelInfo = source.info
        self._workgroups = list(source.workgroups())

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        return iter(self._workgroups[start:])

    def fingerprint(self) -> str:
        return ""


def l1_ns(requests: int) -> float:
    """CU, load/store unit and L1: eight warps that read 16 KiB again and again, all but the first pass hits."""
    machine = load_preset("t3_2024", ["cu.count=1"]).machine
    per_pass = 16384 // LINE_BYTES

    def run(count: int) -> float:
        source = HeldKernel(BufferStream(Flow.READ, 16384, workgroup_count=1, passes=max(2, count // per_pass)))
        gpu = Gpu(machine)
        began_s = process_time()
        gpu.run_kernel(source, 0, None)
        return (process_time() - began_s) / int(gpu.counters()["lsu"]["line_requests"].sum()) * 1e9

    run(1)
    return run(requests)


def _cpu_ns(run: Callable[[int], object], requests: int) -> float:
    run(1)
    began_s = process_time()
    run(requests)
    return (process_time() - began_s) / requests * 1e9


UNITS: dict[str, Callable[[int], float]] = {
    "HBM channel, sequential 64-byte reads": partial(channel_ns, random=False),
    "HBM channel, random 64-byte reads": partial(channel_ns, random=True),
    "L2 bank, 128-byte reads that hit": bank_ns,
    "coalesce, 128-byte lines": coalesce_ns,
    "CU, load/store unit and L1, 128-byte lines that hit": l1_ns,
}
"""What is measured -> its benchmark: requests -> ns per request."""
