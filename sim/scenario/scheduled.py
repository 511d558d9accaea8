"""A schedule of kernels and exchanges on a machine: the runs that it needs, and its time in the configurations.

Each different kernel and exchange is one run. `sim.scenario.timeline` plays the schedule with the times of the runs. A
GEMM and the exchange that reduces its output are a pair: in a configuration with T3 the pair has the times of the
fused kernel and of the all-gather behind it. Where the machine cannot run a configuration, the pair keeps its times of
Sequential (`Pair.refused`). A GEMM whose output has fewer tiles than GPUs has no pair. In Sequential the exchange of a
pair has the plain plans of `sim.collective.plans`, without launch or protocol. All other exchanges are those of the
machine's library, also those of a pair without `overlap`.

A kernel beside an exchange has fewer CUs (`sim.scenario.beside`): its time then is a run too.

Assumptions: kernels do not slow down exchanges; all GPUs and stages do the same; L2 is used before a kernel (D61).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from sim.collective.library import PLAIN
from sim.gemm_facts import gpu_facts
from sim.presets import Preset
from sim.run.extrapolation import TIME_ERROR
from sim.run.kernel_figures import L2State, dirty_share, figures_of, kernel_run
from sim.run.result import RunResult
from sim.run.run import Run
from sim.scenario.beside import kept_cus, kernels_beside, with_fewer_cus
from sim.scenario.exchange import LINE_ERROR, exchange_run, figure_of_whole, launch_of, sizes, together
from sim.scenario.iteration import ConfigurationTime, Times, play
from sim.scenario.pair import AFTER_GEMM, AT_ONCE, Pair, refused_in
from sim.scenario.result import BY_COPIES, NEEDS, SEQUENTIAL, T3
from sim.scenario.scenario import Scenario
from sim.scenario.step_kernels import kernels_of_step
from sim.scenario.timeline import StepTime
from tracer.kernels import make_gemm
from tracer.models.schedule import Block, Exchange, OperatorClass, Schedule, Step
from traces.errors import UserError
from traces.source import KernelSource
from traces.units import PS_PER_NS

Work = str | Exchange
"""What a step does: the text of a kernel, or an exchange."""
PairKey = tuple[str, Work]
"""The text of a GEMM and the exchange that reduces its output."""


def gemm_of(block: Block, step: Step) -> str:
    """Text of the GEMM whose output a step of the block reduces, "" if it does not reduce one."""
    return next(str(each.work) for each in block.steps if each.name == step.reduces) if step.reduces else ""


@dataclass
class Figures:
    """Figures of a step: time and traffic on one GPU.

    Attributes:
        operations: 0 for an exchange.
        gaps_ps: of time_ps, gaps before its kernels, or the launch of a library. Of a pair: the launch in Library.
        time_error: relative error of the time that the run states; 0 = all was simulated.
        matrix_ps: time for which its matrix units are busy.
        beside_ps: time of a kernel while exchanges keep CUs; 0 = as alone.
        keeps_cus: an exchange that keeps CUs.
    """

    time_ps: int
    dram_bytes: int
    operations: int
    bound_by: str
    time_error: float = 0.0
    gaps_ps: int = 0
    matrix_ps: int = 0
    beside_ps: int = 0
    keeps_cus: bool = False

    @property
    def step_time(self) -> StepTime:
        return StepTime(self.time_ps, self.beside_ps, self.keeps_cus)


class Scheduled(ABC):
    """A schedule on a machine. A scenario that has one is a frozen dataclass with these attributes.

    Attributes:
        accuracy: of its kernels, as of `sim.run.run.KernelRun`; 0 = all is simulated.
        overlap: simulate the configurations too; False = only Sequential, all exchanges by the machine's library.
        configurations: beside Sequential.
    """

    preset: Preset
    accuracy: float
    overlap: bool
    configurations: tuple[str, ...]

    @property
    @abstractmethod
    def schedule(self) -> Schedule:
        """Its kernels and exchanges."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What is scheduled, as plain values for JSON."""

    def steps(self) -> Iterator[tuple[Block, Step]]:
        """All steps, once each, with their blocks; the handover between stages last."""
        for block in self.schedule.blocks():
            for step in block.steps:
                yield block, step
        for step in self.schedule.handover:
            yield Block("handover", self.schedule.handover, self.schedule.interleave), step

    @cached_property
    def kernels(self) -> dict[str, tuple[KernelSource, ...]]:
        """Text -> the kernels of every different kernel step."""
        texts = {step.work for _, step in self.steps() if isinstance(step.work, str)}
        return {text: kernels_of_step(text, self.preset.machine) for text in sorted(texts)}

    @cached_property
    def kept(self) -> dict[str, int]:
        """Text of a kernel -> most CUs that an exchange beside it keeps; only kernels that this slows down."""
        passes = (self.schedule.forward, self.schedule.backward, self.schedule.finish)
        found: dict[str, int] = {}
        for step, exchange in (each for blocks in passes for each in kernels_beside(blocks)):
            kept = kept_cus(self.preset, exchange)
            if kept:
                found[str(step.work)] = max(kept, found.get(str(step.work), 0))
        return found

    @cached_property
    def pairs(self) -> dict[PairKey, Pair]:
        """(text of the GEMM, exchange) -> the pair, for every GEMM whose output is reduced and can be cut."""
        return {key: pair for key, pair in self._reduced.items() if isinstance(pair, Pair)}

    @property
    def not_fused(self) -> dict[str, list[str]]:
        """Configuration -> why GEMMs whose output is reduced have the time of Sequential there; only those with any."""
        uncut = {reason for reason in self._reduced.values() if isinstance(reason, str)}
        found = {
            name: uncut | {pair.refused[name] for pair in self.pairs.values() if name in pair.refused}
            for name in self.shown[1:]
        }
        return {name: sorted(reasons) for name, reasons in found.items() if reasons}

    @cached_property
    def _reduced(self) -> dict[PairKey, Pair | str]:
        """As `pairs`. For a GEMM whose output has too few tiles, the reason; its exchange runs alone."""
        found: dict[PairKey, Pair | str] = {}
        for block, step in self.steps():
            text = gemm_of(block, step)
            if self.overlap and text and isinstance(step.work, Exchange) and (text, step.work) not in found:
                found[text, step.work] = self._pair(text, step.work)
        return found

    def key_of(self, block: Block, step: Step) -> Work | PairKey:
        """Under which a result has the figures of a step: those of its pair, or of its work alone."""
        pair = (gemm_of(block, step), step.work)
        return pair if pair in self.pairs else step.work

    @cached_property
    def alone(self) -> set[Work]:
        """The work of all steps that are not in a pair. Plain plans are the same in a pair, so no run is needed."""
        works = {step.work for block, step in self.steps() if self.key_of(block, step) == step.work}
        plain = self.preset.machine.collective.library == PLAIN
        return works - ({exchange for _, exchange in self.pairs} if plain else set())

    def _pair(self, text: str, exchange: Exchange) -> Pair | str:
        near = together(self.preset, exchange)
        if near < exchange.gpus and self.preset.machine.collective.library != PLAIN:
            allowed = f"{near} GPUs of a node (t3sim t3 --set network.node_gpus={near} simulates pairs over nodes)"
            return f"a reduction of {exchange.gpus} GPUs is fused only within the {allowed}"
        gemm = make_gemm(text, gpu_facts(self.preset.machine))
        try:
            scenario = Scenario.of_library(self.preset, gemm.source.problem, exchange.gpus, gemm.dtype)
            scenario.cut()
        except UserError as reason:
            return str(reason)
        return Pair(scenario, exchange.kind, self.shown, refused_in(scenario, exchange.kind, self.shown))

    @property
    def shown(self) -> tuple[str, ...]:
        """Sequential, then the other configurations that are simulated."""
        return tuple(dict.fromkeys((SEQUENTIAL, *(self.configurations if self.overlap else ()))))

    def count(self, block: Block, step: Step) -> int:
        """How often a step of a block runs in an iteration."""
        schedule = self.schedule
        return block.repeats * (1 if step.once or block in schedule.finish else schedule.micro_batches)

    @cached_property
    def dirty(self) -> float:
        """Share of dirty lines in L2 before a kernel: the share of writes in all data that the kernels move."""
        steps = ((self.count(block, step), step.work) for block, step in self.steps())
        return dirty_share((count, self.kernels[work]) for count, work in steps if isinstance(work, str))

    @cached_property
    def _reducing(self) -> set[str]:
        """Texts of the GEMMs whose output is reduced."""
        return {gemm_of(block, step) for block, step in self.steps()}

    def kernel_run(self, text: str) -> Run:
        """The run of a kernel step."""
        return self._run_on(self.preset, text)

    def beside_run(self, text: str) -> Run:
        """The run of a kernel step on the CUs that exchanges beside it leave (`kept`)."""
        return self._run_on(with_fewer_cus(self.preset, self.kept[text]), text)

    def _run_on(self, preset: Preset, text: str) -> Run:
        """The run of a kernel in an L2 that other kernels have used (D61). A GEMM whose output is reduced has an empty
        one, as the fused kernels of the configurations have."""
        l2 = L2State.EMPTY if text in self._reducing else L2State.USED
        return kernel_run(preset, self.kernels[text], l2, self.accuracy, self.dirty)

    def exchange_runs(self, exchange: Exchange) -> list[Run]:
        """The runs of an exchange alone, one for each of its `sizes`."""
        return [exchange_run(self.preset, exchange, size) for size in sizes(self.preset, exchange, self.accuracy == 0)]

    def step_runs(self, work: Work) -> list[Run]:
        """The runs of a step: alone, and beside exchanges if they slow it down."""
        if isinstance(work, Exchange):
            return self.exchange_runs(work)
        return [self.kernel_run(work), *([self.beside_run(work)] if work in self.kept else [])]

    def runs(self) -> list[Run]:
        """All different runs."""
        runs = [run for work in sorted(self.alone, key=str) for run in self.step_runs(work)]
        runs += [run for pair in self.pairs.values() for run in pair.runs().values()]
        return list({run.key: run for run in runs}.values())


