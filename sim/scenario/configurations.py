"""A sub-layer on a machine: what decides its result, and the simulations behind the paper's configurations of it.

GEMM, RS, RS with NMC and AG are simulated once each, alone on an idle machine (D22); `sim.scenario.evaluation` says
which configuration needs what.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any

from sim.collective.chunks import Chunks, even_chunks
from sim.collective.own_plan import OwnPlan
from sim.host.checkpoint import Checkpoint
from sim.host.gpu import Progress
from sim.host.state import Breaks, ClusterState
from sim.hw.request import SECTOR_BYTES
from sim.presets import Preset
from sim.run.job_result import JobResult
from sim.run.many_gpus import fused_plans, run_collective, run_fused, run_gemm
from sim.scenario.evaluation import CONFIGURATIONS, NEEDS, PARTS, T3, T3_MCA, Evaluation, put_together
from sim.scenario.evaluation_standing import EvaluationStanding, evaluation_content, evaluation_standing
from sim.spec import Arbiter
from tracer.compile.fingerprint import source_fingerprint
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from traces.errors import UserError


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
        own: a user's topology and plan, in place of the machine's.
    """

    preset: Preset
    problem: GemmProblem
    kernel: GemmKernel
    gpus: int
    chunks: Chunks | None = None
    explicit: bool = False
    interval_ps: int = 0
    own: OwnPlan | None = None

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
        cut += [self.own.digest] if cut and self.own else []
        text = dumps([part, machine, shape, cut, self.interval_ps], sort_keys=True, default=str)
        return sha256(text.encode()).hexdigest()

    def run_part(self, part: str, progress: Progress | None = None, breaks: Breaks | None = None) -> JobResult:
        """Simulate one of PARTS."""
        machine, source = self.preset.machine, self.source()
        if part == "gemm":
            return run_gemm(machine, source, interval_ps=self.interval_ps, progress=progress, breaks=breaks)
        chunks = self.cut()
        if part in ("t3", "t3_mca"):
            arbiter = Arbiter.ROUND_ROBIN if part == "t3" else _mca_of(machine.hbm.arbiter)
            return run_fused(
                machine,
                source,
                chunks,
                arbiter,
                explicit=self.explicit,
                own=self.own,
                interval_ps=self.interval_ps,
                progress=progress,
                breaks=breaks,
            )
        kind = "all_gather" if part == "ag" else "reduce_scatter"
        return run_collective(
            machine,
            kind,
            source.output_tiles(),
            chunks,
            update=part == "rs_nmc",
            explicit=self.explicit,
            own=self.own,
            interval_ps=self.interval_ps,
            progress=progress,
            breaks=breaks,
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
    checkpoint: Checkpoint | None = None,
) -> Evaluation:
    """Simulate what the configurations need, and put them together.

    Args:
        case: the sub-layer and the machine.
        configurations: which.
        progress: called with (part, workgroups done, workgroups).
        checkpoint: where to keep the parts that are done and how far the next one is; if there is such a file the
            evaluation goes on from there, and what it finds is the same to the last bit. The caller removes it.

    Raises:
        UserError: one GPU, more GPUs than tiles, a machine that cannot run the kernel or track it, the checkpoint of
            another evaluation.
    """
    chunks = case.cut()
    if {T3, T3_MCA} & set(configurations):
        fused_plans(case.preset.machine, case.source(), chunks, case.own)  # refused now, not after the other parts
    kept = EvaluationStanding()
    if checkpoint:
        kept = checkpoint.open(_identity(case, configurations), evaluation_standing) or kept
    for part in parts_of(configurations):
        if part not in kept.done:
            breaks = _breaks(checkpoint, kept, part) if checkpoint else None
            kept.done[part] = case.run_part(part, _named(progress, part), breaks)
            if checkpoint:
                checkpoint.write(evaluation_content(EvaluationStanding(kept.done)))
    return assemble(case, kept.done, configurations)


def _identity(case: Case, configurations: Sequence[str]) -> dict[str, Any]:
    """All that decides what an evaluation finds, as plain values."""
    return {
        "code": source_fingerprint(__name__, Path(__file__).resolve()),
        "machine": {"name": case.preset.name, **case.preset.values()},
        "problem": asdict(case.problem),
        "kernel": asdict(case.kernel),
        "options": {
            "gpus": case.gpus,
            "chunks": case.cut().edges,
            "explicit": case.explicit,
            "interval_ps": case.interval_ps,
            "plan": case.own.digest if case.own else "",
            "parts": parts_of(configurations),
        },
    }


def _breaks(checkpoint: Checkpoint, kept: EvaluationStanding, part: str) -> Breaks:
    """Where a part goes on from, and what keeps it."""

    def act(state: Callable[[], ClusterState]) -> None:
        if checkpoint.due():
            checkpoint.write(evaluation_content(EvaluationStanding(kept.done, part, state())))

    return Breaks(act, kept.state if part == kept.part else None)


def _named(progress: Progress | None, part: str) -> Progress | None:
    if progress is None:
        return None
    return lambda _, done, whole: progress(part, done, whole)


def assemble(case: Case, parts: dict[str, JobResult], configurations: Sequence[str] = CONFIGURATIONS) -> Evaluation:
    """Configurations from the parts that have been simulated."""
    chunks, tiles = case.cut(), case.source().output_tiles()
    tile_bytes = tiles["runs"] * -(-tiles["run_bytes"] // SECTOR_BYTES) * SECTOR_BYTES
    d = int(tile_bytes.sum())
    first = int(tile_bytes[chunks.span(0, 0).start : chunks.span(0, 0).stop].sum())
    found = Evaluation(case.preset, case.problem, case.kernel, case.gpus, parts, d, d - first, case.interval_ps)
    found.plan_sha256 = case.own.digest if case.own else ""
    for name in configurations:
        found.configurations[name] = put_together(name, parts)
    return found
