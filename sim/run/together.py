"""Kernels that run at once on one GPU, on CUs of their own or on shared ones. They share crossbar and memory (D19)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.counters import totals
from sim.host.gpu import Gpu, Progress
from sim.host.state import SavePoints
from sim.host.window import Launch
from sim.machine.build import QUEUES
from sim.presets import Preset
from sim.run.inputs import gemm_input, kernel_input
from sim.run.result import AT_ONCE, KernelResult, RunResult
from sim.run.run import OF_SEVERAL_GPUS, Run
from sim.spec import Arbiter
from tracer.compile.fingerprint import ROOMS
from tracer.gemm.source import GemmSource
from traces.errors import UserError
from traces.schema import LINE_BYTES
from traces.source import KernelSource


def simulate_together(
    sources: Sequence[KernelSource],
    cus: Sequence[int],
    preset: Preset,
    *,
    flush_l2: bool = True,
    interval_ps: int = 0,
    progress: Progress | None = None,
) -> RunResult:
    """Run kernels at once, launched at the same time.

    Args:
        sources: the kernels.
        cus: number of CUs of each; the first kernel has the first CUs. () = all kernels share all CUs: each takes the
            room that the kernels before it leave (`sim.hw.residency`).
        preset: the machine.
        flush_l2: write back and empty L2 at the end.
        interval_ps: of the time series, 0 = none.
        progress: called with the progress of the first kernel.

    Returns:
        The common result. Figure `at_once_<k>_ps` is the time from the launch to the end of the last warp of kernel k.

    Raises:
        UserError: a kernel without CUs, more CUs than there are, too many kernels, or as `sim.run.one_gpu.simulate`.
    """
    check_split(sources, cus, preset.machine.cu.count)
    gpu, start_ps = Gpu(preset.machine, interval_ps), preset.machine.dispatch.launch_ps
    ranges = [(sum(cus[:k]), sum(cus[: k + 1])) if cus else None for k in range(len(sources))]
    launches = [Launch(one, k, ranges[k], start_ps=start_ps) for k, one in enumerate(sources)]
    end_ps = gpu.run_kernels(launches, progress)
    ends_ps = gpu.node.dispatch["last_exit_ps"][: len(sources)].tolist()
    if flush_l2:
        gpu.flush_l2()
    units = gpu.counted()
    name = " beside ".join(one.info.name for one in sources)
    result = RunResult(preset, {}, {}, [KernelResult(name, start_ps, end_ps, units, totals(units))])
    result.figures = {f"{AT_ONCE}{k}_ps": one_ps - start_ps for k, one_ps in enumerate(ends_ps)}
    result.line_requests = int(gpu.node.lsus["line_requests"].sum())
    if interval_ps:
        result.interval_ps = interval_ps
        result.keep(gpu.recorded())
    return result


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
class TogetherRun(Run):
    """Kernels that run at once on one GPU.

    Attributes:
        sources: the kernels. cus: number of CUs of each, () = they share all.
        flush_l2: write back and empty L2 at the end.
    """

    sources: tuple[KernelSource, ...]
    cus: tuple[int, ...]
    flush_l2: bool = True

    @property
    def title(self) -> str:
        return f"{' beside '.join(one.info.name for one in self.sources)} on {self.preset.name}"

    @property
    def cost(self) -> float:
        return float(sum(LINE_BYTES * one.info.workgroups * one.info.warps_per_workgroup for one in self.sources))

    def input(self) -> dict[str, Any]:
        named = [gemm_input(one) if isinstance(one, GemmSource) else kernel_input(one) for one in self.sources]
        prints = [one.fingerprint() for one in self.sources]
        return {"name": " beside ".join(one.info.name for one in self.sources), "kernels": named, "sources": prints}

    def own_options(self) -> dict[str, Any]:
        return {"cus": list(self.cus), "flush_l2": self.flush_l2}

    def modules(self) -> tuple[str, ...]:
        readers = {type(one).__module__ for one in self.sources}
        return (__name__, *sorted(module for module in readers if module.partition(".")[0] in ROOMS))

    def reads(self, field: str) -> bool:
        return self.arbiter() == Arbiter.USER or not field.startswith(OF_SEVERAL_GPUS)

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        settings: dict[str, Any] = {"flush_l2": self.flush_l2, "interval_ps": self.interval_ps, "progress": progress}
        return simulate_together(self.sources, self.cus, self.preset, **settings)
