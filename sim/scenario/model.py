"""A model on a machine: its schedule, the runs that it needs, and its time in the configurations of the paper.

Each different kernel and exchange is one run. `sim.scenario.timeline` plays the schedule with the times of the runs. A
GEMM and the exchange that reduces its output are a pair: in a configuration with T3 the pair has the times of the
fused kernel and of the all-gather behind it. A pair that the machine cannot fuse keeps its times (`Pair.refused`).

Assumptions: kernels and exchanges that run at the same time do not slow each other down; all GPUs and stages do the
same; expert parallelism is balanced.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sim.gemm_facts import gpu_facts
from sim.presets import Preset
from sim.run.kernel_figures import KernelFigures, L2State, figures_of, kernel_run
from sim.run.many_gpus import fused_plans
from sim.run.result import RunResult
from sim.run.run import Run
from sim.scenario.exchange import exchange_run
from sim.scenario.result import CONFIGURATIONS, SEQUENTIAL, T3, T3_MCA, Configuration, put_together
from sim.scenario.scenario import Scenario, runs_of
from sim.scenario.timeline import Timeline
from tracer.gemm.source import GemmSource
from tracer.kernels import make_kernels
from tracer.models.deployment import Deployment
from tracer.models.memory import check_memory
from tracer.models.schedule import Block, Exchange, Lane, OperatorClass, Schedule, Step
from tracer.models.shape import ModelShape
from tracer.models.whole import make_schedule
from tracer.operators.even_kernel import EvenKernel
from traces.errors import UserError
from traces.source import KernelSource
from traces.units import PS_PER_NS


@dataclass(frozen=True)
class Pair:
    """A GEMM and the exchange of its output.

    Attributes:
        scenario: the two as a scenario of `sim.scenario.scenario`.
        kind: of the exchange: all_reduce or reduce_scatter.
        refused: why the machine cannot fuse them, "" = it can.
    """

    scenario: Scenario
    kind: str
    refused: str

    def configurations(self) -> tuple[str, ...]:
        """The configurations that the machine can run."""
        fused = (T3, T3_MCA)
        return tuple(name for name in CONFIGURATIONS if not (self.refused and name in fused))

    def runs(self) -> list[Run]:
        return [self.scenario.run(name) for name in runs_of(self.configurations())]


@dataclass
class Figures:
    """Figures of a step: time and traffic on one GPU. operations: 0 for an exchange."""

    time_ps: int
    dram_bytes: int
    operations: int
    bound_by: str


@dataclass(frozen=True)
class ModelScenario:
    """A model on a machine.

    Raises:
        UserError: the model cannot run like this, or does not fit the memory.
    """

    preset: Preset
    model: ModelShape
    how: Deployment

    def __post_init__(self):
        check_memory(self.model, self.how, self.preset.machine.hbm.capacity_bytes)
        self.schedule  # noqa: B018  # what cannot run is refused at once

    @cached_property
    def schedule(self) -> Schedule:
        return make_schedule(self.model, self.how)

    def steps(self) -> Iterator[tuple[Block, Step]]:
        """All steps, once each, with their blocks; the handover between stages last."""
        for block in self.schedule.blocks():
            for step in block.steps:
                yield block, step
        for step in self.schedule.handover:
            yield Block("handover", self.schedule.handover), step

    @cached_property
    def kernels(self) -> dict[str, tuple[KernelSource, ...]]:
        """Text -> the kernels of every different kernel step."""
        gpu = gpu_facts(self.preset.machine)
        texts = {step.work for _, step in self.steps() if isinstance(step.work, str)}
        return {text: make_kernels(text, gpu) for text in sorted(texts)}

    @cached_property
    def pairs(self) -> dict[tuple[str, Exchange], Pair]:
        """(text of the GEMM, exchange) -> the pair, for every GEMM whose output is reduced."""
        found: dict[tuple[str, Exchange], Pair] = {}
        for block, step in self.steps():
            if step.reduces and isinstance(step.work, Exchange):
                text = next(str(each.work) for each in block.steps if each.name == step.reduces)
                if (text, step.work) not in found:
                    found[text, step.work] = self._pair(text, step.work)
        return found

    def _pair(self, text: str, exchange: Exchange) -> Pair:
        (source,) = self.kernels[text]
        assert isinstance(source, GemmSource)
        scenario = Scenario(self.preset, source.problem, source.kernel, exchange.gpus)
        try:
            fused_plans(self.preset.machine, source, scenario.cut())
        except UserError as reason:
            return Pair(scenario, exchange.kind, str(reason))
        return Pair(scenario, exchange.kind, "")

    def kernel_run(self, text: str) -> Run:
        """The run of a kernel step, alone in an empty L2."""
        kernels = self.kernels[text]
        return kernel_run(self.preset, kernels, L2State.EMPTY, all(isinstance(each, EvenKernel) for each in kernels))

    def runs(self) -> list[Run]:
        """All different runs."""
        paired = {exchange for _, exchange in self.pairs}
        runs = [self.kernel_run(text) for text in self.kernels]
        exchanges = {step.work for _, step in self.steps() if isinstance(step.work, Exchange)} - paired
        runs += [exchange_run(self.preset, each) for each in sorted(exchanges, key=str)]
        runs += [run for pair in self.pairs.values() for run in pair.runs()]
        return list({run.key: run for run in runs}.values())


@dataclass
class ConfigurationTime:
    """A whole iteration in one configuration.

    Attributes:
        time_ps: of the iteration.
        class_ps: time of all steps by class; hidden communication included.
        exposed_ps: time in which communication runs and no kernel does.
        timeline: of one micro-batch, the last, with what follows it.
    """

    time_ps: int
    class_ps: dict[OperatorClass, int]
    exposed_ps: int
    timeline: Timeline


@dataclass
class ModelResult:
    """A model in all configurations."""

    scenario: ModelScenario
    figures: dict[str | Exchange, Figures]
    configurations: dict[str, ConfigurationTime] = field(default_factory=dict)

    def speedup(self, name: str) -> float:
        """Time of Sequential / time of this configuration."""
        return self.configurations[SEQUENTIAL].time_ps / self.configurations[name].time_ps

    def operators(self) -> list[dict]:
        """Every step with its count in an iteration, as plain values."""
        schedule = self.scenario.schedule
        rows = []
        for block, step in self.scenario.steps():
            figures = self.figures[step.work]
            once = block in schedule.finish
            rows.append(
                {
                    "name": f"{block.name}/{step.name}",
                    "class": str(step.operator_class),
                    "count": block.repeats * (1 if once else schedule.micro_batches),
                    "time_ns": figures.time_ps / PS_PER_NS,
                    "dram_bytes": figures.dram_bytes,
                    "flops": figures.operations,
                    "bound_by": figures.bound_by,
                }
            )
        return rows

    def as_dict(self) -> dict:
        """Plain values for JSON."""
        base = self.configurations[SEQUENTIAL]
        return {
            "model": self.scenario.model.name,
            "preset": self.scenario.preset.name,
            "phase": str(self.scenario.how.phase),
            "gpus": self.scenario.how.gpus,
            "time_ns": base.time_ps / PS_PER_NS,
            "classes": {str(name): value / PS_PER_NS for name, value in base.class_ps.items()},
            "exposed_communication_ns": base.exposed_ps / PS_PER_NS,
            "hidden_communication_ns": (base.class_ps[OperatorClass.COMMUNICATION] - base.exposed_ps) / PS_PER_NS,
            "configurations": {
                name: {"time_ns": each.time_ps / PS_PER_NS, "speedup": self.speedup(name)}
                for name, each in self.configurations.items()
            },
            "operators": self.operators(),
            "not_fused": sorted({pair.refused for pair in self.scenario.pairs.values() if pair.refused}),
        }


def assemble_model(scenario: ModelScenario, results: Mapping[str, RunResult]) -> ModelResult:
    """Put a model together from finished runs. results: key of a run -> its result."""
    figures: dict[str | Exchange, Figures] = {}
    for text, kernels in scenario.kernels.items():
        found = figures_of(results[scenario.kernel_run(text).key], scenario.preset, kernels)
        figures[text] = _kernel_figures(found)
    pairs = {key: _pair_configurations(pair, results) for key, pair in scenario.pairs.items()}
    for (_, exchange), configurations in pairs.items():
        figures[exchange] = _exchange_figures(exchange, configurations[SEQUENTIAL])
    for _, step in scenario.steps():
        if isinstance(step.work, Exchange) and step.work not in figures:
            result = results[exchange_run(scenario.preset, step.work).key]
            figures[step.work] = Figures(result.time_ps, int(result.dram_bytes.sum()), 0, "link")
    whole = ModelResult(scenario, figures)
    for name in CONFIGURATIONS:
        times = _durations(scenario, figures, pairs, name)
        whole.configurations[name] = _play(scenario.schedule, times)
    return whole


def _kernel_figures(found: KernelFigures) -> Figures:
    return Figures(
        round(found.time_ns * PS_PER_NS), found.dram_read_bytes + found.dram_write_bytes, found.flops, found.bound_by
    )


def _exchange_figures(exchange: Exchange, sequential: Configuration) -> Figures:
    """Figures of the exchange of a pair, alone: its reduce-scatter, and the all-gather of an all-reduce."""
    kinds = ["rs_reads", "rs_writes"] + (["ag_reads", "ag_writes"] if exchange.kind == "all_reduce" else [])
    time_ps = sequential.rs_ps + (sequential.ag_ps if exchange.kind == "all_reduce" else 0)
    return Figures(time_ps, sum(sequential.dram_bytes[kind] for kind in kinds), 0, "link")


def _pair_configurations(pair: Pair, results: Mapping[str, RunResult]) -> dict[str, Configuration]:
    runs = {name: results[pair.scenario.run(name).key] for name in runs_of(pair.configurations())}
    return {name: put_together(name, runs) for name in pair.configurations()}


Times = dict[tuple[str, str], int]
"""(name of the block, name of the step) -> time in ps."""


def _durations(
    scenario: ModelScenario,
    figures: Mapping[str | Exchange, Figures],
    pairs: Mapping[tuple[str, Exchange], Mapping[str, Configuration]],
    name: str,
) -> Times:
    """Times of all steps in a configuration."""
    times = {(block.name, step.name): figures[step.work].time_ps for block, step in scenario.steps()}
    if name == SEQUENTIAL:
        return times
    for block, step in scenario.steps():
        if step.reduces and isinstance(step.work, Exchange):
            text = next(str(each.work) for each in block.steps if each.name == step.reduces)
            chosen = pairs[text, step.work].get(name)
            if chosen is not None:
                gathered_ps = chosen.ag_ps if step.work.kind == "all_reduce" else 0
                times[block.name, step.reduces] = chosen.time_ps - chosen.ag_ps
                times[block.name, step.name] = gathered_ps
    return times


def _play(schedule: Schedule, times: Times) -> ConfigurationTime:
    """Time of an iteration: all micro-batches, the bubble of the pipeline, the last micro-batch with its gradients."""

    def duration(block: Block, step: Step) -> int:
        return times[block.name, step.name]

    plain = Timeline()
    plain.play(_without(schedule.forward + schedule.backward, Lane.DATA), duration)
    last = Timeline()
    last.play(schedule.forward, duration)
    last.play(schedule.backward, duration)
    last.join()
    last.play(schedule.finish, duration)
    handover_ps = sum(times["handover", step.name] for step in schedule.handover)
    earlier = schedule.micro_batches - 1 + schedule.stages - 1
    time_ps = earlier * plain.end_ps + (schedule.stages - 1) * handover_ps + last.end_ps
    classes = {name: earlier * plain.class_ps()[name] + value for name, value in last.class_ps().items()}
    classes[OperatorClass.COMMUNICATION] += (schedule.stages - 1) * handover_ps
    exposed_ps = earlier * plain.exposed_ps() + last.exposed_ps() + (schedule.stages - 1) * handover_ps
    return ConfigurationTime(time_ps, classes, exposed_ps, last)


def _without(blocks: Iterable[Block], lane: Lane) -> list[Block]:
    """The blocks without the steps of a lane."""
    kept = []
    for block in blocks:
        steps = tuple(step for step in block.steps if step.lane != lane)
        kept.append(Block(block.name, steps, block.repeats, block.leaves))
    return kept
