"""Small fused GEMMs and collectives of every kind, what each GPU of them must move (design.md, section 5), and a view
of the GPUs behind a job."""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from sim.collective.chunks import Chunks, chunks_of, even_chunks
from sim.host.cluster import Cluster
from sim.hw.request import SECTOR_BYTES, Stream
from sim.run import many_gpus as jobs
from sim.run.gpus_run import CollectiveRun, FusedRun
from sim.spec import Arbiter, Topology
from tests.support.programs import small_preset
from tracer.gemm.source import GemmKernel, GemmSource, Layout
from tracer.workloads import aligned_problem

PARTS = ("t3", "rs", "rs_nmc", "ag", "all_reduce")
TILE = GemmKernel(tile_m=32, tile_n=32, tile_k=32, warps_m=1, warps_n=1)
"""Of one warp: the smallest workgroup."""
FOUR_WARPS = replace(TILE, tile_m=64, tile_n=64, tile_k=16, warps_m=2, warps_n=2)
NARROW = (
    *("link.egress_fifo=2", "link.credits=3", "l2.dram_fifo=2", "noc.bank_fifo=2"),
    *("noc.cu_fifo=2", "dma.outstanding=2", "hbm.queue_entries=8", "l2.mshrs=3"),
)
"""Every buffer between two GPUs so small that it fills."""
COPIES = ("cu.bulk_lines_per_clk=0.7", "cu.bulk_latency_clk=11")
"""CUs that make bulk copies, as the epilogue bulk needs them."""


def fp16_problem(m, n, k, layout=Layout.ROW):
    """Rows (columns, in this layout) of C begin at sectors, so that tiles share none."""
    return aligned_problem(m, n, k, c_layout=layout)


