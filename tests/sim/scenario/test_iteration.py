"""The time of an iteration by hand: micro-batches, the bubble of the pipeline, gradients of the last micro-batch."""

from dataclasses import replace

import pytest

from sim.scenario.iteration import play
from sim.scenario.pipeline import Pipeline
from sim.scenario.timeline import StepTime
from tracer.models.schedule import Block, Exchange, Lane, OperatorClass, Schedule, Step

MATRIX, COMMUNICATION = OperatorClass.MATRIX, OperatorClass.COMMUNICATION
TIMES = {"gemm": 5, "reduce": 7, "logits": 3, "weights": 11, "gradients": 13, "adam": 2, "send": 17}


def _gemm(name, kind=MATRIX):
    return Step(name, kind, name)


def _exchange(name, lane, once=False):
    return Step(name, COMMUNICATION, Exchange("all_reduce", 1, 2), lane=lane, once=once)


FORWARD = (
    Block("layer", (_gemm("gemm"), _exchange("reduce", Lane.TENSOR)), 2),
    Block("output", (_gemm("logits"),), outer=True),
)
BACKWARD = Block(
    "back", (_gemm("weights"), _exchange("gradients", Lane.DATA, once=True)), 2, leaves=frozenset({"gradients"})
)
FINISH = Block("optimizer", (_gemm("adam", OperatorClass.OPTIMIZER),))


@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("micro_batches", [3, 6, 300])
@pytest.mark.parametrize("send_ps", [0, 17])
def test_an_iteration_by_hand(send_ps, micro_batches, stages, interleave):
    """Gradients run once, from 38 to 64 ps of the last micro-batch, of which kernels hide those from 38 to 49 ps."""
    handover = (_exchange("send", Lane.PIPELINE), _exchange("send", Lane.PIPELINE))
    schedule = Schedule(FORWARD, (BACKWARD,), (FINISH,), micro_batches, stages, interleave, handover)
    times = {
        (name, step.name): StepTime(TIMES[step.name] if step.name != "send" else send_ps)
        for name, steps in [("handover", handover), *((block.name, block.steps) for block in schedule.blocks())]
        for step in steps
    }
    found = play(schedule, times)
    earlier, own_ps = micro_batches - 1, 2 * micro_batches * interleave * send_ps
    forward_ps, backward_ps, output_ps = 2 * (5 + 7), 2 * 11, 3
    layers_ps = forward_ps + backward_ps
    last_ps = forward_ps + output_ps + 11 + 2 * 13 + 2
    parts_ps = forward_ps // interleave, backward_ps // interleave
    pipeline = Pipeline(stages, interleave, micro_batches, parts_ps, (output_ps, 0), (send_ps, send_ps))
    sends_ps = pipeline.end_ps() - replace(pipeline, send_ps=(0, 0)).end_ps()
    assert found.bubble_ps == (stages - 1) * layers_ps // interleave
    assert found.time_ps == earlier * (layers_ps + output_ps) + found.bubble_ps + sends_ps + last_ps
    assert found.class_ps[MATRIX] == micro_batches * (2 * 5 + 3 + 2 * 11)
    assert found.class_ps[COMMUNICATION] == micro_batches * 2 * 7 + 2 * 13 + max(own_ps, sends_ps)
    assert found.class_ps[OperatorClass.OPTIMIZER] == 2
    assert found.exposed_ps == micro_batches * 2 * 7 + (64 - 49) + sends_ps
