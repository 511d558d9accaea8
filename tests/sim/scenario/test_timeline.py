"""The timeline of a schedule: lanes run at the same time, dependencies hold, the critical path decides."""

from fractions import Fraction
from random import Random

from sim.scenario.timeline import StepTime, Timeline
from tracer.models.schedule import Block, Exchange, Lane, OperatorClass, Step

MATRIX, COMMUNICATION = OperatorClass.MATRIX, OperatorClass.COMMUNICATION


def _gemm(name, after=()):
    return Step(name, MATRIX, "gemm:m=1,n=1,k=1", after)


def _exchange(name, after=(), lane=Lane.TENSOR):
    return Step(name, COMMUNICATION, Exchange("all_reduce", 1, 2), after, lane)


def _play(blocks, times):
    """times: name -> StepTime, or the time alone."""
    timeline = Timeline()
    given = {name: time if isinstance(time, StepTime) else StepTime(time) for name, time in times.items()}
    timeline.play(blocks, lambda block, step: given[step.name])
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
    timeline.play([Block("optimizer", (_gemm("step"),))], lambda block, step: StepTime(3))
    assert timeline.end_ps == 1 + 9 + 3


def test_the_longest_chain_decides():
    """Against a plain longest path over the same dependencies when each step has a lane of its own."""
    steps = (_gemm("a"), _exchange("b", ("a",), Lane.DATA), _exchange("c", ("a",), Lane.TENSOR), _gemm("d", ("b", "c")))
    for times in ({"a": 1, "b": 2, "c": 9, "d": 1}, {"a": 1, "b": 20, "c": 9, "d": 1}):
        assert _play([Block("x", steps)], times).end_ps == times["a"] + max(times["b"], times["c"]) + times["d"]


def test_a_gemm_is_slower_while_an_exchange_keeps_cus():
    """The GEMM takes 40 ps alone and 80 beside; it begins with the exchange, at 50 ps."""
    steps = (_gemm("input"), _exchange("r", ("input",)), _gemm("weight", ("input",)))
    for exchange_ps, end_ps in ((0, 90), (20, 100), (60, 120), (80, 130), (200, 130)):
        times = {"input": 50, "r": StepTime(exchange_ps, keeps_cus=True), "weight": StepTime(40, 80)}
        assert _play([Block("back", steps)], times).intervals[-1].end_ps == end_ps
    times = {"input": 50, "r": StepTime(60), "weight": StepTime(40, 80)}  # copy engines keep none
    assert _play([Block("back", steps)], times).intervals[-1].end_ps == 90


def test_the_end_beside_exchanges_is_that_of_a_walk_through_all_picoseconds():
    random = Random(1)
    for _ in range(200):
        lanes = [lane for lane in Lane if lane != Lane.COMPUTE]
        steps = tuple(_exchange(f"x{k}", ("a",), random.choice(lanes)) for k in range(random.randrange(5)))
        times = {step.name: StepTime(random.randrange(1, 60), keeps_cus=random.random() < 0.7) for step in steps}
        alone_ps = random.randrange(1, 80)
        times |= {"a": StepTime(random.randrange(9)), "b": StepTime(alone_ps, alone_ps * random.randrange(1, 4))}
        times["before"] = StepTime(random.randrange(30))  # exchanges may begin, and end, before the kernel
        kernels = _gemm("before", ("a",)), _gemm("b", ("a",))
        *others, found = _play([Block("x", (_gemm("a"), *steps, *kernels))], times).intervals
        now_ps, left = found.begin_ps, Fraction(alone_ps)
        while left > 0:
            kept = any(other.keeps_cus and other.begin_ps <= now_ps < other.end_ps for other in others)
            left -= Fraction(alone_ps, times["b"].beside_ps) if kept else 1
            now_ps += 1
        assert abs(found.end_ps - now_ps) <= 3 * (len(steps) + 1)  # rounded once per exchange
