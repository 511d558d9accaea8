"""Kernels written by hand or drawn at random: rows of events, warps, workgroups, and what they must count."""

import hashlib
from typing import NamedTuple

import numpy as np

from sim.presets import load_preset
from tests.support.trace_samples import ListKernel
from tracer.coalesce import LINES_PER_EVENT, coalesce, makes_requests
from traces.schema import (
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    EVENT,
    EXPLICIT,
    NO_SLOT,
    PHASE_ARRIVE,
    PHASE_WAIT,
    PLAIN_STRIDE,
    Bulk,
    Cache,
    Kind,
    Pipe,
    Space,
)
from traces.source import KernelInfo, Workgroup

SMALL = ("cu.count=4", "l2.banks=4", "hbm.channels=2")
TIGHT = (
    *("cu.count=3", "l2.banks=4", "hbm.channels=2", "cu.workgroups=3", "cu.loads_outstanding=6", "l1.mshrs=5"),
    *("l1.unified_with_shared=false", "l1.bytes=1024", "l1.ways=4", "l2.bytes=16384", "l2.ways=4", "l2.mshrs=3"),
    *("l2.mshr_merges=2", "l2.dram_fifo=2", "noc.cu_fifo=2", "noc.bank_fifo=2"),
    *("hbm.queue_entries=8", "hbm.capacity_bytes=1073741824"),
)
"""Every buffer so small that it fills."""
LANES = 32
ALL = (1 << LANES) - 1


class Row(NamedTuple):
    """One event and its explicit lane addresses."""

    record: np.ndarray
    addresses: tuple = ()


def small_preset(*overrides, name="t3_2024", size=SMALL):
    return load_preset(name, [*size, *overrides])


def row(kind, *, addresses=(), wait=(), **fields):
    """An event of 32 lanes and one instruction, 4 bytes per lane side by side; `wait`: slot numbers."""
    record = np.zeros((), EVENT)
    defaults = {"count": 1, "mask": ALL, "slot": NO_SLOT, "inner": PLAIN_STRIDE, "stride": 4, "width_bytes": 4}
    for name, value in {**defaults, "kind": kind, **fields}.items():
        record[name] = value
    record["wait"] = np.uint64(sum(1 << slot for slot in set(wait)))
    if addresses:
        record["inner"] = EXPLICIT
    return Row(record, tuple(addresses))


def load(base, **fields):
    return row(Kind.LOAD, base=base, **fields)


def store(base, **fields):
    return row(Kind.STORE, base=base, **fields)


def lines(kind, base, count, **fields):
    """An event that touches one sector of each of `count` lines from `base` on."""
    return row(kind, base=base, stride=128, mask=(1 << count) - 1, **fields)


def ranks(*members):
    """A set of workgroups of a cluster."""
    return sum(1 << rank for rank in members)


def bulk(base, rows, row_bytes, pitch_bytes=0, *, kind=Bulk.LOAD, barrier=NO_SLOT, slot=0, to=(), **fields):
    """A bulk copy by one thread; `barrier`: transaction barrier; `to`: ranks of the workgroups that get the data."""
    box = {"base": base, "work": rows, "stride": row_bytes, "row_stride": pitch_bytes or row_bytes}
    box["cycles"] = ranks(*to)
    return row(Kind.BULK, **box, space=kind, inner=barrier, slot=slot, mask=1, width_bytes=0, **fields)


def remote(kind, rank, base=0, **fields):
    """An access to the shared memory of another workgroup of the cluster."""
    return row(kind, base=base, space=Space.REMOTE, cycles=ranks(rank), **fields)


def phase_arrive(number, arrivals=1, *, at=(), expected_bytes=0, **fields):
    """An arrival at transaction barrier `number`; `at`: ranks of the workgroups whose barriers are meant, () = own."""
    fields |= {"cycles": ranks(*at), "row_stride": expected_bytes}
    return row(Kind.BARRIER, slot=number, work=arrivals, space=PHASE_ARRIVE, **fields)


def phase_wait(number, phases, **fields):
    return row(Kind.BARRIER, slot=number, work=phases, space=PHASE_WAIT, **fields)


def cluster_arrive(**fields):
    return row(Kind.BARRIER, space=CLUSTER_ARRIVE, **fields)


def cluster_wait(phases, **fields):
    return row(Kind.BARRIER, work=phases, space=CLUSTER_WAIT, **fields)


def compute(count=1, pipe=Pipe.ALU, **fields):
    return row(Kind.COMPUTE, count=count, pipe=pipe, **fields)


def barrier(number=0, threads=0, **fields):
    return row(Kind.BARRIER, slot=number, work=threads, **fields)


def wait(*slots):
    return row(Kind.WAIT, wait=slots)


EXIT = row(Kind.EXIT)


