"""What one simulation found: time, traffic, counters, time series and timeline, and the ledger's verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.collective import ledger
from sim.counters import take, totals
from sim.host.cluster import Cluster
from sim.host.gpu import Gpu
from sim.hw.request import NEVER, SECTOR_BYTES, Stream
from sim.hw.spans import SPAN
from sim.hw.tracker import tracker_bits
from sim.spec import CollectiveCache


@dataclass
class JobResult:
    """What one simulation found, of GPU 0 where all do the same.

    Attributes:
        time_ps: from the launch to the last data in memory.
        kernel_ps: to the end of the kernel itself (its last warp, its last store in L2 where stores are cached).
        dram_bytes: per Stream, i8 [4], reads, writes and updates together, mean over the simulated GPUs.
        link_bytes: sent by a GPU, mean over the simulated GPUs.
        totals: counters of GPU 0.
        series: time series of GPU 0.
        exactly_once, wrong: the ledger's verdict; True without a ledger.
        facts: figures of single units: Tracker, MCA, links.
        spans: SPAN, timeline of GPU 0; empty without a time series.
        triggers: i8 [tiles, 3], of GPU 0: tile, when it was complete (ps), local chunk; empty without a time series.
        requests: line requests that CUs and DMA engines made, all simulated GPUs together.
    """

    time_ps: int
    kernel_ps: int
    dram_bytes: np.ndarray
    link_bytes: int
    totals: dict[str, int]
    series: dict[str, np.ndarray] = field(default_factory=dict)
    exactly_once: bool = True
    wrong: tuple[str, ...] = ()
    facts: dict[str, float | int | None] = field(default_factory=dict)
    requests: int = 0
    spans: np.ndarray = field(default_factory=lambda: np.zeros(0, SPAN))
    triggers: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))


def gpu_result(gpus: Sequence[Gpu], time_ps: int, kernel_ps: int, interval_ps: int) -> JobResult:
    """Of GPUs that do the same, without a ledger."""
    moved = sum((moved_bytes(gpu) for gpu in gpus), np.zeros(len(Stream), np.int64))
    requests = sum(int(gpu.node.lsus["line_requests"].sum() + gpu.node.dmas["lines"].sum()) for gpu in gpus)
    first = gpus[0]
    counted = totals({unit: take(unit, records) for unit, records in first.counters().items()})
    sent = sum(int(gpu.node.ports["bytes"].sum()) for gpu in gpus)
    series = first.series() if interval_ps else {}
    spans = first.spans() if interval_ps else np.zeros(0, SPAN)
    return JobResult(
        *(time_ps, kernel_ps, moved // len(gpus), sent // len(gpus), counted, series), requests=requests, spans=spans
    )


def moved_bytes(gpu: Gpu) -> np.ndarray:
    """Bytes at the memory controllers of a GPU: reads, writes and updates together, per Stream, i8 [4]."""
    channels = gpu.counters()["hbm"]
    columns = np.zeros(len(Stream), np.int64)
    for name in ("read_columns", "write_columns", "update_columns"):
        columns += channels[name].sum(axis=0)
    return columns * SECTOR_BYTES


def end_of(gpu: Gpu) -> int:
    """When the last warp of a GPU had left, its last data were in memory, and its Tracker had told of the last tile."""
    node = gpu.node
    ends = (node.cus["last_exit_ps"].max(), node.channels["bus_end_ps"].max(), node.output.tracker[0]["last_ps"])
    return max(int(end) for end in ends)


def cluster_result(cluster: Cluster, interval_ps: int) -> JobResult:
    """Of GPUs that have come to rest."""
    end_ps = max(end_of(gpu) for gpu in cluster.gpus)
    kernel_ps = max(int(gpu.node.cus["last_exit_ps"].max()) for gpu in cluster.gpus)
    if cluster.machine.collective.cache == CollectiveCache.ALLOCATE:
        for gpu in cluster.gpus:
            gpu.flush_l2()
    result = gpu_result(cluster.gpus, end_ps, kernel_ps, interval_ps)
    outputs = [gpu.node.output for gpu in cluster.gpus]
    verdict = ledger.close(cluster.plans, [out.tiles for out in outputs], [out.wavefronts for out in outputs])
    result.exactly_once, result.wrong = verdict.exactly_once, verdict.wrong
    result.facts = _facts(cluster)
    if interval_ps:
        result.triggers = _triggers(cluster)
    return result


def _triggers(cluster: Cluster) -> np.ndarray:
    """(tile, complete at, local chunk) of the tracked tiles of GPU 0, in the order of time."""
    tiles, chunks = cluster.gpus[0].node.output.tiles, cluster.plans[0].chunks
    local = np.zeros(len(tiles), np.int64)
    for stage in range(chunks.gpus):
        span = chunks.span(0, stage)
        local[span.start : span.stop] = stage
    tracked = np.flatnonzero(tiles["triggers"])
    found = np.column_stack([tracked, tiles["done_ps"][tracked], local[tracked]])
    return found[np.lexsort((found[:, 0], found[:, 1]))]


def _facts(cluster: Cluster) -> dict[str, float | int | None]:
    node, tiles = cluster.gpus[0].node, cluster.gpus[0].node.output.tiles
    tracker, engine = node.output.tracker[0], node.engine[0]
    chosen = int(engine["mca_chosen"])
    return {
        "simulated_gpus": len(cluster.gpus),
        "tracker_triggers": int(tracker["triggers"]),
        "tracker_wavefronts": int(tracker["wavefronts"]),
        "tracker_live_max": int(tracker["live_max"]),
        "tracker_stalls": int(tracker["stalls"]),
        "tracker_spilled": int(tracker["spilled"]),
        "tracker_bytes": tracker_bits(cluster.machine.tracker) // 8,
        "mca_threshold": None if chosen == NEVER else chosen,
        "mca_occupancy": float(engine["mca_occupancy"]),
        "link_busy_ps": int(node.ports["busy_ps"].max()),
        "credit_stalls": int(node.ports["credit_stalls"].sum()),
        "arrival_blocked_ps": int(node.ports["blocked_ps"].sum()),
        "dma_tiles": int(((tiles["sends"] > 0) & (tiles["sent_bytes"] == tiles["sends"] * tiles["bytes"])).sum()),
        "dma_descriptors": int(node.dmas["descriptors"].sum()),
    }
