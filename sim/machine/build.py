"""From spec to hardware: all unit records of a GPU, allocated and wired with fifos. The block diagram in code.

CU + LSU + L1 --port--> NoC --requests---> L2 bank --dram[stream]--> HBM channel
CU <---------answers--- NoC <-hits, late-- L2 bank <----fills------- HBM channel (out)

NoC --stores--> port --wire--> port of another GPU --> its HBM channels [COMM_WRITE]
HBM channel --notes--> Tracker --ready descriptors--> DMA engine --[COMM_READ]--> HBM channel --lines--> port
"""

from typing import NamedTuple

import numpy as np

from sim.hw.cu_record import make_cus
from sim.hw.dispatcher import DISPATCH, STAGED
from sim.hw.dma import make_dmas
from sim.hw.fifo import make_fifos
from sim.hw.hbm.channel import make_channels
from sim.hw.hbm.log import LOG
from sim.hw.l1 import make_l1s
from sim.hw.l2_record import make_l2_banks, waiting_places
from sim.hw.link import WIRE, make_ports
from sim.hw.lsu_record import make_lsus
from sim.hw.noc_record import make_noc
from sim.hw.prefetch import host_aligned
from sim.hw.request import NEVER, REQUEST, STREAMS
from sim.hw.space import GATE, MIRROR, SEND, SPACE, TILE, WAVEFRONT
from sim.hw.spans import SPAN
from sim.hw.tags import make_sets
from sim.hw.tracker import TRACKER
from sim.hw.warp import WARPS, clear_warps
from sim.machine.limits import check_limits
from sim.spec import Machine
from traces.schema import EVENT

QUEUES = 4
"""Kernels in progress at once per GPU."""
STAGED_WORKGROUPS = 1024
MAX_WINDOW_PS = 50_000
NOTES = 2048
"""Updates that one channel can take in a window, with room to spare."""

ENGINE = np.dtype(
    [
        ("cus", "i8"),
        ("banks", "i8"),
        ("channels", "i8"),
        ("ports", "i8"),  # links each way to other GPUs
        ("window_ps", "i8"),  # length of a time window: no unit feels another within one
        ("now_ps", "i8"),  # end of the last window
        ("noc_ps", "i8"),  # when the next packet left behind can go
        ("resume_ps", "i8"),  # begin of the window in which the host was asked for workgroups, -1 = none
        ("windows", "i8"),  # time windows so far
        (
            "idle_windows",
            "i8",
        ),  # the last of them, in which nothing moved; only where the engine was stopped by time
        ("cu_steps", "i8"),  # unit steps so far
        ("bank_steps", "i8"),
        ("channel_steps", "i8"),
        ("interval_ps", "i8"),  # of the time series, 0 = none
        ("next_sample_ps", "i8"),
        ("samples", "i8"),  # rows filled since the host took them
        ("freed", "i8"),  # trace-window slabs freed since the host took them
        ("spans", "i8"),  # written to the timeline, or lost when it was full
        ("horizon_ps", "i8"),  # no window reaches beyond it: what other GPUs do later is not known yet
        ("fabric_ps", "i8"),  # when a port, a DMA engine or an arrival can next do something
        ("descriptors", "i8"),  # ready DMA descriptors taken by engines so far
        ("stage_workgroups", "i8"),  # MCA: the first stage is over when so many have finished; 0 = nothing to choose
        ("stage_from_ps", "i8"),
        ("mca_share", "f8", 3),  # of the queue: mean occupancy from which ...
        ("mca_limit", "i8", 3),  # ... this threshold holds, strictest first
        ("mca_occupancy", "f8"),  # that was seen, entries per channel
        ("mca_chosen", "i8"),  # threshold, NEVER = no limit
    ]
)

SERIES = (
    "dram_compute_read_bytes",
    "dram_compute_write_bytes",
    "dram_comm_read_bytes",
    "dram_comm_write_bytes",
    "l2_read_sectors",
    "l2_read_hit_sectors",
    "link_bytes",
    "tracker_triggers",
    "queue_columns",
    "resident_workgroups",
    "tracker_live_tiles",
)
"""Columns of the time series: what happened in an interval; the last three are levels at its end."""
LEVELS = 3