S = TypeVar("S", bound=Scheduled)


@dataclass
class ScheduleResult(Generic[S]):
    """A schedule in all configurations.

    Attributes:
        figures: by `Scheduled.key_of`.
        times: of all steps, by configuration.
    """

    scenario: S
    figures: dict[Work | PairKey, Figures]
    times: dict[str, Times] = field(default_factory=dict)

    @cached_property
    def configurations(self) -> dict[str, ConfigurationTime]:
        """An iteration in each configuration: all calls are played, so it takes time and memory for each."""
        return {name: play(self.scenario.schedule, times) for name, times in self.times.items()}

    def speedup(self, name: str) -> float:
        """Time of Sequential / time of this configuration."""
        return self.configurations[SEQUENTIAL].time_ps / self.configurations[name].time_ps

    @property
    def reach_ps(self) -> int:
        """Time in Sequential of the GEMMs and reductions that T3 fuses, with the all-gather of an all-reduce."""
        total_ps = 0
        for block, step in self.scenario.steps():
            text = gemm_of(block, step)
            pair = self.scenario.pairs.get((text, step.work))
            if pair and T3 not in pair.refused:
                both_ps = self.figures[text].time_ps + self.figures[text, step.work].time_ps
                total_ps += self.scenario.count(block, step) * both_ps
        return total_ps

    def operators(self) -> list[dict]:
        """Every step with its count in an iteration, as plain values."""
        rows = []
        for block, step in self.scenario.steps():
            figures = self.figures[self.scenario.key_of(block, step)]
            rows.append(
                {
                    "name": f"{block.name}/{step.name}",
                    "class": str(step.operator_class),
                    "count": self.scenario.count(block, step),
                    "time_ns": figures.time_ps / PS_PER_NS,
                    "beside_exchanges_ns": max(figures.beside_ps, figures.time_ps) / PS_PER_NS,
                    "dram_bytes": figures.dram_bytes,
                    "flops": figures.operations,
                    "bound_by": figures.bound_by,
                    "time_error": figures.time_error,
                }
            )
        return rows

    def as_dict(self) -> dict:
        """Plain values for JSON."""
        base = self.configurations[SEQUENTIAL]
        return {
            **self.scenario.facts(),
            "time_ns": base.time_ps / PS_PER_NS,
            "classes": {str(name): value / PS_PER_NS for name, value in base.class_ps.items()},
            "exposed_communication_ns": base.exposed_ps / PS_PER_NS,
            "hidden_communication_ns": (base.class_ps[OperatorClass.COMMUNICATION] - base.exposed_ps) / PS_PER_NS,
            "t3_reach_ns": self.reach_ps / PS_PER_NS,
            "bubble_ns": base.bubble_ps / PS_PER_NS,
            "configurations": {
                name: {"time_ns": each.time_ps / PS_PER_NS, "speedup": self.speedup(name)}
                for name, each in self.configurations.items()
            },
            "operators": self.operators(),
            "not_fused": self.scenario.not_fused,
        }


