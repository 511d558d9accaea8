"""The block diagram in code: the units of a GPU, the order in which they act, and the fifos between them.

A new unit needs a file in `sim/hw` (record, maker, step, phase, counters), its values in `sim/spec.py` and in
`sim/presets/fabric/t3.toml`, and a test. In this file it needs a row of UNITS, a row of PHASES, its records in Node,
and its fifos in `sim.machine.wiring` and `build`; in `sim.machine.shares` a call of its phase.

CU + LSU + L1 --port--> NoC --requests---> L2 bank --dram[stream]--> (memory-side cache) --> HBM channel
CU <---------answers--- NoC <-hits, late-- L2 bank <----fills------- HBM channel (out)
CU --peer_ports--> way between CUs --mail--> CU (with NoC --mail--> CU for multicast lines)

NoC --stores--> port --wire--> port of another GPU --fabric[COMM_WRITE]--> its HBM channels (or --arrivals--> L2 bank)
L2 bank (of another GPU's load) --hits, late--> NoC --loads--> port --wire--> port there --data--> its NoC
HBM channel --notes--> Tracker --ready descriptors--> DMA engine --fabric[COMM_READ]--> HBM channel (or --dma_reads-->
L2 bank)
HBM channel --data--> DMA engine --lines--> port
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from sim.hw.bulk_record import BULK, make_bulks
from sim.hw.bulk_record import COUNTERS as BULK_COUNTERS
from sim.hw.calendar import CALENDAR, set_period
from sim.hw.cu_record import COUNTERS as CU_COUNTERS
from sim.hw.cu_record import CU, make_cus
from sim.hw.dispatch_record import DISPATCH, QUEUES, STAGED
from sim.hw.dma import COUNTERS as DMA_COUNTERS
from sim.hw.dma import DESCRIPTOR, DMA, make_dmas
from sim.hw.fifo import Pool, make_fifos
from sim.hw.hbm.channel import make_channels
from sim.hw.hbm.log import LOG
from sim.hw.hbm.record import CHANNEL
from sim.hw.hbm.record import COUNTERS as HBM_COUNTERS
from sim.hw.l1 import COUNTERS as L1_COUNTERS
from sim.hw.l1 import L1, make_l1s
from sim.hw.l2_record import COPY_COUNTERS, L2_BANK, make_l2_banks
from sim.hw.l2_record import COUNTERS as L2_COUNTERS
from sim.hw.link_record import COUNTERS as LINK_COUNTERS
from sim.hw.link_record import PORT, WIRE, make_ports
from sim.hw.lsu_record import COUNTERS as LSU_COUNTERS
from sim.hw.lsu_record import LSU, make_lsus
from sim.hw.mca import make_mca
from sim.hw.msc_record import COUNTERS as MSC_COUNTERS
from sim.hw.msc_record import MSC, make_mscs
from sim.hw.noc_record import COUNTERS as NOC_COUNTERS
from sim.hw.noc_record import FAR_COUNTERS, NOC, make_noc
from sim.hw.partition import home_banks
from sim.hw.peers_record import COUNTERS as PEERS_COUNTERS
from sim.hw.peers_record import MESSAGE, PEERS, make_peers
from sim.hw.prefetch import host_aligned, in_huge_pages
from sim.hw.request import NEVER, REQUEST
from sim.hw.space import GATE, MIRROR, SEND, SPACE, TILE, WAVEFRONT
from sim.hw.spans import SPAN
from sim.hw.switch import make_switch
from sim.hw.tags import make_sets
from sim.hw.tracker import COUNTERS as TRACKER_COUNTERS
from sim.hw.tracker import TRACKER
from sim.hw.warp import WARPS, clear_warps
from sim.machine.clusters import run_peers
from sim.machine.engine_record import SERIES, make_engine
from sim.machine.phase_banks import run_banks
from sim.machine.phase_cus import run_cus
from sim.machine.phase_dma import run_dmas
from sim.machine.phase_links import run_arrivals, run_links
from sim.machine.phase_memory import retry_memory, run_channels, run_mscs
from sim.machine.phase_noc import run_answers, run_requests
from sim.machine.stalls import STALL
from sim.machine.tracking import run_tracker
from sim.machine.wiring import data_ps, lookahead_ps, wire
from sim.spec import Machine
from tracer.compile.reference import by_reference
from traces.schema import EVENT
from traces.units import whole_period_ps

STAGED_WORKGROUPS = 1024
LARGE = ("fifos", "cus", "lsus", "l1s", "l1_sets", "warps", "banks", "l2_sets", "waiters", "msc_sets", "channels")
"""Fields of Node with the records that every time window uses; nearly all memory of a machine."""


class Unit(NamedTuple):
    """A kind of hardware unit.

    Attributes:
        name: in counters and results.
        records: field of Node with its records, one per instance.
        record: their dtype.
        counters: counter field -> meaning.
        joined: True: only GPUs joined by links have it.
    """

    name: str
    records: str
    record: np.dtype
    counters: dict[str, str]
    joined: bool = False


UNITS = (
    Unit("cu", "cus", CU, CU_COUNTERS),
    Unit("lsu", "lsus", LSU, LSU_COUNTERS),
    Unit("bulk", "bulk_units", BULK, BULK_COUNTERS),
    Unit("peers", "peer_units", PEERS, PEERS_COUNTERS),
    Unit("l1", "l1s", L1, L1_COUNTERS),
    Unit("noc", "noc", NOC, NOC_COUNTERS),
    Unit("far", "far_noc", NOC, FAR_COUNTERS),
    Unit("l2", "banks", L2_BANK, L2_COUNTERS),
    Unit("copies", "copy_banks", L2_BANK, COPY_COUNTERS),
    Unit("msc", "mscs", MSC, MSC_COUNTERS),
    Unit("hbm", "channels", CHANNEL, HBM_COUNTERS),
    Unit("link", "ports", PORT, LINK_COUNTERS, joined=True),
    Unit("dma", "dmas", DMA, DMA_COUNTERS, joined=True),
    Unit("tracker", "output.tracker", TRACKER, TRACKER_COUNTERS, joined=True),
)
"""All units with counters, in the order of a request's path."""


