"""Pipelines by hand, and against the longest path through all passes and sends, found by relaxation."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.scenario.pipeline import ROUNDS, Pipeline


def _longest_ps(pipeline):
    """Naive twin: each pass ends as late as the pass before it on its stage and the send that it waits for make it."""
    stages, last = pipeline.stages, pipeline.stages * pipeline.parts - 1
    ends_ps, arrivals_ps = {}, {}
    moved = True
    while moved:
        moved = False
        for stage in range(stages):
            before_ps, sent_ps = 0, [0, 0]
            for each in pipeline.passes(stage):
                backward, micro_batch, part = each
                place = part * stages + stage
                if backward:
                    asked = (True, micro_batch, place + 1) if place < last else (False, micro_batch, place)
                else:
                    asked = (False, micro_batch, place - 1)
                source_ps = ends_ps if asked[2] == place else arrivals_ps
                work_ps = pipeline.pass_ps[backward] + pipeline.more_ps[backward] * (place == last)
                before_ps = max(before_ps, source_ps.get(asked, 0)) + work_ps
                if place != (0 if backward else last):
                    sent_ps[backward] = max(sent_ps[backward], before_ps) + pipeline.send_ps[backward]
                key = backward, micro_batch, place
                moved = moved or ends_ps.get(key) != before_ps
                ends_ps[key], arrivals_ps[key] = before_ps, sent_ps[backward]
    return max(ends_ps.values())


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_one_micro_batch_goes_through_all_stages_and_back(train, stages):
    pipeline = Pipeline(stages, 1, 1, (10, 20), (3, 4), (7, 9), train)
    forward_ps, backward_ps = 10 * stages + 3 + 7 * (stages - 1), 20 * stages + 4 + 9 * (stages - 1)
    assert pipeline.end_ps() == forward_ps + (backward_ps if train else 0)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("stages, rounds", [(1, 4), (2, 1), (4, 1), (4, 2), (4, 40), (8, 3)])
def test_without_sends_only_filling_and_emptying_cost_time(stages, rounds, parts):
    """The bubble of arXiv 2104.04473, section 2.2."""
    pipeline = Pipeline(stages, parts, rounds * stages, (10, 20))
    assert pipeline.end_ps() == rounds * stages * parts * 30 + (stages - 1) * 30


def test_1f1b_waits_for_two_sends_a_micro_batch():
    """`stages` micro-batches are under way. So a round takes as long as a micro-batch forward and back."""
    stages, send_ps = 8, 6
    pipeline = Pipeline(stages, 1, 50 * stages, (100, 200), (0, 0), (send_ps, send_ps))
    round_ps = pipeline.end_ps() - replace(pipeline, micro_batches=49 * stages).end_ps()
    assert round_ps == stages * 300 + 2 * (stages - 1) * send_ps


def test_a_micro_batch_more_costs_no_send_with_parts():
    """Interleaved, a stage has more passes that can run before the one that waits."""
    pipeline = Pipeline(8, 2, 64, (50, 100), (0, 0), (6, 6))
    sends_ps = pipeline.end_ps() - replace(pipeline, send_ps=(0, 0)).end_ps()
    assert sends_ps == 2 * (8 * 2 - 1) * 6  # the first micro-batch goes through all parts of all stages, the last back


def test_the_order_of_megatron():
    """Forward passes before the first backward pass: core/pipeline_parallel/schedules.py."""
    for parts, stage, expected in [(1, 0, 3), (1, 3, 0), (2, 0, 10), (2, 3, 4), (3, 1, 12)]:
        passes = list(Pipeline(4, parts, 8, (1, 1)).passes(stage))
        first = next(k for k, each in enumerate(passes) if each[0])
        assert first == expected + 1  # and the forward pass that stands before the first backward pass
        assert len(set(passes)) == len(passes) == 2 * 8 * parts
    assert [each[0] for each in Pipeline(4, 2, 4, (1, 1)).passes(2)] == [False] * 6 + [False, True] * 2 + [True] * 6
    assert [each[1:] for each in Pipeline(2, 2, 4, (1, 1)).passes(0) if not each[0]] == [
        *((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1)),
    ]


@st.composite
def _pipelines(draw, rounds):
    stages, parts = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    times = st.tuples(st.integers(0, 300), st.integers(0, 300))
    micro_batches = stages * draw(rounds) + (draw(st.integers(0, stages - 1)) if parts == 1 else 0)
    works = draw(st.tuples(st.integers(1, 300), st.integers(1, 300))), draw(times), draw(times)
    return Pipeline(stages, parts, micro_batches, *works)


@settings(max_examples=60, deadline=None)
@given(_pipelines(st.integers(1, 3)), st.booleans())
def test_a_pipeline_takes_its_longest_path(pipeline, train):
    pipeline = replace(pipeline, train=train)
    assert pipeline.end_ps() == _longest_ps(pipeline)


@settings(max_examples=30, deadline=None)
@given(_pipelines(st.integers(3 * ROUNDS, 8 * ROUNDS)))
def test_many_micro_batches_take_as_long_as_if_all_were_played(pipeline):
    assert pipeline.end_ps() == pytest.approx(pipeline._play(), rel=1e-3)
