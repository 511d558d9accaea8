"""Experiment: whole Transformer layers of the paper's models. All kernels of a layer are simulated.

A GEMM whose output needs an all-reduce is a sub-layer in the five configurations. The other kernels of the layer are
those of `t3sim model` (`tracer.models.layer`), one after the other, each in a used L2 as there (D61); they take the
same time in every configuration.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import geometric_mean

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, dirty_share, kernel_run
from sim.run.run import KernelRun, Run
from sim.scenario.result import CONFIGURATIONS, SEQUENTIAL, ScenarioResult
from sim.scenario.scenario import Scenario
from tracer.data_type import DataType
from tracer.kernels import make_kernels
from tracer.models.deployment import Deployment, ModelPhase, Software
from tracer.models.layer import backward_steps, forward_steps
from tracer.models.schedule import Lane, OperatorClass, Step
from tracer.models.shape import ModelShape
from tracer.models.weight_texts import optimizer_texts
from tracer.workloads import MODELS, Model
from traces.units import PS_PER_US
from validation.experiments.experiment import Experiment, Results
from validation.experiments.workbench import Workbench, assembled, gpus_of, runs_for

PHASES = {"training": ModelPhase.TRAIN, "inference": ModelPhase.PROMPT}
"""Use of a Transformer -> phase of `t3sim model`."""
REDUCED = {"output": "op", "mlp_down": "fc2", "mlp_up_input": "fc1", "qkv_input": "ip"}
"""Step of a layer whose output needs an all-reduce -> sub-layer."""


@dataclass(frozen=True)
class Layer:
    """A layer of a model on one of the GPUs of a use."""

    shape: ModelShape
    how: Deployment

    def steps(self) -> Iterator[Step]:
        """Its steps forward, and in training backward."""
        yield from forward_steps(self.shape, self.how, True)
        if self.how.train:
            yield from backward_steps(self.shape, self.how, True)

    def reduced(self) -> list[str]:
        """Its sub-layers with an all-reduce."""
        return [REDUCED[step.reduces] for step in self.steps() if step.reduces]

    def sublayers(self) -> list[str]:
        """Text of its GEMMs whose output needs an all-reduce."""
        return [str(step.work) for step in self.steps() if step.name in self._reduced_steps]

    def others(self) -> list[tuple[OperatorClass, str]]:
        """Class and text of all its other kernels; in training those of the optimizer too."""
        found = [
            (step.operator_class, str(step.work))
            for step in self.steps()
            if step.lane == Lane.COMPUTE and step.name not in self._reduced_steps
        ]
        weights = (self.shape.attention_weights + self.shape.mlp_weights(self.shape.intermediate)) // self.how.tp
        texts = optimizer_texts(self.how, weights) if self.how.train else []
        return found + [(OperatorClass.OPTIMIZER, text) for _, text in texts]

    @property
    def _reduced_steps(self) -> set[str]:
        return {step.reduces for step in self.steps()}


class Layers(Experiment, tag="layers", frozen=True, kw_only=True):
    """End-to-end speed-ups of models.

    Attributes:
        models: `model/tpN`.
        heads: attention heads of each model.
        accuracy: of the simulated times of the other kernels.
        bench: the machine.
    """

    models: tuple[str, ...]
    heads: dict[str, int]
    accuracy: float = 0.01
    bench: Workbench = Workbench()

    def runs(self) -> list[Run]:
        runs: list[Run] = []
        for name in self.models:
            runs += [run for scenario in self._scenarios(name).values() for run in runs_for(scenario).values()]
            runs += [run for use in PHASES for _, run in self._others(self.layer(name, use))]
        return runs

    @property
    def _preset(self) -> Preset:
        return load_preset(self.bench.preset, self.bench.overrides)

    def _others(self, layer: Layer) -> list[tuple[OperatorClass, KernelRun]]:
        """Class and run of every kernel that no all-reduce follows. The first kernel of a run fills L2."""
        preset = self._preset
        others = [(kind, make_kernels(text, gpu_facts(preset.machine))) for kind, text in layer.others()]
        gemms = [make_kernels(text, gpu_facts(preset.machine)) for text in layer.sublayers()]
        dirty = dirty_share((1, kernels) for kernels in [*gemms, *(kernels for _, kernels in others)])
        return [(kind, kernel_run(preset, kernels, L2State.USED, self.accuracy, dirty)) for kind, kernels in others]

    def layer(self, name: str, use: str) -> Layer:
        """A layer of a model in a use of PHASES, with the operators of Megatron-LM.

        It is that of an encoder, which writes no KV cache: the paper names no such operator.
        """
        model: Model = MODELS[name.split("/")[0]]
        heads, phase = self.heads[model.name], PHASES[use]
        shape = ModelShape(
            name=model.name, layers=model.layers, hidden=model.hidden, intermediate=4 * model.hidden, heads=heads,
            kv_heads=heads, head_dim=model.hidden // heads, vocab=1, max_positions=model.sequence, gated=False,
            causal=False,
        )  # fmt: skip
        how = Deployment(
            phase=phase, tp=gpus_of(name), micro_batch=model.batch, sequence=model.sequence, dtype=DataType.FP16,
            flash=False, software=Software.MEGATRON, dropout=phase == ModelPhase.TRAIN,
        )  # fmt: skip
        return Layer(shape, how)

    def _scenarios(self, name: str) -> dict[str, Scenario]:
        """Sub-layer -> its scenario."""
        model, degree = name.split("/")
        names = {layer: f"{model}/{layer}/{degree}" for layer in REDUCED.values()}
        scenarios = self.bench.scenarios(tuple(names.values()))
        return {layer: scenarios[full_name] for layer, full_name in names.items()}

    def answers(self, results: Results) -> dict[str, float]:
        answers: dict[str, float] = {}
        speedups: dict[str, list[float]] = {}
        for name in self.models:
            sublayers = {layer: assembled(scenario, results) for layer, scenario in self._scenarios(name).items()}
            for use in PHASES:
                layer = self.layer(name, use)
                figures = _use_answers(self._others_us(layer, results), [sublayers[each] for each in layer.reduced()])
                answers |= {f"{use}/{name}/{key}": value for key, value in figures.items()}
                for configuration in CONFIGURATIONS:
                    speedups.setdefault(f"{use}/{{}}/{configuration}/speedup", []).append(
                        figures[f"{configuration}/speedup"]
                    )
        for key, values in speedups.items():
            answers |= {key.format("geomean"): geometric_mean(values), key.format("max"): max(values)}
        return answers

    def _others_us(self, layer: Layer, results: Results) -> dict[OperatorClass, float]:
        """Time of the kernels that no all-reduce follows, by class."""
        times: dict[OperatorClass, float] = {each: 0.0 for each in OperatorClass if each != OperatorClass.COMMUNICATION}
        gap_ps = self._preset.machine.dispatch.gap_ps
        for kind, run in self._others(layer):
            own = results[run.key].kernels[1:]
            times[kind] += sum(kernel.time_ps + gap_ps for kernel in own) / PS_PER_US
        return times


def _use_answers(others_us: dict[OperatorClass, float], reduced: list[ScenarioResult]) -> dict[str, float]:
    """Time of one layer by configuration, its speed-up, and the share of the sub-layers with an all-reduce."""
    other_us = sum(others_us.values())
    times = {
        name: sum(each.configurations[name].time_ps for each in reduced) / PS_PER_US + other_us
        for name in CONFIGURATIONS
    }
    answers = {"other_us": other_us, "share": 1 - other_us / times[SEQUENTIAL]}
    answers |= {f"other {kind}_us": time_us for kind, time_us in others_us.items()}
    for name, time_us in times.items():
        answers |= {f"{name}/layer_us": time_us, f"{name}/speedup": times[SEQUENTIAL] / time_us}
    return answers