class Phase(NamedTuple):
    """A step of every time window.

    Attributes:
        title: text for reports.
        unit: name of the unit. A machine without this unit does not need the phase.
        run: compiled function of (node, first, last, end_ps) if it has `spread`, else of (node, begin_ps, end_ps).
        spread: field of Node with the records over whose numbers its units are spread over threads; "" = one job.
    """

    title: str
    unit: str
    run: Callable[..., Any]
    spread: str = ""


PHASES = (
    Phase("L2 banks", "l2", run_banks, "channels"),
    Phase("CUs, load/store units and L1", "cu", run_cus, "cus"),
    Phase("NoC, requests", "noc", run_requests),
    Phase("NoC, answers", "noc", run_answers),
    Phase("between CUs", "peers", run_peers),
    Phase("memory-side cache", "msc", run_mscs, "channels"),
    Phase("HBM channels", "hbm", run_channels, "channels"),
    Phase("retries of the memory", "hbm", retry_memory, "channels"),
    Phase("arrivals from other GPUs", "link", run_arrivals),
    Phase("Tracker", "tracker", run_tracker),
    Phase("DMA engines", "dma", run_dmas),
    Phase("links", "link", run_links),
)
"""Phases in an order in which they may run. `sim.machine.shares` calls the same functions."""


@by_reference
class Output(NamedTuple):
    """Records of the buffers of a run: their address-space configuration, the Tracker, the ledger's counts."""

    space: np.ndarray  # SPACE [buffers], at least one
    tiles: np.ndarray  # TILE [tags], of all buffers
    sends: np.ndarray  # SEND
    wavefronts: np.ndarray  # WAVEFRONT [tags, wavefronts], empty if nothing is tracked
    tracker: np.ndarray  # TRACKER [1]
    gates: np.ndarray  # GATE
    mirrors: np.ndarray  # MIRROR [ports, tags], symmetric machines only
    released: np.ndarray  # i8 [descriptors, 5]: ready descriptors (sim.hw.dma)
    chunk_left: np.ndarray  # i8 [chunks]: tiles with sends that have not triggered
    switch: np.ndarray  # SWITCH [1]
    sums: np.ndarray  # SUM [places], empty if the switch adds nothing


