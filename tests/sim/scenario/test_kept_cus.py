"""Exchanges keep CUs: which kernels may run beside one, and on how many CUs."""

import pytest

from sim.presets import load_preset
from sim.scenario.beside import kept_cus, kernels_beside, with_fewer_cus
from tracer.models.schedule import Block, Exchange, Lane, OperatorClass, Step

EXCHANGE = Exchange("all_reduce", 1 << 26, 8)


def _kernel(name, after=(), kind=OperatorClass.MATRIX):
    return Step(name, kind, name, after)


def _exchange(name, after=(), lane=Lane.TENSOR):
    return Step(name, OperatorClass.COMMUNICATION, EXCHANGE, after, lane)


def _beside(*blocks):
    return [step.name for step, _ in kernels_beside(blocks)]


def test_only_kernels_that_do_not_wait_for_the_exchange_run_beside_it():
    steps = (_kernel("a"), _exchange("r", ("a",)), _kernel("b", ("a",)), _kernel("c", ("b",)), _kernel("d", ("c", "r")))
    assert _beside(Block("x", (*steps, _kernel("e")))) == ["b", "c"]
    assert _beside(Block("x", (_kernel("a"), _exchange("r"), _kernel("b")))) == []


def test_kernels_that_memory_bounds_are_not_slowed():
    steps = (_kernel("a"), _exchange("r", ("a",)), _kernel("norm", ("a",), OperatorClass.NORM))
    assert _beside(Block("x", steps)) == []


def test_what_a_block_leaves_behind_is_beside_its_next_turn_and_all_later_blocks():
    back = Block("back", (_kernel("a"), _exchange("g", lane=Lane.DATA)), 1, frozenset({"g"}))
    assert _beside(back, Block("next", (_kernel("b"),))) == ["b"]
    again = Block("back", back.steps, 2, back.leaves)
    assert _beside(again, Block("next", (_kernel("b"),))) == ["a", "b"]


@pytest.mark.parametrize(
    ("preset", "kept", "count"),
    [("a100_80g", 24, 108 - 24), ("h100_sxm", 16, 132 - 16), ("mi300x", 56, 304 - 56), ("t3_2024", 0, 80)],
)
def test_a_library_keeps_a_cu_per_channel(preset, kept, count):
    machine = load_preset(preset)
    assert kept_cus(machine, EXCHANGE) == kept
    fewer = with_fewer_cus(machine, kept)
    assert fewer.machine.cu.count == count and fewer.sources["cu.count"].kind == "derived"


def test_l2_partitions_stay_alike():
    assert with_fewer_cus(load_preset("mi300x"), 20).machine.cu.count == 280
    assert with_fewer_cus(load_preset("mi300x"), 400).machine.cu.count == 8