def assemble_schedule(scenario: S, results: Mapping[str, RunResult]) -> ScheduleResult[S]:
    """Put a schedule together from finished runs. results: key of a run -> its result."""
    figures: dict[Work | PairKey, Figures] = {work: work_figures(scenario, work, results) for work in scenario.alone}
    pairs = {key: {name: results[run.key] for name, run in pair.runs().items()} for key, pair in scenario.pairs.items()}
    for (text, exchange), runs in pairs.items():
        alone = [runs[name] for name in ("rs", "ag") if name in runs]
        moved = sum(int(run.dram_bytes.sum()) for run in alone)
        assert isinstance(exchange, Exchange)
        keeps = kept_cus(scenario.preset, exchange) > 0
        launch_ps = launch_of(runs[AT_ONCE]) if AT_ONCE in runs else 0
        time_ps = sum(run.time_ps for run in alone)
        figures[text, exchange] = Figures(time_ps, moved, 0, "link", gaps_ps=launch_ps, keeps_cus=keeps)
        figures.setdefault(exchange, figures[text, exchange])
    whole = ScheduleResult(scenario, figures)
    for name in scenario.shown:
        whole.times[name] = _durations(scenario, figures, pairs, name)
    return whole


def work_figures(scenario: Scheduled, work: str | Exchange, results: Mapping[str, RunResult]) -> Figures:
    """Figures of a kernel or exchange in the middle of a stream: before each kernel is a gap, not a launch.

    results: key of a run -> its result; has those of `scenario.step_runs(work)`.
    """
    if isinstance(work, Exchange):
        runs, preset = [results[run.key] for run in scenario.exchange_runs(work)], scenario.preset
        launch_ps, keeps = launch_of(runs[0]), kept_cus(preset, work) > 0
        time_ps = launch_ps + round(figure_of_whole(preset, work, [run.time_ps - launch_ps for run in runs]))
        moved = round(figure_of_whole(preset, work, [int(run.dram_bytes.sum()) for run in runs]))
        error = LINE_ERROR if len(runs) > 1 else 0.0
        return Figures(time_ps, moved, 0, "link", error, gaps_ps=launch_ps, keeps_cus=keeps)
    figures = _kernel_figures(scenario, work, results[scenario.kernel_run(work).key])
    if work in scenario.kept:
        figures.beside_ps = _kernel_figures(scenario, work, results[scenario.beside_run(work).key]).time_ps
    return figures