@by_reference
class Node(NamedTuple):
    """All state of the simulated machine, as arrays of records."""

    engine: np.ndarray  # ENGINE [1]
    wake_ps: np.ndarray  # i8: when each unit can act next, NEVER = it waits for another unit
    cu_wake_ps: np.ndarray  # parts of wake_ps, the same memory
    bank_wake_ps: np.ndarray
    msc_wake_ps: np.ndarray
    channel_wake_ps: np.ndarray
    memory_wake_ps: np.ndarray  # of the unit that takes a channel's requests: its memory-side cache or the channel
    fabric_fifos: np.ndarray  # i8 [channels, STREAMS]: fifos of this unit for requests that go past L2, -1 = none
    cu_told_ps: np.ndarray  # part of wake_ps: what the Tracker tells CUs
    bank_told_ps: np.ndarray  # and what memory, and arrivals that stay in L2, tell banks
    copy_told_ps: np.ndarray  # and what the crossbar tells banks about data for copies; empty without copies
    steps: np.ndarray  # i8: calls of each CU, bank and channel so far; places as in wake_ps
    news: np.ndarray  # i1 [CUs]: what each has to tell since it ran last (sim.machine.engine_record)
    fifos: np.ndarray
    pool: Pool
    dispatch: np.ndarray  # DISPATCH [QUEUES]
    staged: np.ndarray  # STAGED [QUEUES, STAGED_WORKGROUPS]
    cus: np.ndarray
    lsus: np.ndarray
    bulks: np.ndarray
    leaving: np.ndarray  # BULK [CUs]: their copies to other GPUs
    bulk_units: np.ndarray  # the same memory: bulks, then leaving; empty if the machine has no bulk copies
    peers: np.ndarray
    peer_units: np.ndarray  # the same memory; empty if the machine has no clusters of workgroups
    mail: np.ndarray  # MESSAGE [CUs, places]: of the CUs, a ring each; empty if no kernel has clusters
    l1s: np.ndarray
    l1_sets: np.ndarray
    warps: np.ndarray
    noc: np.ndarray
    far_noc: np.ndarray  # the same memory; empty if no packet goes from one partition of L2 to another
    banks: np.ndarray
    copy_banks: np.ndarray  # the same memory; empty if no bank keeps copies
    l2_sets: np.ndarray
    waiters: np.ndarray
    mscs: np.ndarray  # empty if the machine has none
    msc_sets: np.ndarray  # empty if it stores nothing
    msc_waiters: np.ndarray
    channels: np.ndarray
    mca: np.ndarray  # MCA [1]
    events: np.ndarray  # trace window: EVENT [slabs, events]
    addresses: np.ndarray  # u8 [slabs, explicit lane addresses]
    freed: np.ndarray  # slabs of workgroups that ended
    series: np.ndarray  # i8 [rows, channels + len(SERIES)]: bytes of each channel, then SERIES; empty when off
    totals: np.ndarray  # i8 [channels + len(SERIES)]: counters at the last sample
    stalls: np.ndarray  # STALL: what warps wait for, empty when off
    calendars: np.ndarray  # CALENDAR [2]: of the Tracker and of the data for DMA engines
    log: np.ndarray  # DRAM commands, empty when off
    spans: np.ndarray  # SPAN: the timeline, empty when off
    output: Output
    dmas: np.ndarray
    ports: np.ndarray
    wires: np.ndarray  # WIRE: shared by all GPUs of a run
    arriving: np.ndarray  # REQUEST [1]: the current packet