class Output(NamedTuple):
    """What is known of the buffers of a run: their address-space configuration, the Tracker, the ledger's counts."""

    space: np.ndarray  # SPACE [buffers], one at least
    tiles: np.ndarray  # TILE [tags], of all buffers
    sends: np.ndarray  # SEND
    wavefronts: np.ndarray  # WAVEFRONT [tags, wavefronts], empty where nothing is tracked
    tracker: np.ndarray  # TRACKER [1]
    gates: np.ndarray  # GATE
    mirrors: np.ndarray  # MIRROR [ports, tags], symmetric machines only
    released: np.ndarray  # i8 [descriptors, 4]: those ready (tag, wavefront or -1, ready_ps, number of the send)
    chunk_left: np.ndarray  # i8 [chunks]: tiles with sends that have not triggered


class Node(NamedTuple):
    """All state of the simulated machine, as arrays of records."""

    engine: np.ndarray  # ENGINE [1]
    cu_wake_ps: np.ndarray  # i8: when each unit can do something next, NEVER = when somebody gives it something
    bank_wake_ps: np.ndarray
    channel_wake_ps: np.ndarray
    fifos: np.ndarray
    pool: np.ndarray
    dispatch: np.ndarray  # DISPATCH [QUEUES]
    staged: np.ndarray  # STAGED [QUEUES, STAGED_WORKGROUPS]
    cus: np.ndarray
    lsus: np.ndarray
    l1s: np.ndarray
    l1_sets: np.ndarray
    warps: np.ndarray
    noc: np.ndarray
    banks: np.ndarray
    l2_sets: np.ndarray
    waiters: np.ndarray
    channels: np.ndarray
    events: np.ndarray  # trace window: EVENT [slabs, events]
    addresses: np.ndarray  # u8 [slabs, explicit lane addresses]
    freed: np.ndarray  # slabs of workgroups that ended
    series: np.ndarray  # i8 [rows, len(SERIES)]
    totals: np.ndarray  # i8 [len(SERIES)]: counters at the last sample
    log: np.ndarray  # DRAM commands, empty when off
    spans: np.ndarray  # SPAN: the timeline, empty when off
    output: Output
    dmas: np.ndarray
    ports: np.ndarray
    wires: np.ndarray  # WIRE: shared by all GPUs of a run
    arriving: np.ndarray  # REQUEST [1]: the packet in hand


class Fifos:
    """Numbers the fifos of a machine and remembers their names and depths."""

    def __init__(self):
        self.depths: list[int] = []
        self.names: list[str] = []

    def add(self, name: str, count: int, depth: int) -> np.ndarray:
        """`count` fifos called name0, name1, ...; returns their numbers."""
        first = len(self.depths)
        self.depths += [depth] * count
        self.names += [f"{name}{k}" for k in range(count)]
        return np.arange(first, first + count)


def window_ps(machine: Machine) -> int:
    """The longest time in which no unit can feel what another does: the shortest latency between two units."""
    noc_ps = machine.noc.latency_clk * round(1e6 / machine.noc.clock_MHz)
    return max(1, min(noc_ps, machine.hbm.request_ps, MAX_WINDOW_PS))