def _kernel_figures(scenario: Scheduled, text: str, result: RunResult) -> Figures:
    found = figures_of(result, scenario.preset, scenario.kernels[text])
    busy_ps, gap_ps = round((found.time_ns - found.launch_ns) * PS_PER_NS), scenario.preset.machine.dispatch.gap_ps
    return Figures(
        busy_ps + found.kernels * gap_ps,
        found.dram_read_bytes + found.dram_write_bytes,
        found.flops,
        found.bound_by,
        result.extrapolation.get(TIME_ERROR, 0.0),
        found.kernels * gap_ps,
        round(busy_ps * found.busy["tensor"]),
    )


def _durations(
    scenario: Scheduled,
    figures: Mapping[Work | PairKey, Figures],
    pairs: Mapping[PairKey, Mapping[str, RunResult]],
    name: str,
) -> Times:
    """Times of all steps in a configuration."""
    times = {
        (block.name, step.name): figures[scenario.key_of(block, step)].step_time for block, step in scenario.steps()
    }
    if name == SEQUENTIAL:
        return times
    for block, step in scenario.steps():
        text = gemm_of(block, step)
        pair = scenario.pairs.get((text, step.work))
        if pair and name not in pair.refused:
            runs = pairs[text, step.work]
            if name not in AFTER_GEMM:
                times[block.name, step.reduces] = StepTime(pair.overlapped_ps(name, figures[text].time_ps, runs))
            keeps = NEEDS[name][-1] not in BY_COPIES and figures[text, step.work].keeps_cus
            times[block.name, step.name] = StepTime(pair.exchange_ps(name, runs), keeps_cus=keeps)
    return times