def no_output() -> Output:
    """The Output of a run in which nothing is tracked and nothing leaves the GPU."""
    switch, sums = make_switch(0, adds=False)
    return Output(
        space=np.zeros(1, SPACE),
        tiles=np.zeros(0, TILE),
        sends=np.zeros(0, SEND),
        wavefronts=np.zeros((0, 0), WAVEFRONT),
        tracker=np.zeros(1, TRACKER),
        gates=np.zeros(0, GATE),
        mirrors=np.zeros((0, 0), MIRROR),
        released=np.zeros((0, DESCRIPTOR), np.int64),
        chunk_left=np.zeros(0, np.int64),
        switch=switch,
        sums=sums,
    )


def build(
    machine: Machine, ports: int = 0, wires: np.ndarray | None = None, loads: bool = False
) -> tuple[Node, list[str]]:
    """Allocate and wire one GPU.

    Args:
        machine: the spec, checked (`sim.presets.check`).
        ports: number of links (in each direction) to other GPUs; 0 = a GPU alone, without Tracker and DMA engines.
        wires: WIRE array of all GPUs; the caller sets `out_wire`, `in_wire`, `distance` and `back` of the ports.
        loads: CUs load from other GPUs.

    Returns:
        The node and the names of its fifos.
    """
    ahead_ps = lookahead_ps(machine, ports)
    fifos, number = wire(machine, ports, loads)
    cus, banks, channels = machine.cu.count, machine.l2.banks, machine.hbm.channels
    clock_ps = whole_period_ps(machine.cu.clock_MHz)
    l1s, l1_sets = make_l1s(machine.l1, clock_ps, cus)
    roles = ("requests", "hits", "late", "fills", "far", "peer", "copy_fills", "arrivals", "dma_reads")
    wiring: dict[str, np.ndarray] = {role: number[role] for role in roles if role in number}
    spread = home_banks(machine.l2)
    wiring["dram"] = number["memory"][np.arange(banks) % spread // (spread // channels)]
    l2_banks, waiters, l2_sets = make_l2_banks(machine, wiring)
    warps = host_aligned(cus, WARPS)
    clear_warps(warps)
    records, pool = make_fifos(fifos.depths, fifos.credits_ps)
    memory = {"in_fifo": number["memory"], "fabric_fifo": number["fabric"], "out_fifo": number["dram"]}
    mscs, msc_waiters, msc_sets = make_mscs(
        machine, {**memory, "fills": number["out"], "answers": number["msc_answers"], "data": number["data"]}
    )
    counts = (cus, banks, len(mscs), channels)
    copies = banks if "peer" in number else 0
    wake_ps = np.full(sum(counts) + cus + banks + copies, NEVER, np.int64)
    cu_wake_ps, bank_wake_ps, msc_wake_ps, channel_wake_ps, cu_told_ps, bank_told_ps, copy_told_ps = np.split(
        wake_ps, np.cumsum((*counts, cus, banks))
    )
    fabric = np.full_like(number["fabric"], -1) if len(mscs) else number["fabric"]
    joined = fabric, number["notes"], number["data"]
    calendars = np.zeros(2, CALENDAR)
    set_period(calendars, whole_period_ps(machine.hbm.clock_MHz))
    dispatch = np.zeros(QUEUES, DISPATCH)
    dispatch["lookahead_ps"], dispatch["cluster"] = ahead_ps, 1
    dispatch["cus"], dispatch["groups"] = cus, machine.cu.groups
    noc = make_noc(
        machine,
        2 if len(number["leave_port"]) else 1,
        first_port_fifo=number["port"][0],
        first_request_fifo=number["requests"][0],
        first_far_fifo=number["far"][0] if "far" in number else -1,
        first_copy_fifo=number["copy_fills"][0] if "copy_fills" in number else -1,
        first_hit_fifo=number["hits"][0],
        first_answer_fifo=number["cu_answers"][0],
        first_link_fifo=number["stores"][0] if ports else 0,
        first_load_fifo=number["loads"][0] if loads else -1,
        links=len(number["link_data"]),
    )
    bulks = make_bulks(machine.cu, clock_ps, number["port"], number["peer_port"], number["leave_port"])
    peers = make_peers(machine, number["peer_port"])
    node = Node(
        engine=make_engine(
            lookahead_ps=ahead_ps,
            grid_ps=whole_period_ps(machine.noc.clock_MHz),
            window_ps=ahead_ps,
            data_ps=data_ps(machine),
            first_note_fifo=number["notes"][0],
        ),
        wake_ps=wake_ps,
        cu_wake_ps=cu_wake_ps,
        bank_wake_ps=bank_wake_ps,
        msc_wake_ps=msc_wake_ps,
        channel_wake_ps=channel_wake_ps,
        memory_wake_ps=msc_wake_ps if len(mscs) else channel_wake_ps,
        fabric_fifos=number["fabric"],
        cu_told_ps=cu_told_ps,
        bank_told_ps=bank_told_ps,
        copy_told_ps=copy_told_ps,
        steps=np.zeros(sum(counts), np.int64),
        news=np.zeros(cus, np.int8),
        fifos=records,
        pool=pool,
        dispatch=dispatch,
        staged=np.zeros((QUEUES, STAGED_WORKGROUPS), STAGED),
        cus=make_cus(machine.cu, number["cu_answers"]),
        lsus=make_lsus(machine.cu, clock_ps, number["port"], machine.l2.atomics_per_clk > 0, number["peer_port"]),
        bulks=bulks[0],
        leaving=bulks[1],
        bulk_units=bulks.reshape(-1)[: cus + len(number["leave_port"]) if machine.cu.bulk_lines_per_clk else 0],
        peers=peers,
        peer_units=peers[: cus if machine.cu.groups else 0],
        mail=np.zeros((0, 0), MESSAGE),
        l1s=l1s,
        l1_sets=make_sets(l1_sets),
        warps=warps,
        noc=noc,
        far_noc=noc[: len(noc) if "far" in number else 0],
        banks=l2_banks,
        copy_banks=l2_banks[:copies],
        l2_sets=make_sets(l2_sets),
        waiters=waiters,
        mscs=mscs,
        msc_sets=make_sets(msc_sets),
        msc_waiters=msc_waiters,
        channels=make_channels(machine, number["dram"], number["out"], joined),
        mca=make_mca(machine),
        events=np.zeros((0, 0), EVENT),
        addresses=np.zeros((0, 1), np.uint64),
        freed=np.zeros(0, np.int64),
        series=np.zeros((0, channels + len(SERIES)), np.int64),
        totals=np.zeros(channels + len(SERIES), np.int64),
        stalls=np.zeros(0, STALL),
        calendars=calendars,
        log=np.zeros(0, LOG),
        spans=np.zeros(0, SPAN),
        output=no_output(),
        dmas=make_dmas(machine)[: None if ports else 0],
        ports=make_ports(machine, ports, number["stores"], number["lines"], number["loads"] if loads else -1),
        wires=np.zeros(0, WIRE) if wires is None else wires,
        arriving=np.zeros(1, REQUEST),
    )
    large: dict[str, Any] = {field: getattr(node, field) for field in LARGE}
    released: dict[str, Any] = dict.fromkeys(LARGE)
    node = node._replace(**released)
    del l1s, l2_banks, warps, waiters  # memory of an array is free once it has been copied
    node = node._replace(**in_huge_pages(large))
    return node._replace(copy_banks=node.banks[:copies]), fifos.names


def units_of(node: Node) -> dict[str, np.ndarray]:
    """Name -> records, for each unit that the machine has."""
    found = {unit.name: attrgetter(unit.records)(node) for unit in UNITS if len(node.ports) or not unit.joined}
    return {name: records for name, records in found.items() if len(records)}


def phases_of(node: Node) -> list[Phase]:
    """The PHASES that the machine needs."""
    units = units_of(node)
    return [phase for phase in PHASES if phase.unit in units]
