"""A scenario: a sub-layer on a machine, and the runs for the configurations of the paper.

GEMM, RS, RS with NMC and AG are simulated once each, alone on an idle machine (D22). `sim.scenario.result` lists the
runs of each configuration.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sim.collective.chunks import Chunks, check_gpus, even_chunks
from sim.collective.kernel import check_fits
from sim.collective.library import PLAIN, choice_on
from sim.collective.nvls import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from sim.collective.own_plan import OwnPlan
from sim.collective.plans import fused_regions
from sim.collective.software import DECOMPOSED, FLUX, OVERLAPS
from sim.gemm_facts import gpu_facts
from sim.host.cluster import check_writes_through
from sim.hw.request import Op
from sim.presets import Preset, load_preset
from sim.presets.preset import OVERRIDE
from sim.run.gpus_run import CollectiveRun, FusedRun
from sim.run.inputs import gemm_input
from sim.run.launches import takes_turns
from sim.run.library_preset import library_preset
from sim.run.library_run import LibraryRun
from sim.run.many_gpus import collective_cus, fused_plans, replace_unit
from sim.run.result import RunResult
from sim.run.run import Run, gemm_run
from sim.run.software import AG_COPIES, FUSED_IN_SWITCH, SoftwareRun, check_software
from sim.run.store import Store, run_or_get
from sim.scenario.result import (
    CONFIGURATIONS,
    FUSED_RUNS,
    LIBRARY,
    NEEDS,
    RUNS,
    SWITCH_CONFIGURATIONS,
    T3,
    T3_MCA,
    ScenarioResult,
    put_together,
)
from sim.spec import Arbiter
from tracer.data_type import DataType
from tracer.gemm.library import choose_kernel, choose_piece_kernel
from tracer.gemm.order import in_turn
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource, Layout
from tracer.kernels import NamedGemm
from traces.errors import UserError
from traces.schema import SECTOR_BYTES

COLLECTIVES = {
    "rs": "reduce_scatter",
    "rs_nmc": "reduce_scatter",
    "ag": "all_gather",
    "add": "local_reduce",
    "ar_nvls": ALL_REDUCE,
    "rs_nvls": REDUCE_SCATTER,
    "ag_nvls": ALL_GATHER,
}
"""Run -> collective on CUs."""
Progress = Callable[[str, int, int], None]
"""Called with (run, workgroups done, workgroups)."""


VARIANTS = (Arbiter.MCA_FIXED, Arbiter.COMPUTE_FIRST, Arbiter.USER)
"""Arbiters that T3-MCA can have in place of MCA."""


@dataclass(frozen=True)
class Scenario:
    """A sub-layer on a machine: everything that decides its result.

    Attributes:
        preset: the machine.
        problem, kernel: the GEMM of one GPU.
        gpus: number of GPUs.
        chunks: how the output is divided into chunks; None = evenly.
        explicit: simulate every GPU; else one GPU represents all where that is exact.
        interval_ps: of the time series, 0 = none.
        own: a user's topology and plan, instead of the machine's.
        policy: path of a user's arbiter, "" = the arbiter that this process has bound, if any.
        piece_kernel: kernel of the GEMMs of Decomposed, each of which makes a chunk; None = `kernel`.
        fused_kernel: kernel of the GEMMs that send each tile as it is made (T3, FLUX, T3-NVLS), with the same tiles;
            None = `kernel`.
        alone_kernel: kernel of the GEMM that runs by itself (Sequential), which can split K; None = `kernel`.
    """

    preset: Preset
    problem: GemmProblem
    kernel: GemmKernel
    gpus: int
    chunks: Chunks | None = None
    explicit: bool = False
    interval_ps: int = 0
    own: OwnPlan | None = None
    policy: str = ""
    piece_kernel: GemmKernel | None = None
    fused_kernel: GemmKernel | None = None
    alone_kernel: GemmKernel | None = None

    def __post_init__(self):
        check_gpus(self.gpus)

    @classmethod
    def of_library(cls, preset: Preset, problem: GemmProblem, gpus: int, dtype: DataType | None = None) -> "Scenario":
        """The scenario with the kernels that the library of the machine chooses, all of which the Tracker can follow.

        Raises:
            UserError: as `choose_kernel`.
        """
        kernel = choose_kernel(problem, gpu_facts(preset.machine), dtype, tracked=True)
        return cls(preset, problem, kernel, gpus).with_library(dtype)

    @classmethod
    def of_gemm(cls, preset: Preset, gemm: NamedGemm, gpus: int, **settings: Any) -> "Scenario":
        """The scenario of a GEMM that a text names. settings: further attributes.

        Raises:
            UserError: as `choose_kernel`.
        """
        scenario = cls(preset, gemm.source.problem, gemm.source.kernel, gpus, **settings)
        return scenario.with_library(gemm.dtype) if gemm.by_library else scenario

    def with_library(self, dtype: DataType | None = None) -> "Scenario":
        """The scenario with the further kernels that the library chooses, where it has chosen `kernel`.

        If the Tracker cannot follow `kernel`, it stays the kernel of the GEMM alone.

        Raises:
            UserError: as `choose_kernel`.
        """
        gpu, machine = gpu_facts(self.preset.machine), self.preset.machine
        tracked = choose_kernel(self.problem, gpu, dtype, tracked=True)
        if self.kernel != tracked:
            return replace(self, kernel=tracked, alone_kernel=self.kernel).with_library(dtype)
        fused, together = self.kernel, self.kernel.cluster
        # an output with too few tiles is refused where it is cut
        if takes_turns(machine.link.topology, machine.dispatch) and self.source().tiles >= self.gpus * together:
            fused = in_turn(fused, self.problem, gpu, self.cut().in_turn(0, together))
        pieces = choose_piece_kernel(self.problem, gpu, self.gpus, dtype)
        return replace(self, piece_kernel=pieces, fused_kernel=None if fused == self.kernel else fused)

    def source(self) -> GemmSource:
        return GemmSource(self.problem, self.kernel)

    def alone(self) -> GemmSource:
        """The GEMM that runs by itself."""
        return GemmSource(self.problem, self.alone_kernel or self.kernel)

    def fused(self) -> GemmSource:
        """The GEMM that sends each tile as it is made."""
        return GemmSource(self.problem, self.fused_kernel or self.kernel)

    def pieces(self) -> tuple[GemmSource, Chunks]:
        """The GEMMs of Decomposed, as one whose chunks follow each other."""
        if self.piece_kernel is None or self.chunks is not None:
            return self.source(), self.cut()
        source = GemmSource(self.problem, self.piece_kernel)
        return source, even_chunks(source.tiles, self.gpus, self.piece_kernel.cluster)

    def cut(self) -> Chunks:
        """The chunks of the output.

        Raises:
            UserError: one GPU, fewer tiles than GPUs, chunks that do not fit this output.
        """
        tiles, together = self.source().tiles, self.kernel.cluster
        if self.chunks is None:
            return even_chunks(tiles, self.gpus, together)
        if self.chunks.tiles != tiles or self.chunks.gpus != self.gpus:
            raise UserError(
                f"chunks: found {self.chunks.tiles} tiles for {self.chunks.gpus} GPUs, allowed are the output's "
                f"{tiles} tiles for {self.gpus}"
            )
        if any(edge % together for edge in self.chunks.edges):
            raise UserError(
                f"chunks: found edges {list(self.chunks.edges)} for clusters of {together} workgroups, allowed are "
                f"multiples of {together}"
            )
        return self.chunks

    def input(self) -> dict[str, Any]:
        """The workload as plain values."""
        plan: dict[str, Any] = {"plan_sha256": self.own.digest} if self.own else {}
        if self.piece_kernel is not None:
            plan["piece_kernel"] = gemm_input(self.pieces()[0])
        if self.fused_kernel is not None:
            plan["fused_kernel"] = gemm_input(self.fused())
        if self.alone_kernel is not None:
            plan["alone_kernel"] = gemm_input(self.alone())
        return gemm_input(self.source()) | {"gpus": self.gpus, "edges": list(self.cut().edges)} | plan

    def options(self) -> dict[str, Any]:
        """The options as plain values, with the digest of the user's policy if a run uses one."""
        policy = self.run("t3_mca").options.get("policy_sha256")
        return {"explicit": self.explicit} | ({"policy_sha256": policy} if policy else {})

    @property
    def plain(self) -> Preset:
        """The machine without an arbiter that the user has chosen in place of MCA: that of all runs but T3-MCA's."""
        preset = self.preset
        if preset.machine.hbm.arbiter not in VARIANTS or preset.sources["hbm.arbiter"].kind != OVERRIDE:
            return preset
        arbiter = Arbiter.ROUND_ROBIN
        if "hbm.arbiter" in preset.replaced:
            arbiter = Arbiter.__members__.get(str(preset.replaced["hbm.arbiter"]).upper(), arbiter)
        else:  # of an archive
            with suppress(UserError):  # the user's file is not here
                arbiter = load_preset(preset.name).machine.hbm.arbiter
        return replace(preset, machine=replace_unit(preset.machine, hbm={"arbiter": arbiter}))

    def run(self, name: str) -> Run:
        """The description of a run. name: one of RUNS.

        A collective uses only the output. Its output is placed as for the shortest K, so its key is the same for every
        K.
        """
        if name == "gemm":
            return gemm_run(self.plain, self.alone(), self.interval_ps, self.policy)
        common: dict[str, Any] = {
            "preset": self.plain,
            "interval_ps": self.interval_ps,
            "policy": self.policy,
            "chunks": self.cut(),
            "explicit": self.explicit,
            "own": self.own,
        }
        if name in FUSED_RUNS:
            arbiter = Arbiter.ROUND_ROBIN if name == "t3" else _mca_of(self.preset.machine.hbm.arbiter)
            return FusedRun(source=self.fused(), arbitration=arbiter, **common)
        if name == DECOMPOSED:
            source, chunks = self.pieces()
            return SoftwareRun(source=source, kind=name, **common | {"chunks": chunks})
        if name in OVERLAPS:
            return SoftwareRun(source=self.fused() if name == FLUX else self.source(), kind=name, **common)
        if name == "ag_copies":
            return SoftwareRun(source=self._shortest_source(), kind=AG_COPIES, **common)
        if name == "t3_nvls":
            return SoftwareRun(source=self.fused(), kind=FUSED_IN_SWITCH, **common)
        if name == "ar_library":
            return self.library_run("all_reduce")
        update = name == "rs_nmc"
        return CollectiveRun(source=self._shortest_source(), kind=COLLECTIVES[name], update=update, **common)

    def runs(self, configurations: Sequence[str]) -> dict[str, Run]:
        """The runs that configurations need, by name."""
        return {name: self.run(name) for name in runs_of(configurations)}

    def library_run(self, kind: str) -> LibraryRun:
        """A collective of the output by the library of the machine.

        Raises:
            UserError: the machine has no library, or its library does not run on this number of GPUs.
        """
        row, size = self.preset.machine.collective.library, self.source().problem.output_bytes
        if row == PLAIN:
            raise UserError(
                f"collective.library: found {PLAIN} ({self.preset.name}), allowed for {LIBRARY} is a row of "
                "sim/collective/library.toml"
            )
        choice = choice_on(self.preset.machine, kind, self.gpus, size)
        values: dict[str, Any] = {"interval_ps": self.interval_ps, "policy": self.policy, "gpus": self.gpus}
        return LibraryRun(
            preset=library_preset(self.plain, choice), kind=kind, data_bytes=size, choice=choice, **values
        )

    def _shortest_source(self) -> GemmSource:
        """A GEMM with the same output, the shortest K and no split of it."""
        problem, k = self.problem, self.kernel.tile_k
        lda = k if problem.lda is not None and problem.a_layout == Layout.ROW else problem.lda
        return GemmSource(replace(problem, k=k, lda=lda), replace(self.kernel, split_k=1))