def workgroup(index, warps, numbers=None):
    """A Workgroup of warps, each a list of Row (EXIT is added if missing); `numbers`: of the warps, None = 0, 1, ..."""
    programs = [[*rows] if rows and rows[-1].record["kind"] == Kind.EXIT else [*rows, EXIT] for rows in warps]
    rows = [one for program in programs for one in program]
    events = np.array([one.record for one in rows], EVENT)
    first = 0
    for k, one in enumerate(rows):
        if one.addresses:
            events["base"][k] = first
            first += len(one.addresses)
    addresses = np.array([address for one in rows for address in one.addresses], np.uint64)
    edges = np.cumsum([0, *(len(program) for program in programs)]).astype(np.int64)
    numbers = range(len(warps)) if numbers is None else numbers
    return Workgroup(index, np.array(list(numbers), np.uint16), edges, events, addresses)


class Kernel(ListKernel):
    """A kernel in memory that is known by its content."""

    def fingerprint(self):
        digest = hashlib.sha256(repr(self.info).encode())
        for item in self.items:
            for part in (np.int64(item.index), item.warp, item.first_event, item.events, item.addresses):
                digest.update(part.tobytes())
        return digest.hexdigest()


def kernel(workgroups, *, warps=None, name="k", registers=0, shared_bytes=0, lanes=LANES, cluster=1):
    """A kernel of workgroups, each a Workgroup or a list of warps."""
    items = [one if isinstance(one, Workgroup) else workgroup(k, one) for k, one in enumerate(workgroups)]
    warps = warps or max((len(item.warp) for item in items), default=1)
    grid, block = (max(1, len(items)), 1, 1), (warps * lanes, 1, 1)
    facts = name, grid, block, lanes, registers, shared_bytes, 0, warps, len(items)
    return Kernel(KernelInfo(*facts, cluster=cluster), items)


def _some(random, slots_used):
    return [int(slot) for slot in random.choice(slots_used, min(2, len(slots_used)), replace=False)]


def random_row(random, slots_used, region):
    """A row of any kind but BARRIER and EXIT. `region`: (first address, bytes) of its memory."""
    choice = random.random()
    if choice < 0.25:
        return compute(int(random.integers(1, 6)), random.choice(list(Pipe)), cycles=int(random.integers(0, 9)), work=0)
    if choice < 0.32 and slots_used:
        return wait(*random.choice(slots_used, 1))
    kinds = [Kind.LOAD] * 4 + [Kind.STORE] * 3 + [Kind.ASYNC_COPY, Kind.ATOMIC, Kind.REDUCE]
    kind = kinds[random.integers(len(kinds))]
    slot = NO_SLOT
    if kind in (Kind.LOAD, Kind.ATOMIC, Kind.ASYNC_COPY) and random.random() < 0.9:
        slot = int(random.integers(0, 64))
        slots_used.append(slot)
    if kind in (Kind.STORE, Kind.REDUCE) and random.random() < 0.3:  # a fence may wait for it
        slot = int(random.integers(0, 64))
        slots_used.append(slot)
    fields = {
        "width_bytes": int(random.choice([1, 2, 4, 8, 16])),
        "stride": int(random.choice([0, 1, 4, 16, 36, 128, 160, -8])),
        "mask": int(random.integers(0, ALL + 1)) if random.random() < 0.5 else ALL,
        "cache": int(random.choice([Cache.DEFAULT, Cache.DEFAULT, Cache.BYPASS_L1, Cache.STREAM, Cache.UNCACHED])),
        "wait": [int(s) for s in random.choice(slots_used, min(2, len(slots_used)), replace=False)]
        * (random.random() < 0.3),
        "slot": slot,
    }
    if random.random() < 0.1 and kind in (Kind.LOAD, Kind.STORE):
        return row(kind, **{**fields, "space": Space.SHARED, "slot": slot})
    base = region[0] + int(random.integers(0, region[1])) // 4 * 4
    if random.random() < 0.15:
        addresses = region[0] + random.integers(0, region[1], LANES)
        return row(kind, addresses=[int(a) for a in addresses], **fields)
    if random.random() < 0.2:
        fields.update(inner=4, row_stride=int(random.choice([0, 256, 1000])))
    return row(kind, base=base, **fields)


def random_warp(random, events, barriers, region):
    """Rows of one warp; all warps of a workgroup pass the same barriers."""
    slots_used: list = []
    rows = []
    for part in range(barriers + 1):
        rows += [random_row(random, slots_used, region) for _ in range(random.integers(0, events + 1))]
        if part < barriers:
            rows.append(barrier(part % 3))
    return rows


