"""The time of an iteration: a schedule played with the times of its steps, in one configuration."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sim.scenario.timeline import StepTime, Timeline
from tracer.models.schedule import Block, OperatorClass, Schedule, Step

Times = dict[tuple[str, str], StepTime]
"""(name of the block, name of the step) -> its time."""


@dataclass
class ConfigurationTime:
    """A whole iteration in one configuration.

    Attributes:
        time_ps: of the iteration.
        class_ps: time of all steps by class; hidden communication included.
        exposed_ps: time in which communication runs and no kernel does.
        bubble_ps: time in which the GPU waits for the other stages of the pipeline.
        timeline: of one micro-batch, the last, with what follows it.
    """

    time_ps: int
    class_ps: dict[OperatorClass, int]
    exposed_ps: int
    bubble_ps: int
    timeline: Timeline


def play(schedule: Schedule, times: Times) -> ConfigurationTime:
    """Time of an iteration: all micro-batches, the bubble of the pipeline, the last micro-batch with its gradients."""

    def time_of(block: Block, step: Step) -> StepTime:
        return times[block.name, step.name]

    blocks = _earlier(schedule.forward + schedule.backward)
    plain, layers, last = Timeline(), Timeline(), Timeline()
    plain.play(blocks, time_of)
    layers.play([block for block in blocks if not block.outer], time_of)
    last.play(schedule.forward, time_of)
    last.play(schedule.backward, time_of)
    last.join()
    last.play(schedule.finish, time_of)
    handover_ps = sum(times["handover", step.name].alone_ps for step in schedule.handover)
    bubble_ps = (schedule.stages - 1) * layers.end_ps // schedule.interleave
    sends_ps = (schedule.stages - 1) * handover_ps
    earlier = schedule.micro_batches - 1
    time_ps = earlier * plain.end_ps + bubble_ps + sends_ps + last.end_ps
    classes = {name: earlier * plain.class_ps()[name] + value for name, value in last.class_ps().items()}
    classes[OperatorClass.COMMUNICATION] += sends_ps
    exposed_ps = earlier * plain.exposed_ps() + last.exposed_ps() + sends_ps
    return ConfigurationTime(time_ps, classes, exposed_ps, bubble_ps, last)


def _earlier(blocks: Iterable[Block]) -> list[Block]:
    """The blocks of a micro-batch before the last."""
    return [replace(block, steps=tuple(step for step in block.steps if not step.once)) for block in blocks]