def _mca_of(arbiter: Arbiter) -> Arbiter:
    """The arbiter of T3-MCA: MCA, or the variant of MCA that the preset (or --set hbm.arbiter) selects."""
    return arbiter if arbiter in VARIANTS else Arbiter.MCA


def runs_of(configurations: Sequence[str]) -> list[str]:
    """Runs that configurations need, in the order of RUNS."""
    needed = {run for name in configurations for run in NEEDS[name]}
    return [run for run in RUNS if run in needed]


def check_scenario(scenario: Scenario, configurations: Sequence[str]) -> None:
    """Check the plans of all configurations, and their collectives, before anything is simulated.

    Raises:
        UserError: as `simulate_scenario`.
    """
    check_writes_through(scenario.preset.machine)
    chunks = scenario.cut()
    if {T3, T3_MCA} & set(configurations):
        fused_plans(scenario.preset.machine, scenario.fused(), chunks, scenario.own)
    for name in set(runs_of(configurations)) & set(OVERLAPS):
        whole = scenario.fused() if name == FLUX else scenario.source()
        source, cut = scenario.pieces() if name == DECOMPOSED else (whole, chunks)
        check_software(scenario.preset.machine, name, source, cut, scenario.own)
    if {*SWITCH_CONFIGURATIONS} & set(configurations):
        check_software(scenario.preset.machine, FUSED_IN_SWITCH, scenario.fused(), chunks, scenario.own)
    if LIBRARY in configurations:
        scenario.run("ar_library")
    for kind in (COLLECTIVES[name] for name in runs_of(configurations) if name in COLLECTIVES):
        check_fits(scenario.preset.machine)
        collective_cus(scenario.preset.machine, kind)