def random_kernel(seed, *, workgroups=6, warps=3, events=6, region=(1 << 20, 1 << 15)):
    """A kernel of random workgroups, each with all its warps or fewer."""
    random = np.random.default_rng(seed)
    items = []
    for index in range(workgroups):
        present = sorted(random.choice(warps, random.integers(1, warps + 1), replace=False))
        barriers = int(random.integers(0, 3))
        programs = [random_warp(random, events, barriers, region) for _ in present]
        items.append(workgroup(index, programs, present))
    return kernel(items, warps=warps, name=f"random{seed}")


def random_cluster_kernel(seed, *, cluster=3, clusters=4, rounds=3, region=(1 << 20, 1 << 13)):
    """A kernel of clusters of workgroups of two warps.

    In each round the first warp of each workgroup makes random bulk copies: for itself, for a random set of the others,
    and to the shared memory of another. The second one loads, stores, accesses the shared memory of others and arrives
    at transaction barriers of all. Then all meet at the barrier of the cluster.
    """
    random, groups = np.random.default_rng(seed), []
    for _ in range(clusters):
        members = [([], []) for _ in range(cluster)]
        for phase in range(1, rounds + 1):
            copies = [_random_copies(random, rank, cluster, region) for rank in range(cluster)]
            for rank, (first, second) in enumerate(members):
                brought = [
                    size
                    for own, made in enumerate(copies)
                    for one, to, size in made
                    if rank in to and (own != rank or one.record["space"] == Bulk.SEND)
                ]
                first += [one for one, _, _ in copies[rank]]
                first += [phase_arrive(0, expected_bytes=sum(brought)), phase_wait(0, phase)]
                second += _random_remote(random, cluster, region)
                second += [phase_arrive(1, cluster, at=range(cluster)), phase_wait(1, phase), phase_wait(0, phase)]
                for warp in (first, second):
                    warp += [compute(int(random.integers(1, 40))), cluster_arrive(), cluster_wait(phase)]
        groups += members
    return kernel(groups, name=f"clusters{seed}", cluster=cluster)


def _random_copies(random, rank, cluster, region):
    """Bulk copies of a workgroup to transaction barrier 0: (row, ranks that get the data, bytes)."""
    made = []
    for slot in range(4):
        rows, row_bytes = int(random.integers(1, 7)), int(random.choice([16, 100, 128, 400]))
        base = region[0] + int(random.integers(0, region[1] // 16)) * 16
        to = [int(one) for one in random.permutation(cluster)[: random.integers(1, cluster + 1)]]
        if slot == 0:  # its own, without a set
            made.append((bulk(base, rows, row_bytes, 512, barrier=0, slot=slot), (), 0))
        elif slot == 1:
            sent = bulk(base, rows, row_bytes, 512, kind=Bulk.SEND, barrier=0, slot=slot, to=to[:1])
            made.append((sent, to[:1], rows * row_bytes))
        else:
            made.append((bulk(base, rows, row_bytes, 512, barrier=0, slot=slot, to=to), to, rows * row_bytes))
    return made


def _random_remote(random, cluster, region):
    """Accesses to global memory and to the shared memory of random workgroups, and a wait for them."""
    rows = []
    for slot in range(6):
        kind = [Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.REDUCE][random.integers(4)]
        fields = {"slot": slot, "stride": int(random.choice([4, 36])), "mask": int(random.integers(1, ALL + 1))}
        base = int(random.integers(0, region[1])) // 4 * 4
        if random.random() < 0.6:
            rows.append(remote(kind, int(random.integers(cluster)), base, **fields))
        else:
            rows.append(row(kind, base=region[0] + base, **fields))
    return [*rows, wait(*range(6))]


class Recount(NamedTuple):
    """Naive count over the events of a kernel; sectors by cache policy where it matters."""

    instructions: int
    line_requests: int
    loads: int  # sectors of loads and async copies
    uncached_loads: int
    stores: int
    uncached_stores: int
    atomics: int
    written: set  # (line, sector) of cached stores, atomics and reductions


def recount(source):
    line, sectors, full = (np.zeros(LINES_PER_EVENT, t) for t in (np.int64, np.uint8, np.uint8))
    total = dict.fromkeys(("instructions", "line_requests", "loads", "uncached_loads", "stores", "uncached_stores"), 0)
    total["atomics"], written = 0, set()
    for item in source.items:
        for event in item.events:
            total["instructions"] += int(event["count"])
            if not makes_requests(event):
                continue
            n = coalesce(event, item.addresses, line, sectors, full)
            total["line_requests"] += n
            touched = [(int(line[i]), s) for i in range(n) for s in range(4) if sectors[i] >> s & 1]
            what = {Kind.STORE: "stores", Kind.ATOMIC: "atomics", Kind.REDUCE: "atomics"}.get(event["kind"], "loads")
            total[what] += len(touched)
            uncached = event["cache"] == Cache.UNCACHED and what != "atomics"
            if uncached:
                total["uncached_" + what] += len(touched)
            elif what != "loads":
                written.update(touched)
    return Recount(**total, written=written)
