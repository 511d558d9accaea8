"""From spec to hardware: all unit records of a GPU, allocated and wired with fifos. The block diagram in code.

    CU + LSU + L1 --port--> NoC --requests--> L2 bank --dram[stream]--> HBM channel
    CU <---------answers--- NoC <--answers--- L2 bank <----fills------- HBM channel (out)
"""

from typing import NamedTuple

import numpy as np

from sim.calendar import make_calendar
from sim.hw.cu import make_cus
from sim.hw.dispatcher import DISPATCH, STAGED
from sim.hw.fifo import make_fifos
from sim.hw.hbm import make_channels
from sim.hw.hbm_log import LOG
from sim.hw.l1 import make_l1s
from sim.hw.l2 import make_l2_banks, waiting_places
from sim.hw.lsu import make_lsus
from sim.hw.noc import make_noc
from sim.hw.request import STREAMS
from sim.hw.tags import make_sets
from sim.hw.warp import WARPS, clear_warps
from sim.limits import check_limits
from sim.spec import Machine
from traces.schema import EVENT

QUEUES = 2
"""Kernels in progress at once per GPU (a GEMM and a collective)."""
STAGED_WORKGROUPS = 1024
FREED = 4096

ENGINE = np.dtype(
    [
        ("cus", "i8"),
        ("banks", "i8"),
        ("channels", "i8"),
        ("now_ps", "i8"),
        ("steps", "i8"),  # unit wake-ups so far
        ("cu_steps", "i8"),
        ("bank_steps", "i8"),
        ("channel_steps", "i8"),
        ("interval_ps", "i8"),  # of the time series, 0 = none
        ("next_sample_ps", "i8"),
        ("samples", "i8"),  # rows filled since the host took them
        ("freed", "i8"),  # trace-window slabs freed since the host took them
    ]
)

SERIES = (
    "dram_compute_read_bytes",
    "dram_compute_write_bytes",
    "dram_comm_read_bytes",
    "dram_comm_write_bytes",
    "l2_read_sectors",
    "l2_read_hit_sectors",
    "queue_columns",
    "resident_workgroups",
)
"""Columns of the time series: what happened in an interval; the last two are levels at its end."""


class Node(NamedTuple):
    """All state of the simulated machine, as arrays of records."""

    engine: np.ndarray  # ENGINE [1]
    calendar: np.ndarray
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


def unit_names(machine: Machine) -> list[str]:
    """Names of the units in the order of their calendar numbers."""
    return (
        ["dispatcher"]
        + [f"cu{c}" for c in range(machine.cu.count)]
        + [f"l2bank{b}" for b in range(machine.l2.banks)]
        + [f"channel{h}" for h in range(machine.hbm.channels)]
    )


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


def build(machine: Machine) -> tuple[Node, list[str]]:
    """Allocate and wire one GPU. Returns the node and the names of its fifos."""
    check_limits(machine)
    fifos = Fifos()
    cus, banks, channels = machine.cu.count, machine.l2.banks, machine.hbm.channels
    port = fifos.add("cu.port", cus, machine.noc.cu_fifo)
    answers = fifos.add("cu.answers", cus, min(machine.l1.mshrs, 1024) + 1)
    requests = fifos.add("l2.requests", banks, machine.noc.bank_fifo)
    bank_answers = fifos.add("l2.answers", banks, waiting_places(machine.l2) + machine.l2.mshrs)
    fills = fifos.add("l2.fills", banks, machine.l2.mshrs * 2)
    dram = fifos.add("hbm.in", channels * STREAMS, machine.l2.dram_fifo).reshape(channels, STREAMS)
    out = fifos.add("hbm.out", channels, machine.l2.mshrs * 2 * (banks // channels))
    period_ps = round(1e6 / machine.cu.clock_MHz)
    l1s, l1_sets = make_l1s(machine.l1, period_ps, cus)
    channel_of_bank = np.arange(banks) // (banks // channels)
    wiring = {"requests": requests, "answers": bank_answers, "fills": fills, "dram": dram[channel_of_bank]}
    l2_banks, waiters, l2_sets = make_l2_banks(machine, wiring)
    warps = np.zeros(cus, WARPS)
    clear_warps(warps)
    records, pool = make_fifos(fifos.depths)
    engine = np.zeros(1, ENGINE)
    engine["cus"], engine["banks"], engine["channels"] = cus, banks, channels
    node = Node(
        engine=engine,
        calendar=make_calendar(1 + cus + banks + channels),
        fifos=records,
        pool=pool,
        dispatch=np.zeros(QUEUES, DISPATCH),
        staged=np.zeros((QUEUES, STAGED_WORKGROUPS), STAGED),
        cus=make_cus(machine.cu, answers),
        lsus=make_lsus(machine.cu, period_ps, port),
        l1s=l1s,
        l1_sets=make_sets(l1_sets),
        warps=warps,
        noc=make_noc(machine, requests[0], answers[0]),
        banks=l2_banks,
        l2_sets=make_sets(l2_sets),
        waiters=waiters,
        channels=make_channels(machine, dram, out),
        events=np.zeros((0, 0), EVENT),
        addresses=np.zeros((0, 1), np.uint64),
        freed=np.zeros(FREED, np.int64),
        series=np.zeros((4096, len(SERIES)), np.int64),
        totals=np.zeros(len(SERIES), np.int64),
        log=np.zeros(0, LOG),
    )
    return node, fifos.names