def simulate_scenario(
    scenario: Scenario,
    configurations: Sequence[str] = CONFIGURATIONS,
    *,
    store: Store | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    checkpoint_every_s: float | None = None,
    resuming: Callable[[Run], None] | None = None,
) -> ScenarioResult:
    """Simulate the runs of the configurations and compute the configurations.

    Args:
        scenario: the sub-layer and the machine.
        configurations: names of the configurations.
        store, fresh, checkpoint_every_s, resuming: see `sim.run.store.run_or_get`.
        progress: called with (run, workgroups done, workgroups).

    Raises:
        UserError: one GPU, more GPUs than tiles, a machine that cannot run the kernel or track it.
    """
    check_scenario(scenario, configurations)
    results, from_store = {}, []
    for name in runs_of(configurations):
        run_outcome = run_or_get(
            scenario.run(name),
            store,
            fresh=fresh,
            progress=_named(progress, name),
            checkpoint_every_s=checkpoint_every_s,
            resuming=resuming,
        )
        results[name] = run_outcome.result
        from_store += [name] if run_outcome.from_store else []
    whole = assemble(scenario, results, configurations)
    whole.from_store = tuple(from_store)
    return whole


def _named(progress: Progress | None, name: str) -> Progress | None:
    if progress is None:
        return None
    return lambda _, done, whole: progress(name, done, whole)


def assemble(
    scenario: Scenario, runs: Mapping[str, RunResult], configurations: Sequence[str] = CONFIGURATIONS
) -> ScenarioResult:
    """Compute the configurations from finished runs. runs: RUNS name -> result."""
    tiles, topology = scenario.source().output_tiles(), scenario.own or scenario.preset.machine.link.topology
    tile_bytes = tiles["runs"] * -(-tiles["run_bytes"] // SECTOR_BYTES) * SECTOR_BYTES
    regions = [each for gpu in range(scenario.gpus) for each in fused_regions(scenario.cut(), gpu, topology)]
    updated = [region for region in regions if region.stays and region.op == Op.UPDATE]
    zeroing = sum(int(tile_bytes[region.first : region.end].sum()) for region in updated) // scenario.gpus
    whole = ScenarioResult(
        *(scenario.preset, scenario.problem, scenario.kernel, scenario.gpus, dict(runs)),
        *(int(tile_bytes.sum()), zeroing),
        interval_ps=scenario.interval_ps,
        plan_sha256=scenario.own.digest if scenario.own else "",
        input=scenario.input(),
        options=scenario.options(),
    )
    for name in configurations:
        whole.configurations[name] = put_together(name, runs)
    return whole
