"""The time of an iteration: a schedule played with the times of its steps, in one configuration."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sim.scenario.pipeline import Pipeline
from sim.scenario.timeline import StepTime, Timeline, TimeOf
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
    """Time of an iteration: all micro-batches through the pipeline, and what the last one does more."""

    def time_of(block: Block, step: Step) -> StepTime:
        return times[block.name, step.name]

    forward, backward = _earlier(schedule.forward), _earlier(schedule.backward)
    plain, plain_ps = _micro_batch(forward, backward, time_of)
    last, _ = _micro_batch(schedule.forward, schedule.backward, time_of)
    last.join()
    last.play(schedule.finish, time_of)
    _, layers_ps = _micro_batch(_layers(forward), _layers(backward), time_of)
    sends_ps = [times["handover", step.name].alone_ps for step in schedule.handover]
    pipeline = _pipeline(schedule, plain_ps, layers_ps, sends_ps)
    without_sends_ps = replace(pipeline, send_ps=(0, 0)).end_ps()
    bubble_ps = without_sends_ps - schedule.micro_batches * plain.end_ps
    shown_ps = pipeline.end_ps() - without_sends_ps
    earlier = schedule.micro_batches - 1
    time_ps = earlier * plain.end_ps + bubble_ps + shown_ps + last.end_ps
    classes = {name: earlier * plain.class_ps()[name] + value for name, value in last.class_ps().items()}
    own_ps = schedule.micro_batches * schedule.interleave * sum(sends_ps)
    classes[OperatorClass.COMMUNICATION] += max(own_ps, shown_ps)  # few micro-batches wait for those of other stages
    exposed_ps = earlier * plain.exposed_ps() + last.exposed_ps() + shown_ps
    return ConfigurationTime(time_ps, classes, exposed_ps, bubble_ps, last)


def _micro_batch(
    forward: Iterable[Block], backward: Iterable[Block], time_of: TimeOf
) -> tuple[Timeline, tuple[int, int]]:
    """A micro-batch on one stage, and the times of its forward and its backward pass."""
    timeline = Timeline()
    timeline.play(forward, time_of)
    forward_ps = timeline.end_ps
    timeline.play(backward, time_of)
    return timeline, (forward_ps, timeline.end_ps - forward_ps)


def _pipeline(
    schedule: Schedule, plain_ps: tuple[int, int], layers_ps: tuple[int, int], sends_ps: Sequence[int]
) -> Pipeline:
    """The pipeline of the schedule: all stages run the layers, the last part of the last one all blocks.

    plain_ps, layers_ps: the passes of all blocks, and of the layers; sends_ps: of one micro-batch, () = one stage.
    """
    forward_ps, backward_ps = (each // schedule.interleave for each in layers_ps)
    return Pipeline(
        stages=schedule.stages,
        parts=schedule.interleave,
        micro_batches=schedule.micro_batches,
        pass_ps=(forward_ps, backward_ps),
        more_ps=(plain_ps[0] - forward_ps * schedule.interleave, plain_ps[1] - backward_ps * schedule.interleave),
        send_ps=(sum(sends_ps[:1]), sum(sends_ps[1:])),
        train=bool(schedule.backward),
    )


def _earlier(blocks: Iterable[Block]) -> list[Block]:
    """The blocks of a micro-batch before the last."""
    return [replace(block, steps=tuple(step for step in block.steps if not step.once)) for block in blocks]


def _layers(blocks: Iterable[Block]) -> list[Block]:
    """The blocks that every stage of a pipeline has."""
    return [block for block in blocks if not block.outer]
