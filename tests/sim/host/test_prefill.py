"""Copies from the host: those that are larger than L2 leave what they would if every line were put in, at once."""

import numpy as np
import pytest

import sim.host.gpu
from sim.host.gpu import Gpu
from sim.host.prefill import even_bytes, prefill_ranges
from sim.hw.request import LINE_BYTES
from sim.machine.engine import prefill_l2
from sim.run.one_gpu import simulate
from tests.support.programs import kernel, load, small_preset, store
from tracer.sequence import CommandSequence
from traces.errors import UserError
from traces.source import Prefill

TINY = ("l2.bytes=32768", "l2.ways=4")
MACHINES = [(*TINY,), (*TINY, "l2.index=hash", "hbm.index=hash"), ("l2.bytes=98304", "l2.ways=4", "hbm.channels=1")]


def tags(gpu):
    """What lies where in L2, and the order in which it goes. Touch numbers count from the least of a set."""
    sets = gpu.node.l2_sets
    ages = sets["block"]["age"].reshape(len(sets), -1)
    order = np.argsort(ages, axis=1, kind="stable")
    return sets["low"].copy(), sets["block"]["high"].copy(), sets["way"].copy(), order


def prefilled(machine, before, copy, whole):
    gpu = Gpu(machine)
    for address, size_bytes in before:
        prefill_l2(gpu.node, address, address + size_bytes)
    address, size_bytes = copy
    if whole:
        prefill_l2(gpu.node, address - address % LINE_BYTES, address + size_bytes)
    else:
        gpu.prefill(address, size_bytes)
    return tags(gpu)


@pytest.mark.parametrize("overrides", MACHINES, ids=range(len(MACHINES)))
@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_out_makes_no_difference(overrides, seed):
    random = np.random.default_rng(seed)
    machine = small_preset(*overrides).machine
    large = machine.l2.bytes
    address, size_bytes = int(random.integers(0, 8 * large)), int(random.integers(4 * large, 12 * large))
    before = [
        (int(a) * LINE_BYTES, int(random.integers(1, 2 * large))) for a in random.integers(0, 20 * large, 3) // 128
    ]
    before.append((address // LINE_BYTES * LINE_BYTES, large // 3))  # lines of the copy are there already
    assert sum(end - first for first, end in prefill_ranges(machine, address, size_bytes)) < size_bytes
    found, expected = (prefilled(machine, before, (address, size_bytes), whole) for whole in (False, True))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("overrides", MACHINES, ids=range(len(MACHINES)))
def test_blocks_fill_all_sets_evenly(overrides):
    """An aligned block per way fills an empty L2 to the last way, whatever the map."""
    machine = small_preset(*overrides).machine
    gpu, block = Gpu(machine), even_bytes(machine)
    prefill_l2(gpu.node, 5 * block, (5 + machine.l2.ways) * block)
    valid = gpu.node.l2_sets["way"]["valid"][:, : machine.l2.ways]
    assert (valid == 15).all()


@pytest.mark.parametrize("copy", [(0, 1 << 36), (12345, (1 << 62) + 7), ((1 << 62) + 99, (1 << 62) - 200)])
def test_a_copy_of_any_size_costs_a_few_times_l2(copy, monkeypatch):
    machine, ranges = small_preset().machine, []
    monkeypatch.setattr(sim.host.gpu, "prefill_l2", lambda node, first, end: ranges.append((first, end)))
    Gpu(machine).prefill(*copy)
    assert sum(end - first for first, end in ranges) <= 6 * machine.l2.bytes
    assert ranges[0][0] == copy[0] - copy[0] % LINE_BYTES and ranges[-1][1] == sum(copy)


def test_results_after_a_huge_copy_are_those_of_its_end():
    size_bytes, reader = 1 << 40, kernel([[[load((1 << 40) - 4096 + 128 * k) for k in range(8)]]])
    (result,) = simulate(CommandSequence([Prefill(0, size_bytes), reader]), small_preset()).kernels
    assert result.totals["hbm.read_columns"] == 0 and result.totals["l2.read_hit_sectors"] > 0


def test_a_copy_beyond_the_bits_of_an_address_is_found_again():
    far, reader = 1 << 60, kernel([[[load((1 << 60) + 128 * k) for k in range(8)]]])
    (result,) = simulate(CommandSequence([Prefill(far, 4096), reader]), small_preset()).kernels
    assert result.totals["hbm.read_columns"] == 0


def test_a_range_that_is_none():
    source = kernel([[[store(0)]]])
    for copy, words in (
        (Prefill(-1, 4), "address of a copy: found -0x1"),
        (Prefill(4, -1), "bytes of a copy: found -1"),
    ):
        with pytest.raises(UserError, match=words):
            simulate(CommandSequence([copy, source]), small_preset())
