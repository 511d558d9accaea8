"""Experiment: whole Transformer layers. Sub-layers with an all-reduce are simulated; a formula times other operators.

The other operators of a layer are rows of a TOML file. A row gives the floating-point operations and the moved bytes,
each as a product of powers of the model's sizes. The time of an operator is the larger of two times: flops / rate of
the simulated GEMMs of the model, and bytes / sustained DRAM bandwidth.
"""

from functools import cache
from math import prod
from pathlib import Path
from tomllib import loads
from typing import Literal

import msgspec

from sim.run.run import Run
from sim.scenario.result import CONFIGURATIONS, SEQUENTIAL, ScenarioResult
from sim.scenario.scenario import Scenario
from tracer.workloads import MODELS, Model
from traces.units import PS_PER_S, PS_PER_US
from validation.experiments.experiment import Experiment, Results
from validation.experiments.sublayers import geomean
from validation.experiments.workbench import Workbench, assembled, runs_for

OPERATORS = Path(__file__).parent / "operators"
SIZES = ("tokens", "sequence", "hidden", "heads", "tp")
"""Sizes of a model. A term is a product of powers of them."""
PHASES = {"training": ("forward", "training_forward", "backward", "optimizer"), "inference": ("forward",)}
"""Use of a Transformer -> phases whose operators run in it."""
REDUCED = {"training": ("op", "fc2", "fc1", "ip"), "inference": ("op", "fc2")}
"""Use of a Transformer -> its sub-layers with an all-reduce."""


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`times` x tokens^a x sequence^b x hidden^c x heads^d x tp^e."""

    times: float
    tokens: int = 0
    sequence: int = 0
    hidden: int = 0
    heads: int = 0
    tp: int = 0

    def value(self, sizes: dict[str, int]) -> float:
        return self.times * prod(float(sizes[name]) ** getattr(self, name) for name in SIZES)


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An operator of one layer on one GPU, beside the simulated sub-layers."""

    name: str
    phase: Literal["forward", "training_forward", "backward", "optimizer"]
    why: str
    flops: Term = Term(times=0)
    bytes: Term = Term(times=0)


class OperatorTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All operators of a layer, with their assumptions."""

    assumed: tuple[str, ...]
    stream_efficiency: float  # sustained share of the DRAM peak of element-wise operators
    heads: dict[str, int]  # attention heads of each model
    operator: tuple[Operator, ...]


class Layers(Experiment, tag="layers", frozen=True, kw_only=True):
    """End-to-end speed-ups of models.

    Attributes:
        models: `model/tpN`.
        operators: file of `operators` (without .toml).
        bench: the machine.
    """

    models: tuple[str, ...]
    operators: str
    bench: Workbench = Workbench()

    def runs(self) -> list[Run]:
        return [
            run for name in self.models for scenario in self._scenarios(name).values() for run in runs_for(scenario)
        ]

    def _scenarios(self, name: str) -> dict[str, Scenario]:
        model, degree = name.split("/")
        names = {layer: f"{model}/{layer}/{degree}" for layer in REDUCED["training"]}
        scenarios = self.bench.scenarios(tuple(names.values()))
        return {layer: scenarios[full_name] for layer, full_name in names.items()}

    def answers(self, results: Results) -> dict[str, float]:
        answers: dict[str, float] = {}
        speedups: dict[str, list[float]] = {}
        for name in self.models:
            layers = {layer: assembled(scenario, results) for layer, scenario in self._scenarios(name).items()}
            for use in PHASES:
                figures = _use_answers(self._other_ps(name, use, layers), [layers[layer] for layer in REDUCED[use]])
                answers |= {f"{use}/{name}/{key}": value for key, value in figures.items()}
                for configuration in CONFIGURATIONS:
                    speedups.setdefault(f"{use}/{{}}/{configuration}/speedup", []).append(
                        figures[f"{configuration}/speedup"]
                    )
        for key, values in speedups.items():
            answers |= {key.format("geomean"): geomean(values), key.format("max"): max(values)}
        return answers

    def _other_ps(self, name: str, use: str, layers: dict[str, ScenarioResult]) -> float:
        """Time of all operators of a layer that no all-reduce follows."""
        table, sizes = operator_table(self.operators), _sizes(name, operator_table(self.operators).heads)
        flops_per_ps = _gemm_rate(list(layers.values()))
        peak = layers["op"].preset.peaks().dram_bytes_per_s
        bytes_per_ps = table.stream_efficiency * peak / PS_PER_S
        chosen = [operator for operator in table.operator if operator.phase in PHASES[use]]
        return sum(
            max(operator.flops.value(sizes) / flops_per_ps, operator.bytes.value(sizes) / bytes_per_ps)
            for operator in chosen
        )


def _use_answers(other_ps: float, reduced: list[ScenarioResult]) -> dict[str, float]:
    """Time of one layer by configuration, its speed-up, and the share of the sub-layers with an all-reduce."""
    times = {name: sum(each.configurations[name].time_ps for each in reduced) + other_ps for name in CONFIGURATIONS}
    answers = {"other_us": other_ps / PS_PER_US, "share": 1 - other_ps / times[SEQUENTIAL]}
    for name, time_ps in times.items():
        answers |= {f"{name}/layer_us": time_ps / PS_PER_US, f"{name}/speedup": times[SEQUENTIAL] / time_ps}
    return answers


def _gemm_rate(layers: list[ScenarioResult]) -> float:
    """Flops per ps of all simulated GEMMs of a model together."""
    flops = sum(2.0 * layer.problem.m * layer.problem.n * layer.problem.k for layer in layers)
    return flops / sum(layer.runs["gemm"].time_ps for layer in layers)


def _sizes(name: str, heads: dict[str, int]) -> dict[str, int]:
    model: Model = MODELS[name.split("/")[0]]
    degree = int(name.rpartition("/tp")[2])
    values = (model.tokens, model.sequence, model.hidden, heads[model.name], degree)
    return dict(zip(SIZES, values, strict=True))


@cache
def operator_table(name: str) -> OperatorTable:
    """Read and check the table of operators of a file in OPERATORS (`name` without .toml)."""
    return msgspec.convert(loads((OPERATORS / f"{name}.toml").read_text(encoding="utf-8")), OperatorTable)