def _wire(machine: Machine, ports: int) -> tuple[Fifos, dict[str, np.ndarray]]:
    """Fifos of one GPU and their numbers by role."""
    fifos = Fifos()
    cus, banks, channels = machine.cu.count, machine.l2.banks, machine.hbm.channels
    line_ps = 1e6 / machine.cu.clock_MHz / machine.cu.lsu_lines_per_clk
    # Ports and banks empty once per window, so beside their depth they hold what comes in one.
    lines_per_window = -(-window_ps(machine) // line_ps)
    places = waiting_places(machine.l2)
    fills = machine.l2.mshrs * 2
    # One hit per clock: those of a latency, and of the window after which the NoC takes them.
    hits = machine.l2.latency_clk + 2 + int(window_ps(machine) * machine.l2.clock_MHz / 1e6)
    numbers = {
        "port": fifos.add("cu.port", cus, machine.noc.cu_fifo + int(lines_per_window)),
        "cu_answers": fifos.add("cu.answers", cus, machine.l1.mshrs + 1),
        "requests": fifos.add("l2.requests", banks, machine.noc.bank_fifo),
        "hits": fifos.add("l2.hits", banks, hits),
        "late": fifos.add("l2.late", banks, places + fills),
        "fills": fifos.add("l2.fills", banks, fills),
        "dram": fifos.add("hbm.in", channels * STREAMS, machine.l2.dram_fifo).reshape(channels, STREAMS),
        "out": fifos.add("hbm.out", channels, fills * (banks // channels) + _dma_reads(machine, ports)),
        "stores": fifos.add("link.stores", ports, machine.link.egress_fifo),
        "lines": fifos.add("link.lines", ports, machine.link.egress_fifo),
        "notes": fifos.add("tracker.notes", channels if ports else 0, NOTES),
    }
    return fifos, numbers


def _dma_reads(machine: Machine, ports: int) -> int:
    """Reads of the DMA engines that one channel may hold answers of."""
    return machine.dma.engines * machine.dma.outstanding if ports else 0


def no_output() -> Output:
    """Nothing is tracked and nothing leaves the GPU."""
    return Output(
        space=np.zeros(1, SPACE),
        tiles=np.zeros(0, TILE),
        sends=np.zeros(0, SEND),
        wavefronts=np.zeros((0, 0), WAVEFRONT),
        tracker=np.zeros(1, TRACKER),
        gates=np.zeros(0, GATE),
        mirrors=np.zeros((0, 0), MIRROR),
        released=np.zeros((0, 4), np.int64),
        chunk_left=np.zeros(0, np.int64),
    )


def build(machine: Machine, ports: int = 0, wires: np.ndarray | None = None) -> tuple[Node, list[str]]:
    """Allocate and wire one GPU.

    Args:
        machine: the spec.
        ports: links each way to other GPUs; 0 = a GPU alone, without Tracker and DMA engines.
        wires: WIRE array of all GPUs; the caller sets `out_wire`, `in_wire` and `distance` of the ports.

    Returns:
        The node and the names of its fifos.
    """
    check_limits(machine)
    fifos, number = _wire(machine, ports)
    cus, banks, channels = machine.cu.count, machine.l2.banks, machine.hbm.channels
    period_ps = round(1e6 / machine.cu.clock_MHz)
    l1s, l1_sets = make_l1s(machine.l1, period_ps, cus)
    wiring = {role: number[role] for role in ("requests", "hits", "late", "fills")}
    wiring["dram"] = number["dram"][np.arange(banks) // (banks // channels)]
    l2_banks, waiters, l2_sets = make_l2_banks(machine, wiring)
    warps = host_aligned(cus, WARPS)
    clear_warps(warps)
    records, pool = make_fifos(fifos.depths)
    engine = np.zeros(1, ENGINE)
    engine["cus"], engine["banks"], engine["channels"] = cus, banks, channels
    engine["ports"] = ports
    engine["window_ps"], engine["noc_ps"] = window_ps(machine), NEVER
    engine["resume_ps"] = -1
    engine["horizon_ps"] = engine["fabric_ps"] = NEVER
    _set_mca(engine, machine)
    channel_notes = number["notes"] if ports else np.full(channels, -1)
    node = Node(
        engine=engine,
        cu_wake_ps=np.full(cus, NEVER, np.int64),
        bank_wake_ps=np.full(banks, NEVER, np.int64),
        channel_wake_ps=np.full(channels, NEVER, np.int64),
        fifos=records,
        pool=pool,
        dispatch=np.zeros(QUEUES, DISPATCH),
        staged=np.zeros((QUEUES, STAGED_WORKGROUPS), STAGED),
        cus=make_cus(machine.cu, number["cu_answers"]),
        lsus=make_lsus(machine.cu, period_ps, number["port"]),
        l1s=l1s,
        l1_sets=make_sets(l1_sets),
        warps=warps,
        noc=make_noc(
            machine,
            first_port_fifo=number["port"][0],
            first_request_fifo=number["requests"][0],
            first_hit_fifo=number["hits"][0],
            first_answer_fifo=number["cu_answers"][0],
            first_link_fifo=number["stores"][0] if ports else 0,
        ),
        banks=l2_banks,
        l2_sets=make_sets(l2_sets),
        waiters=waiters,
        channels=make_channels(machine, number["dram"], number["out"], channel_notes),
        events=np.zeros((0, 0), EVENT),
        addresses=np.zeros((0, 1), np.uint64),
        freed=np.zeros(0, np.int64),
        series=np.zeros((4096, len(SERIES)), np.int64),
        totals=np.zeros(len(SERIES), np.int64),
        log=np.zeros(0, LOG),
        spans=np.zeros(0, SPAN),
        output=no_output(),
        dmas=make_dmas(machine)[: None if ports else 0],
        ports=make_ports(machine, ports, number["stores"], number["lines"]),
        wires=np.zeros(0, WIRE) if wires is None else wires,
        arriving=np.zeros(1, REQUEST),
    )
    return node, fifos.names


def _set_mca(engine: np.ndarray, machine: Machine) -> None:
    """The table of MCA's thresholds."""
    mca = machine.mca
    engine["mca_share"] = [mca.strict_from, mca.medium_from, mca.loose_from]
    engine["mca_limit"] = [mca.strict, mca.medium, mca.loose]
    engine["mca_chosen"] = NEVER
