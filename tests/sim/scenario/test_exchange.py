"""An exchange of a schedule as a run: its buffer, its time and its traffic."""

from itertools import pairwise

import pytest

from sim.presets import load_preset
from sim.scenario.exchange import buffer_of, exchange_run
from tracer.models.schedule import Exchange
from traces.errors import UserError


@pytest.mark.parametrize("gpus", [2, 3, 8])
@pytest.mark.parametrize("data_bytes", [1, 5000, 100_000, 1 << 20, 3 << 20])
def test_a_buffer_has_at_least_its_bytes_and_a_tile_for_each_gpu(gpus, data_bytes):
    source = buffer_of(data_bytes, gpus)
    assert source.tiles >= gpus
    assert data_bytes <= source.problem.output_bytes <= max(1.25 * data_bytes, data_bytes + gpus * 512)


@pytest.mark.parametrize(("gpus", "most"), [(8, 1 << 32), (6, (1 << 32) - (1 << 16))])
def test_a_buffer_of_a_plain_collective_has_so_many_bytes_at_most(gpus, most):
    assert buffer_of(most, gpus).problem.output_bytes == most
    with pytest.raises(UserError, match=f"bytes of a collective: found {most + 1}, allowed are 1 to {most} with plain"):
        buffer_of(most + 1, gpus)


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_larger_plain_collective_takes_longer_and_not_much_longer(gpus):
    """Its time rises with the size, and by less than the size, across all sizes of tiles."""
    preset = load_preset("t3_2024")
    sizes = [1 << shift for shift in range(10, 22)]
    times_ps = [exchange_run(preset, Exchange("all_reduce", size, gpus)).execute().time_ps for size in sizes]
    for smaller_ps, larger_ps in pairwise(times_ps):
        assert 0.99 * smaller_ps <= larger_ps <= 2 * smaller_ps
    link_ps = 2 * (gpus - 1) / gpus * sizes[-1] / 150e9 * 1e12
    assert link_ps < times_ps[-1] < 2 * link_ps


def test_an_all_to_all_moves_each_byte_once():
    preset = load_preset("t3_2024", ["link.topology=fully_connected"])
    result = exchange_run(preset, Exchange("all_to_all", 1 << 18, 4)).execute()
    assert result.exactly_once
    assert result.dram_bytes.tolist() == [0, 0, 1 << 18, 1 << 18]  # the own chunk is copied too
    assert result.link_bytes == 3 * (1 << 18) // 4


def test_a_send_moves_its_bytes_both_ways():
    result = exchange_run(load_preset("t3_2024"), Exchange("send_recv", 1 << 17, 2)).execute()
    assert result.exactly_once
    assert result.dram_bytes.tolist() == [0, 0, 1 << 17, 1 << 17]
    assert result.link_bytes == 1 << 17


def test_an_all_to_all_needs_a_link_between_all_gpus():
    with pytest.raises(UserError, match="topology ring of 4 GPUs: no link to the GPU 2 ahead"):
        exchange_run(load_preset("t3_2024"), Exchange("all_to_all", 1 << 18, 4)).execute()
