"""The five configurations of the paper for one sub-layer: what overlap, near-memory updates and arbitration buy.

    Sequential              GEMM, then ring reduce-scatter (RS) on CUs, then ring all-gather (AG)
    T3                      GEMM fused with RS (Tracker, DMA, near-memory updates), round-robin arbitration, then AG
    T3-MCA                  the same with communication-aware arbitration
    Ideal-GEMM-RS-Overlap   max(GEMM alone, RS alone) + AG
    Ideal-RS+NMC            max(GEMM alone, RS alone with near-memory updates) + AG

They share their parts: GEMM, RS, RS with NMC and AG are simulated once each, alone on an idle machine (D22).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps

import numpy as np

from sim.collective.chunks import Chunks, even_chunks
from sim.gpu import Progress
from sim.hw.request import Stream
from sim.jobs import JobResult, fused_plans, run_collective, run_fused, run_gemm
from sim.presets import Preset
from sim.spec import Arbiter
from sim.units import ps_to_ns
from tracer.gemm import GemmKernel, GemmProblem, GemmSource
from traces.errors import UserError

SEQUENTIAL, T3, T3_MCA = "Sequential", "T3", "T3-MCA"
IDEAL, IDEAL_NMC = "Ideal-GEMM-RS-Overlap", "Ideal-RS+NMC"
CONFIGURATIONS = (SEQUENTIAL, T3, T3_MCA, IDEAL, IDEAL_NMC)
PARTS = ("gemm", "rs", "rs_nmc", "ag", "t3", "t3_mca")
"""Simulations behind them."""
NEEDS = {
    SEQUENTIAL: ("gemm", "rs", "ag"),
    T3: ("t3", "ag"),
    T3_MCA: ("t3_mca", "ag"),
    IDEAL: ("gemm", "rs", "ag"),
    IDEAL_NMC: ("gemm", "rs_nmc", "ag"),
}
TRAFFIC = ("gemm_reads", "gemm_writes", "rs_reads", "rs_writes", "ag_reads", "ag_writes")


@dataclass
class Configuration:
    """One configuration's figures, per GPU.

    Attributes:
        time_ps: all of it.
        gemm_ps, rs_ps, ag_ps: its phases; a fused kernel has gemm_ps = rs_ps = the time of both, overlapped.
        dram_bytes: by TRAFFIC.
        link_bytes: sent.
        exactly_once: the ledgers of all its parts agree with their plans.
    """

    time_ps: int
    gemm_ps: int
    rs_ps: int
    ag_ps: int
    dram_bytes: dict[str, int]
    link_bytes: int
    exactly_once: bool


@dataclass
class Evaluation:
    """A sub-layer in all configurations.

    Attributes:
        preset: the machine.
        problem, kernel, gpus: the workload.
        parts: PARTS name -> JobResult.
        output_bytes: D.
        zeroing_bytes: writes that clear the output before a fused GEMM (not part of any configuration).
        interval_ps: of the time series in the parts, 0 = none.
    """

    preset: Preset
    problem: GemmProblem
    kernel: GemmKernel
    gpus: int
    parts: dict[str, JobResult]
    output_bytes: int
    zeroing_bytes: int
    interval_ps: int = 0
    configurations: dict[str, Configuration] = field(default_factory=dict)

    def speedup(self, name: str) -> float:
        """Over Sequential."""
        return self.configurations[SEQUENTIAL].time_ps / self.configurations[name].time_ps

    def as_dict(self) -> dict:
        """Plain values for JSON: `configurations` and `workload`."""
        return {
            "workload": {
                **{name: getattr(self.problem, name) for name in ("m", "n", "k")},
                "gpus": self.gpus,
                "output_bytes": self.output_bytes,
                "zeroing_bytes": self.zeroing_bytes,
            },
            "preset": self.preset.name,
            "interval_ps": self.interval_ps,
            "configurations": {name: self._configuration_dict(name) for name in self.configurations},
            "parts": {name: part.facts for name, part in self.parts.items() if part.facts},
        }

    def _configuration_dict(self, name: str) -> dict:
        found = self.configurations[name]
        return {
            "time_ns": ps_to_ns(found.time_ps),
            "gemm_ns": ps_to_ns(found.gemm_ps),
            "rs_ns": ps_to_ns(found.rs_ps),
            "ag_ns": ps_to_ns(found.ag_ps),
            "speedup": self.speedup(name) if SEQUENTIAL in self.configurations else None,
            "dram_bytes": found.dram_bytes,
            "link_bytes": found.link_bytes,
            "ledger": {"exactly_once": found.exactly_once, "wrong": self._wrong(name)},
        }

    def _wrong(self, name: str) -> list[str]:
        return [f"{part}: {fault}" for part in NEEDS[name] for fault in self.parts[part].wrong]


@dataclass(frozen=True)
class Case:
    """A sub-layer on a machine: everything that decides its result.

    Attributes:
        preset: the machine.
        problem, kernel: the GEMM of one GPU.
        gpus: N.
        chunks: how the output is cut; None = evenly.
        explicit: simulate every GPU, not one for all.
        interval_ps: of the time series, 0 = none.
    """

    preset: Preset
    problem: GemmProblem
    kernel: GemmKernel
    gpus: int
    chunks: Chunks | None = None
    explicit: bool = False
    interval_ps: int = 0

    def source(self) -> GemmSource:
        return GemmSource(self.problem, self.kernel)

    def cut(self) -> Chunks:
        """How the output is cut.

        Raises:
            UserError: one GPU, fewer tiles than GPUs, chunks that are not those of this output.
        """
        tiles = self.source().tiles
        if self.chunks is None:
            return even_chunks(tiles, self.gpus)
        if self.chunks.tiles != tiles or self.chunks.gpus != self.gpus:
            raise UserError(
                f"chunks: found {self.chunks.tiles} tiles for {self.chunks.gpus} GPUs, allowed are the output's "
                f"{tiles} tiles for {self.gpus}"
            )
        return self.chunks

    def part_key(self, part: str) -> str:
        """Hash of what a part depends on: equal keys give equal results, whatever the model they come from."""
        machine = self.preset.values()
        shape: list
        if part in ("t3", "t3_mca", "gemm"):
            shape = [self.problem.__dict__, self.kernel.__dict__]
        else:
            output = self.source().output_tiles()
            shape = [sha256(output[["address", "runs", "run_bytes", "pitch_bytes"]].tobytes()).hexdigest()]
        cut = [] if part == "gemm" else [self.gpus, self.cut().edges, self.explicit]
        text = dumps([part, machine, shape, cut, self.interval_ps], sort_keys=True, default=str)
        return sha256(text.encode()).hexdigest()

    def run_part(self, part: str, progress: Progress | None = None) -> JobResult:
        """Simulate one of PARTS."""
        machine, source = self.preset.machine, self.source()
        if part == "gemm":
            return run_gemm(machine, source, interval_ps=self.interval_ps, progress=progress)
        chunks = self.cut()
        if part in ("t3", "t3_mca"):
            arbiter = Arbiter.ROUND_ROBIN if part == "t3" else _mca_of(machine.hbm.arbiter)
            return run_fused(
                machine,
                source,
                chunks,
                arbiter,
                explicit=self.explicit,
                interval_ps=self.interval_ps,
                progress=progress,
            )
        kind = "all_gather" if part == "ag" else "reduce_scatter"
        return run_collective(
            machine,
            kind,
            source.output_tiles(),
            chunks,
            update=part == "rs_nmc",
            explicit=self.explicit,
            interval_ps=self.interval_ps,
            progress=progress,
        )


def _mca_of(arbiter: Arbiter) -> Arbiter:
    """T3-MCA's arbiter: MCA, unless the preset (or --set hbm.arbiter) asks for a variant of it."""
    return arbiter if arbiter in (Arbiter.MCA_FIXED, Arbiter.COMPUTE_FIRST, Arbiter.USER) else Arbiter.MCA


