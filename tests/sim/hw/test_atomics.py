"""Atomics on one address take turns (D12): the lanes of a warp, and the warps of a kernel."""

from collections import Counter

import numpy as np
import pytest

from sim.host.gpu import Gpu
from tests.support.lane_twin import lane_addresses
from tests.support.plain_records import kernel_view
from tests.support.programs import kernel, row, small_preset
from tracer.coalesce import most_lanes_at_one_address
from traces.schema import LINE_BYTES, Kind
from traces.units import whole_period_ps

BASE = 1 << 20
LANES = 32


def random_atomic(random):
    """An event of some lanes near BASE: adjacent, at a stride, or at listed addresses, many of them equal."""
    mask = int(random.integers(1, 1 << LANES))
    if random.random() < 0.5:
        count = bin(mask).count("1")
        return row(Kind.ATOMIC, mask=mask, addresses=(BASE + 4 * random.integers(0, 40, count)).tolist())
    return row(Kind.ATOMIC, mask=mask, base=BASE, stride=int(random.choice([0, 4, 64])))


@pytest.mark.parametrize("seed", range(20))
def test_lanes_at_one_address_are_those_of_the_twin(seed):
    one = random_atomic(np.random.default_rng(seed))
    lanes = Counter(lane_addresses(one.record, one.addresses))
    event, addresses = kernel_view(one.record.reshape(1))[0], np.array(one.addresses, np.uint64)
    base = 0 if one.addresses else BASE
    for line in {address // LINE_BYTES * LINE_BYTES for address in lanes}:
        expected = max(count for address, count in lanes.items() if address // LINE_BYTES * LINE_BYTES == line)
        assert most_lanes_at_one_address(event, base, addresses, line) == expected


def time_ps(warps, kind, per_clk, **fields):
    """Time of a kernel whose warps each do one atomic, on a line that is in L2."""
    gpu = Gpu(small_preset(f"l2.atomics_per_clk={per_clk}").machine)
    gpu.prefill(BASE, LINE_BYTES)
    return gpu.run_kernel(kernel([[[row(kind, base=BASE, **fields)] for _ in range(warps)]]), 0, None)


@pytest.mark.parametrize("kind", [Kind.ATOMIC, Kind.REDUCE])
@pytest.mark.parametrize("per_clk", [1.0, 0.5, 4.0])
def test_atomics_on_one_address_take_turns(kind, per_clk):
    clock_ps = whole_period_ps(small_preset().machine.l2.clock_MHz)
    fields = {"stride": 0, **({"slot": 0} if kind == Kind.ATOMIC else {})}
    few, many = (time_ps(warps, kind, per_clk, **fields) for warps in (2, 8))
    assert many - few == 6 * LANES * round(clock_ps / per_clk)


def test_atomics_on_other_addresses_do_not_wait():
    assert time_ps(8, Kind.REDUCE, 1.0) == time_ps(8, Kind.REDUCE, 0.0)
    assert time_ps(8, Kind.REDUCE, 0.0, stride=0) < time_ps(8, Kind.REDUCE, 1.0, stride=0)
