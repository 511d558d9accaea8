"""Kernels that run at once on one GPU, on CUs of their own or on shared ones. They share crossbar and memory (D19)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sim.counters import totals
from sim.host.gpu import Gpu, Progress
from sim.host.state import SavePoints
from sim.host.window import Launch
from sim.machine.build import QUEUES
from sim.run.inputs import gemm_input, kernel_input
from sim.run.result import AT_ONCE, KernelResult, RunResult
from sim.run.run import OneGpuRun, kernels_cost
from tracer.gemm.source import GemmSource
from traces.errors import UserError
from traces.source import KernelSource


def check_split(sources: Sequence[KernelSource], cus: Sequence[int], count: int) -> None:
    """Refuse a division of `count` CUs that does not fit the kernels.

    Raises:
        UserError: names what was found and what is allowed.
    """
    if not 1 <= len(sources) <= QUEUES:
        raise UserError(f"kernels at once: found {len(sources)}, allowed are 1 to {QUEUES}")
    if not cus:
        return
    if len(cus) != len(sources):
        raise UserError(f"CUs of kernels at once: found {len(cus)} numbers, allowed is one for each of {len(sources)}")
    if min(cus) < 1 or sum(cus) > count:
        found = ", ".join(map(str, cus))
        raise UserError(f"CUs of kernels at once: found {found}, allowed is at least 1 each and {count} in all")


@dataclass(frozen=True, kw_only=True)
class TogetherRun(OneGpuRun):
    """Kernels that run at once on one GPU, launched at the same time.

    Figure `at_once_<k>_ps` is the time from the launch to the end of the last warp of kernel k.

    Attributes:
        sources: the kernels.
        cus: number of CUs of each; the first kernel has the first CUs. () = all kernels share all CUs: each takes the
            room that the kernels before it leave (`sim.hw.residency`).
    """

    sources: tuple[KernelSource, ...]
    cus: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of the kernels, in the result."""
        return " beside ".join(one.info.name for one in self.sources)

    @property
    def title(self) -> str:
        return f"{self.name} on {self.preset.name}"

    @property
    def cost(self) -> float:
        return kernels_cost(self.sources)

    def input(self) -> dict[str, Any]:
        named = [gemm_input(one) if isinstance(one, GemmSource) else kernel_input(one) for one in self.sources]
        prints = [one.fingerprint() for one in self.sources]
        return {"name": self.name, "kernels": named, "sources": prints}

    def own_options(self) -> dict[str, Any]:
        return {"cus": list(self.cus), "flush_l2": self.flush_l2}

    def makers(self) -> Iterable[object]:
        return self.sources

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        """The common result. `progress` is that of the first kernel.

        Raises:
            UserError: as `check_split` and `sim.run.one_gpu.simulate`.
        """
        sources, cus, machine = self.sources, self.cus, self.preset.machine
        check_split(sources, cus, machine.cu.count)
        gpu, start_ps = Gpu(machine, self.interval_ps), machine.dispatch.launch_ps
        ranges = [(sum(cus[:k]), sum(cus[: k + 1])) if cus else None for k in range(len(sources))]
        launches = [Launch(one, k, ranges[k], start_ps=start_ps) for k, one in enumerate(sources)]
        end_ps = gpu.run_kernels(launches, progress)
        ends_ps = gpu.node.dispatch["last_exit_ps"][: len(sources)].tolist()
        if self.flush_l2:
            gpu.flush_l2()
        units = gpu.counted()
        result = RunResult(self.preset, {}, {}, [KernelResult(self.name, start_ps, end_ps, units, totals(units))])
        result.figures = {f"{AT_ONCE}{k}_ps": one_ps - start_ps for k, one_ps in enumerate(ends_ps)}
        result.line_requests = int(gpu.node.lsus["line_requests"].sum())
        if self.interval_ps:
            result.interval_ps = self.interval_ps
            result.keep(gpu.recorded())
        return result
