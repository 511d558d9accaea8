"""Experiment: iterations of a model by class of operator, for several ways to run it."""

from dataclasses import replace
from typing import Any

import msgspec

from sim.presets import load_preset
from sim.run.run import Run
from sim.scenario.model import ModelResult, ModelScenario
from sim.scenario.result import SEQUENTIAL
from sim.scenario.scheduled import assemble_schedule
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment
from tracer.models.layer import AGAIN
from tracer.models.schedule import OperatorClass, Step
from traces.units import PS_PER_MS, PS_PER_S
from validation.experiments.bert_layer import CONTRACTION, ELEMENT, NORMALISATION
from validation.experiments.experiment import Experiment, Results

WIDTH = "width"
"""Field of a case: factor of the hidden size and of what follows it (inner width, number of heads)."""
EXPOSED = "exposed communication"
CLASSES = (*(str(name) for name in OperatorClass if name != OperatorClass.COMMUNICATION), EXPOSED)
"""Parts of an iteration; they add up to its time if there is one stage."""
LAYER = ("layer", "backward")
"""Blocks of a layer."""
KINDS = (CONTRACTION, NORMALISATION, ELEMENT)
"""Classes of arXiv 2007.00072 for the kernels of a layer."""
OF_SOFTMAX = ("attention_dropout", "attention_dropout_back", "softmax_back_product")
"""Steps that belong to softmax there."""


class ModelSteps(Experiment, tag="model_steps", frozen=True, kw_only=True):
    """A model that runs in several ways.

    Attributes:
        model: its name.
        preset, overrides: the machine.
        base: fields of `tracer.models.deployment.Deployment` in all cases.
        cases: name -> its fields; `width` too.
        near_memory_rate: rate at which the optimizer's data is worked on at the banks, over the peak of the DRAM bus.
        accuracy: of the simulated times.
    """

    model: str
    preset: str
    overrides: tuple[str, ...] = ()
    base: dict[str, Any]
    cases: dict[str, dict[str, Any]]
    near_memory_rate: float
    accuracy: float = 0.01

    def scenario(self, name: str) -> ModelScenario:
        """The scenario of a case, in Sequential only."""
        fields = dict(self.cases[name])
        shape, width = load_model(self.model), fields.pop(WIDTH, 1)
        wide = {field: width * getattr(shape, field) for field in ("hidden", "intermediate", "heads", "kv_heads")}
        how = msgspec.convert(self.base | fields, Deployment)
        preset = load_preset(self.preset, self.overrides)
        return ModelScenario(preset, replace(shape, **wide), how, self.accuracy, overlap=False)

    def runs(self) -> list[Run]:
        return [run for name in self.cases for run in self.scenario(name).runs()]

    def answers(self, results: Results) -> dict[str, float]:
        """`<case>/<class>_ms`, `time_ms`, `near_memory_ms` (the whole with the optimizer at the banks), its speed-up,
        `layer_<class>_share` in percent (`layer_shares`)."""
        answers: dict[str, float] = {}
        for name in self.cases:
            scenario = self.scenario(name)
            result = assemble_schedule(scenario, results)
            base = result.configurations[SEQUENTIAL]
            times = {str(each): value / PS_PER_MS for each, value in base.class_ps.items()}
            times[EXPOSED] = base.exposed_ps / PS_PER_MS
            rows = [row for row in result.operators() if row["class"] == OperatorClass.OPTIMIZER]
            moved = sum(row["count"] * row["dram_bytes"] for row in rows)
            banks_ms = moved / (self.near_memory_rate * scenario.preset.peaks().dram_bytes_per_s) * PS_PER_S / PS_PER_MS
            whole_ms = base.time_ps / PS_PER_MS
            near_ms = whole_ms - max(0.0, times[OperatorClass.OPTIMIZER] - banks_ms)
            answers |= {f"{name}/{each.replace(' ', '_')}_ms": times[each] for each in CLASSES}
            answers |= {f"{name}/time_ms": whole_ms, f"{name}/near_memory_ms": near_ms}
            answers[f"{name}/near_memory_speedup"] = whole_ms / near_ms
            answers |= {f"{name}/layer_{kind}_share": share for kind, share in layer_shares(result).items()}
        return answers


def layer_shares(result: ModelResult) -> dict[str, float]:
    """Percent of the time of a layer's kernels, forward and backward, by class of arXiv 2007.00072."""
    times = dict.fromkeys(KINDS, 0)
    for block, step in result.scenario.steps():
        if block.name in LAYER and isinstance(step.work, str):
            times[layer_kind(step, step.work)] += result.figures[step.work].time_ps
    return {kind: 100 * time_ps / sum(times.values()) for kind, time_ps in times.items()}


def layer_kind(step: Step, text: str) -> str:
    """Class of a kernel in arXiv 2007.00072 (`validation.experiments.bert_layer` says what is assumed)."""
    operator = text.partition(":")[0]
    if operator in ("gemm", "flash_attention"):
        return CONTRACTION
    sums = operator in ("layernorm", "rmsnorm", "softmax") or (operator == "bias" and "backward=true" in text)
    return NORMALISATION if sums or step.name.removeprefix(AGAIN) in OF_SOFTMAX else ELEMENT
