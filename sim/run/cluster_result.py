"""The result of a finished run on several GPUs: time, traffic, counters, time series, timeline, ledger verdict."""

from dataclasses import replace
from typing import Any

import numpy as np

from sim.collective import ledger
from sim.collective.topology import in_one_node
from sim.counters import totals
from sim.host.cluster import Cluster
from sim.host.gpu import Gpu
from sim.hw.mca import mca_facts
from sim.hw.request import SECTOR_BYTES, Stream
from sim.hw.tracker import tracker_bits
from sim.presets import Preset
from sim.run.result import KernelResult, RunResult
from sim.spec import CollectiveCache


def moved_bytes(gpu: Gpu) -> np.ndarray:
    """Bytes at the memory controllers of a GPU: reads, writes and updates together, per Stream, i8 [4]."""
    channels = gpu.counters()["hbm"]
    columns = np.zeros(len(Stream), np.int64)
    for name in ("read_columns", "write_columns", "update_columns"):
        columns += channels[name].sum(axis=0)
    return columns * SECTOR_BYTES


def end_of(gpu: Gpu) -> int:
    """Time at which a GPU was done: last warp ended, last data in memory, last tile reported by its Tracker; ps."""
    node = gpu.node
    ends = (node.cus["last_exit_ps"].max(), node.channels["bus_end_ps"].max(), node.output.tracker[0]["last_ps"])
    return max(int(end) for end in ends)


def cluster_result(cluster: Cluster, name: str, start_ps: int) -> RunResult:
    """The result of a cluster whose GPUs are all idle. The caller adds input, options and the name of the machine.

    Args:
        cluster: the GPUs.
        name: of the workload.
        start_ps: of the first kernel of GPU 0.
    """
    gpus, first = cluster.gpus, cluster.gpus[0]
    end_ps = max(end_of(gpu) for gpu in gpus)
    kernel_ps = max(int(gpu.node.cus["last_exit_ps"].max()) for gpu in gpus)
    if cluster.machine.collective.cache == CollectiveCache.ALLOCATE:
        for gpu in gpus:
            gpu.flush_l2()
    moved = sum((moved_bytes(gpu) for gpu in gpus), np.zeros(len(Stream), np.int64))
    units = first.counted()
    outputs = [gpu.node.output for gpu in gpus]
    verdict = ledger.close(cluster.plans, [out.tiles for out in outputs], [out.wavefronts for out in outputs])
    result = RunResult(
        preset=Preset("", "", cluster.machine, {}),
        input={},
        options={},
        kernels=[KernelResult(name, start_ps, end_ps, units, totals(units))],
        exactly_once=verdict.exactly_once,
        wrong=verdict.wrong,
        kernel_ps=kernel_ps,
        mean_dram_bytes=moved // len(gpus),
        link_bytes=sum(int(gpu.node.ports["bytes"].sum()) for gpu in gpus) // len(gpus),
        line_requests=sum(int(gpu.node.lsus["line_requests"].sum() + gpu.node.dmas["lines"].sum()) for gpu in gpus),
        figures=_figures(cluster),
    )
    if interval_ps := int(first.node.engine[0]["interval_ps"]):
        result.interval_ps = interval_ps
        recorded = [replace(gpu.recorded(), triggers=_triggers(cluster, number)) for number, gpu in enumerate(gpus)]
        result.keep(recorded[0])
        result.others = recorded[1:]
    return result


def _triggers(cluster: Cluster, number: int) -> np.ndarray:
    """The tracked tiles of a GPU in the order of time, i8 [tiles, 3]: tile, time of completion (ps), local chunk."""
    tiles, chunks = cluster.gpus[number].node.output.tiles, cluster.plans[number].chunks
    local = np.zeros(len(tiles), np.int64)
    for stage in range(chunks.gpus):
        span = chunks.span(cluster.plans[number].gpu, stage)
        local[span.start : span.stop] = stage
    tracked = np.flatnonzero(tiles["triggers"])
    rows = np.column_stack([tracked, tiles["done_ps"][tracked], local[tracked]])
    return rows[np.lexsort((rows[:, 0], rows[:, 1]))]


def _busy_ps(ports: np.ndarray, chosen: np.ndarray | slice) -> int:
    """Time in which a GPU sends over the busiest of some ports. Ports of one lane take turns."""
    return int(np.bincount(ports["lane"][chosen], ports["busy_ps"][chosen]).max(initial=0))


def _sending(cluster: Cluster) -> dict[str, int]:
    """Time in which GPU 0 sends over its links. With nodes: the busiest GPU, over links and over its network card."""
    if in_one_node(cluster.machine, len(cluster.plans)):
        return {"link_busy_ps": _busy_ps(cluster.gpus[0].node.ports, slice(None))}
    far = [(gpu.node.ports, cluster.leaves_node(number)) for number, gpu in enumerate(cluster.gpus)]
    return {
        "link_busy_ps": max(_busy_ps(ports, ~leaves) for ports, leaves in far),
        "network_busy_ps": max(_busy_ps(ports, leaves) for ports, leaves in far),
    }


def _figures(cluster: Cluster) -> dict[str, Any]:
    """Figures of single units of GPU 0: Tracker, MCA, links (of several nodes: those of the busiest GPU)."""
    node, tiles = cluster.gpus[0].node, cluster.gpus[0].node.output.tiles
    tracker = node.output.tracker[0]
    return {
        "simulated_gpus": len(cluster.gpus),
        "tracker_triggers": int(tracker["triggers"]),
        "tracker_wavefronts": int(tracker["wavefronts"]),
        "tracker_live_max": int(tracker["live_max"]),
        "tracker_stalls": int(tracker["stalls"]),
        "tracker_spilled": int(tracker["spilled"]),
        "tracker_bytes": tracker_bits(cluster.machine.tracker) // 8,
        **mca_facts(node.mca, node.channels),
        **_sending(cluster),
        "credit_stalls": int(node.ports["credit_stalls"].sum()),
        "arrival_blocked_ps": int(node.ports["blocked_ps"].sum()),
        "dma_tiles": int(((tiles["sends"] > 0) & (tiles["sent_bytes"] == tiles["sends"] * tiles["bytes"])).sum()),
        "dma_descriptors": int(node.dmas["descriptors"].sum()),
        **({"switch_lines_max": int(node.output.switch[0]["used_max"])} if len(node.output.sums) else {}),
    }
