"""Runs of what software does today: a GEMM with its chunks sent under it, and all-gathers by copy engines.

decomposed, copy_engines, flux    GEMM + reduce-scatter (`sim.collective.software`)
flux_gather                       AG + GEMM: copy engines gather A; tiles wait for their rows in one fused kernel
all_gather_copies                 all-gather alone
in_switch                         GEMM whose stores are added in the switch (`sim.collective.nvls`)
"""

from dataclasses import dataclass
from typing import Any

from sim.collective import nvls
from sim.collective.chunks import Chunks
from sim.collective.own_plan import OwnPlan
from sim.collective.patterns import gathered_rows
from sim.collective.plans import Plan
from sim.collective.software import FLUX, all_gather_copies, scattered
from sim.collective.topology import adding_switch
from sim.host.gpu import Progress
from sim.host.state import SavePoints
from sim.host.window import Launch
from sim.hw.warp import MAX_WARPS
from sim.machine.memory import check_plan_memory
from sim.run.gpus_run import GpusRun
from sim.run.inputs import gemm_input
from sim.run.launches import scattering_launch, staggered_launch
from sim.run.many_gpus import check_kernel_is_tracked, replace_unit, run_plan
from sim.run.result import RunResult
from sim.run.run import gemm_cost
from sim.spec import DmaPolicy, Granularity, Machine
from tracer.gemm.source import GemmSource
from traces.schema import LINE_BYTES

AG_COPIES, FLUX_GATHER, FUSED_IN_SWITCH = "all_gather_copies", "flux_gather", "in_switch"
COUNTER_BITS = 48


def software_machine(machine: Machine) -> Machine:
    """The machine as software uses it: flags without limit in place of the Tracker, one copy command per chunk."""
    flags: dict[str, Any] = {"entries": 0, "wavefronts": MAX_WARPS, "counter_bits": COUNTER_BITS, "latency_ps": 0}
    flags["granularity"] = Granularity.WORKGROUP
    copies = {"policy": DmaPolicy.CHUNK, "setup_ps": machine.dma.setup_ps + machine.dma.start_ps}
    return replace_unit(machine, tracker=flags, dma=copies)


def check_software(machine: Machine, kind: str, source: GemmSource, chunks: Chunks, own: OwnPlan | None) -> None:
    """Refuse a GEMM whose tiles software could not count, and links on which chunks do not reach their owners.

    Raises:
        UserError: names the field, its value and what is allowed.
    """
    check_kernel_is_tracked(source)
    if kind == FUSED_IN_SWITCH:
        nvls.fused(source.output_tiles(), chunks, 0, adding_switch(machine, chunks.gpus))
    else:
        scattered(kind, source.output_tiles(), chunks, 0, own or machine.link.topology)


@dataclass(frozen=True, kw_only=True)
class SoftwareRun(GpusRun):
    """One of the runs of this file.

    Attributes:
        kind: one of `sim.collective.software.OVERLAPS`, FLUX_GATHER, AG_COPIES or FUSED_IN_SWITCH.
    """

    kind: str

    @property
    def title(self) -> str:
        return f"{self.source.info.name}, {self.kind}, on {self.chunks.gpus} GPUs, {self.preset.name}"

    @property
    def cost(self) -> float:
        copies = 2 * self.source.problem.output_bytes / LINE_BYTES
        return copies + (0 if self.kind == AG_COPIES else gemm_cost(self.source))

    def input(self) -> dict[str, Any]:
        return {"software": self.kind} | gemm_input(self.source) | self._gpus_input()

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        machine = software_machine(self.preset.machine)
        start_ps, topology = machine.dispatch.launch_ps, self.own or machine.link.topology
        output, gpus = self.source.output_tiles(), range(self.chunks.gpus)
        check_plan_memory(self.chunks.tiles, self.chunks.gpus)
        settings: dict[str, Any] = {"name": self.source.info.name, "explicit": self.explicit}
        settings |= {"interval_ps": self.interval_ps, "progress": progress, "save_points": save_points}
        if self.kind == AG_COPIES:
            copies = [all_gather_copies(output, self.chunks, gpu, topology) for gpu in gpus]
            return run_plan(machine, copies, lambda plan: [], **settings)
        check_kernel_is_tracked(self.source)
        if self.kind == FUSED_IN_SWITCH:
            switch = adding_switch(machine, self.chunks.gpus)
            sent = [nvls.fused(output, self.chunks, gpu, switch) for gpu in gpus]
            return run_plan(machine, sent, self._scattered, **settings)
        if self.kind == FLUX_GATHER:
            made = [gathered_rows(self.source, self.chunks, gpu, topology) for gpu in gpus]
        else:
            gap_ps = machine.dispatch.gap_ps
            made = [scattered(self.kind, output, self.chunks, gpu, topology, gap_ps) for gpu in gpus]
        if self.kind == FLUX:
            sent = [plan for plan, _ in made]
            return run_plan(machine, sent, self._scattered, **settings)
        return run_plan(
            *(machine, [plan for plan, _ in made]),
            lambda plan: [staggered_launch(self.source, plan, start_ps, made[plan.gpu][1])],
            **settings,
        )

    def _scattered(self, plan: Plan) -> list[Launch]:
        return [scattering_launch(self.source, plan, self.preset.machine.dispatch)]