@dataclass
class T3Case:
    """A GEMM of `m` x `n` x `k` whose output N GPUs reduce.

    Attributes:
        sizes: tiles of each chunk; empty = even chunks.
        settings: overrides of the small machine.
        layout: of the output.
    """

    m: int
    n: int
    k: int
    gpus: int
    kernel: GemmKernel = TILE
    sizes: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    arbiter: Arbiter = Arbiter.MCA
    explicit: bool = True
    layout: Layout = Layout.ROW
    preset: object = field(init=False)

    def __post_init__(self):
        copies = COPIES if self.kernel.boxes else ()
        self.preset = small_preset(*copies, *self.settings)

    @property
    def machine(self):
        return self.preset.machine

    @property
    def source(self) -> GemmSource:
        return GemmSource(fp16_problem(self.m, self.n, self.k, self.layout), self.kernel)

    @property
    def chunks(self) -> Chunks:
        return chunks_of(self.sizes) if self.sizes else even_chunks(self.source.tiles, self.gpus, self.kernel.cluster)

    def run(self, part):
        """(RunResult, Cluster) of one of PARTS."""
        with clusters() as seen:
            result = self._run(part)
        return result, seen[0]

    def _run(self, part):
        common = {"source": self.source, "chunks": self.chunks, "explicit": self.explicit}
        if part == "t3":
            return FusedRun(preset=self.preset, arbitration=self.arbiter, **common).execute()
        kind = {"ag": "all_gather", "all_reduce": "all_reduce"}.get(part, "reduce_scatter")
        machine = jobs.replace_unit(self.machine, hbm={"arbiter": self.arbiter})
        preset, update = replace(self.preset, machine=machine), part == "rs_nmc"
        return CollectiveRun(preset=preset, kind=kind, update=update, **common).execute()

    def chunk_bytes(self) -> list[int]:
        """Whole sectors of each global chunk, tile by tile."""
        tiles = self.source.output_tiles()
        per_tile = [int(t["runs"]) * (-(-int(t["run_bytes"]) // SECTOR_BYTES)) * SECTOR_BYTES for t in tiles]
        edges = self.chunks.edges
        return [sum(per_tile[edges[c] : edges[c + 1]]) for c in range(self.gpus)]


@contextmanager
def clusters(change=None):
    """The clusters that jobs build meanwhile; `change` is called with each before it runs."""
    seen = []

    class Watched(Cluster):
        def run(self, launches, *more):
            seen.append(self)
            launches = list(launches)
            if change is not None:
                change(self, launches)
            super().run(launches, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "Cluster", Watched)
        yield seen


def moved(gpu) -> tuple[int, ...]:
    """Bytes at the memory controllers of a GPU, by stream, and bytes on its outgoing links."""
    channels = gpu.node.channels
    columns = sum(channels[name].sum(axis=0) for name in ("read_columns", "write_columns", "update_columns"))
    dram = [int(count) * SECTOR_BYTES for count in columns]
    return (*dram[Stream.COMPUTE_WRITE :], int(gpu.node.ports["bytes"].sum()))


def expected_ring(part, chunk_bytes, gpu) -> tuple[int, ...]:
    """(GEMM writes, reads, arriving writes and final result, link) of one GPU in a ring: the table of section 5."""
    gpus, d = len(chunk_bytes), sum(chunk_bytes)
    first, own, next_own = (chunk_bytes[(local - gpu) % gpus] for local in (0, gpus - 1, gpus - 2))
    scatter = (0, 2 * d - first, d - first + own, d - own)
    gather = (0, d - next_own, d - own, d - next_own)
    return {
        "t3": (d - first, d - first - own, d - first, d - own),
        "rs": scatter,
        "rs_nmc": (0, d - own, d - first, d - own),
        "ag": gather,
        "all_reduce": tuple(np.add(scatter, gather).tolist()),
    }[part]


def expected_direct(part, chunk_bytes, gpu) -> tuple[int, ...]:
    """The same where every chunk goes straight to its owner."""
    gpus, d = len(chunk_bytes), sum(chunk_bytes)
    own = chunk_bytes[(gpus - 1 - gpu) % gpus]
    others = (gpus - 1) * own
    scatter = (0, d - own + gpus * own, others + own, d - own)
    gather = (0, others, d - own, others)
    return {
        "t3": (own, 0, others, d - own),
        "rs": scatter,
        "rs_nmc": (0, d - own, others, d - own),
        "ag": gather,
        "all_reduce": tuple(np.add(scatter, gather).tolist()),
    }[part]


def check_traffic(case: T3Case, part, result, cluster) -> None:
    """Every GPU moved exactly what the table says, the ledger agrees, and nothing is left anywhere."""
    expected = expected_ring if case.machine.link.topology == Topology.RING else expected_direct
    chunk_bytes = case.chunk_bytes()
    for plan, gpu in zip(cluster.plans, cluster.gpus, strict=True):
        assert moved(gpu) == expected(part, chunk_bytes, plan.gpu), f"GPU {plan.gpu}"
        check_empty(gpu)
    assert result.exactly_once, result.wrong
    mean = np.mean([moved(gpu) for gpu in cluster.gpus], axis=0)
    assert (np.append(result.dram_bytes[1:], result.link_bytes) == mean.astype(int)).all()


def check_empty(gpu) -> None:
    """No request, credit, descriptor or Tracker entry is left."""
    node = gpu.node
    left = {gpu.fifo_names[k]: int(f["tail"] - f["head"]) for k, f in enumerate(node.fifos) if f["tail"] != f["head"]}
    assert left == {}
    assert (node.wires["sent"] == node.wires["taken"]).all()
    assert (node.ports["target_fifo"] == -1).all() and not node.noc[0]["waiting"]
    assert not node.dmas["out"].any() and (node.dmas["tag"] == -1).all()
    assert node.engine[0]["descriptors"] == node.output.tracker[0]["released"]
    assert not node.output.tracker[0]["used"].any() and node.output.tracker[0]["live"] == 0
    assert (node.fifos["fill_max"] <= node.fifos["limit"]).all()
    assert (node.dmas["out_max"] <= node.dmas["outstanding"]).all()
