"""A model on a machine: its schedule, and what cannot run there.

Assumption: expert parallelism is balanced.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sim.presets import Preset
from sim.scenario.exchange import check_all_to_all
from sim.scenario.result import CONFIGURATIONS
from sim.scenario.scheduled import Scheduled, ScheduleResult
from tracer.models.deployment import Deployment, check_deployment
from tracer.models.memory import check_memory
from tracer.models.schedule import Exchange, Schedule
from tracer.models.shape import ModelShape
from tracer.models.whole import make_schedule


@dataclass(frozen=True)
class ModelScenario(Scheduled):
    """A model on a machine.

    Raises:
        UserError: the model cannot run like this, or does not fit the memory.
    """

    preset: Preset
    model: ModelShape
    how: Deployment
    accuracy: float = 0.0
    overlap: bool = True
    configurations: tuple[str, ...] = CONFIGURATIONS

    def __post_init__(self):
        check_deployment(self.model, self.how)
        check_memory(self.model, self.how, self.preset.machine.hbm.capacity_bytes)
        for _, step in self.steps():  # what cannot run is refused at once
            if isinstance(step.work, Exchange) and step.work.kind == "all_to_all":
                check_all_to_all(self.preset, step.work)

    @cached_property
    def schedule(self) -> Schedule:
        return make_schedule(self.model, self.how)

    def facts(self) -> dict[str, Any]:
        return {
            "model": self.model.name,
            "preset": self.preset.name,
            "phase": str(self.how.phase),
            "gpus": self.how.gpus,
        }


ModelResult = ScheduleResult[ModelScenario]
"""A model in all configurations."""