def parts_of(configurations: Sequence[str]) -> list[str]:
    """Parts that configurations need, in the order of PARTS."""
    needed = {part for name in configurations for part in NEEDS[name]}
    return [part for part in PARTS if part in needed]


def evaluate(
    case: Case,
    configurations: Sequence[str] = CONFIGURATIONS,
    progress: Callable[[str, int, int], None] | None = None,
) -> Evaluation:
    """Simulate what the configurations need, and put them together.

    Raises:
        UserError: one GPU, more GPUs than tiles, a machine that cannot run the kernel or track it.
    """
    chunks = case.cut()
    if {T3, T3_MCA} & set(configurations):
        fused_plans(case.preset.machine, case.source(), chunks)  # refused now, not after the other parts
    parts = {part: case.run_part(part, _named(progress, part)) for part in parts_of(configurations)}
    return assemble(case, parts, configurations)


def _named(progress: Progress | None, part: str) -> Progress | None:
    if progress is None:
        return None
    return lambda _, done, whole: progress(part, done, whole)


def assemble(case: Case, parts: dict[str, JobResult], configurations: Sequence[str] = CONFIGURATIONS) -> Evaluation:
    """Configurations from the parts that have been simulated."""
    chunks, tiles = case.cut(), case.source().output_tiles()
    tile_bytes = tiles["runs"] * -(-tiles["run_bytes"] // 32) * 32
    d = int(tile_bytes.sum())
    first = int(tile_bytes[chunks.span(0, 0).start : chunks.span(0, 0).stop].sum())
    found = Evaluation(case.preset, case.problem, case.kernel, case.gpus, parts, d, d - first, case.interval_ps)
    for name in configurations:
        found.configurations[name] = _put_together(name, parts)
    return found


def _put_together(name: str, parts: dict[str, JobResult]) -> Configuration:
    gather = parts["ag"]
    needed = [parts[part] for part in NEEDS[name]]
    if name in (T3, T3_MCA):
        fused = parts["t3" if name == T3 else "t3_mca"]
        gemm_ps = rs_ps = overlapped_ps = fused.time_ps
        traffic = fused.dram_bytes
    else:
        gemm, scatter = parts["gemm"], parts["rs_nmc" if name == IDEAL_NMC else "rs"]
        gemm_ps, rs_ps = gemm.time_ps, scatter.time_ps
        overlapped_ps = gemm_ps + rs_ps if name == SEQUENTIAL else max(gemm_ps, rs_ps)
        traffic = gemm.dram_bytes + scatter.dram_bytes
    return Configuration(
        time_ps=overlapped_ps + gather.time_ps,
        gemm_ps=gemm_ps,
        rs_ps=rs_ps,
        ag_ps=gather.time_ps,
        dram_bytes=dict(zip(TRAFFIC, _by_phase(traffic, gather.dram_bytes), strict=True)),
        link_bytes=sum(part.link_bytes for part in needed),
        exactly_once=all(part.exactly_once for part in needed),
    )


def _by_phase(first: np.ndarray, gather: np.ndarray) -> list[int]:
    """Bytes in the order of TRAFFIC."""
    streams = (Stream.COMPUTE_READ, Stream.COMPUTE_WRITE, Stream.COMM_READ, Stream.COMM_WRITE)
    return [int(first[stream]) for stream in streams] + [int(gather[stream]) for stream in streams[2:]]
