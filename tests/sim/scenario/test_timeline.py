"""The timeline of a schedule: lanes run at the same time, dependencies hold, the critical path decides."""

from sim.scenario.timeline import Timeline
from tracer.models.schedule import Block, Exchange, Lane, OperatorClass, Step

MATRIX, COMMUNICATION = OperatorClass.MATRIX, OperatorClass.COMMUNICATION


def _gemm(name, after=()):
    return Step(name, MATRIX, "gemm:m=1,n=1,k=1", after)


def _exchange(name, after=(), lane=Lane.TENSOR):
    return Step(name, COMMUNICATION, Exchange("all_reduce", 1, 2), after, lane)


def _play(blocks, times):
    timeline = Timeline()
    timeline.play(blocks, lambda block, step: times[step.name])
    return timeline


def test_steps_wait_for_the_step_before_them():
    timeline = _play([Block("layer", (_gemm("a"), _exchange("r"), _gemm("b")), 3)], {"a": 5, "r": 7, "b": 2})
    assert timeline.end_ps == 3 * 14
    assert timeline.exposed_ps() == 3 * 7
    assert timeline.class_ps()[MATRIX] == 3 * 7


def test_a_gemm_beside_an_exchange_hides_it():
    steps = (_gemm("input"), _exchange("r", ("input",)), _gemm("weight", ("input",)), _gemm("next", ("r", "weight")))
    assert _play([Block("back", steps)], {"input": 5, "r": 7, "weight": 4, "next": 1}).end_ps == 5 + 7 + 1
    shorter = _play([Block("back", steps)], {"input": 5, "r": 3, "weight": 4, "next": 1})
    assert (shorter.end_ps, shorter.exposed_ps()) == (5 + 4 + 1, 0)


def test_what_a_block_leaves_behind_runs_beside_the_next_block():
    steps = (_gemm("a"), _exchange("gradients", lane=Lane.DATA))
    block = Block("back", steps, 4, frozenset({"gradients"}))
    timeline = _play([block], {"a": 10, "gradients": 6})
    assert (timeline.now_ps, timeline.end_ps, timeline.exposed_ps()) == (40, 46, 6)
    slow = _play([block], {"a": 10, "gradients": 16})  # one lane carries one exchange at a time
    assert slow.end_ps == 10 + 4 * 16


def test_join_waits_for_all_lanes():
    timeline = _play(
        [Block("back", (_gemm("a"), _exchange("g", lane=Lane.DATA)), 1, frozenset({"g"}))], {"a": 1, "g": 9}
    )
    timeline.join()
    timeline.play([Block("optimizer", (_gemm("step"),))], lambda block, step: 3)
    assert timeline.end_ps == 1 + 9 + 3


def test_the_longest_chain_decides():
    """Against a plain longest path over the same dependencies when each step has a lane of its own."""
    steps = (_gemm("a"), _exchange("b", ("a",), Lane.DATA), _exchange("c", ("a",), Lane.TENSOR), _gemm("d", ("b", "c")))
    for times in ({"a": 1, "b": 2, "c": 9, "d": 1}, {"a": 1, "b": 20, "c": 9, "d": 1}):
        assert _play([Block("x", steps)], times).end_ps == times["a"] + max(times["b"], times["c"]) + times["d"]
