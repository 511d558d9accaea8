"""Counters of links, DMA engines and Tracker: what they count is what the plan moves, and it costs its energy."""

import pytest

from sim.counters import add_totals
from sim.energy import energy_of, load_energy
from sim.hw.request import Stream
from sim.run.one_gpu import simulate
from sim.view.energy_tables import configuration_energies
from tests.support.programs import small_preset
from tests.support.t3_cases import T3Case
from tracer.sequence import CommandSequence

CASE = T3Case(256, 144, 32, 4, explicit=False)
"""Rows of 288 bytes: tiles begin inside lines."""
D = 256 * 144 * 2


@pytest.fixture(scope="module")
def fused():
    return CASE.run("t3")[0]


def test_links_count_what_leaves_and_what_comes(fused):
    assert fused.totals["link.bytes"] == fused.totals["link.arrived_bytes"] == fused.link_bytes == 3 * D // 4
    assert fused.totals["link.packets"] * 128 > 3 * D // 4  # the ends of rows fill no line


def test_dma_engines_count_whole_sectors(fused):
    assert fused.totals["dma.read_bytes"] == fused.dram_bytes[Stream.COMM_READ] == 2 * D // 4
    assert fused.totals["dma.lines"] * 128 > 2 * D // 4
    assert fused.totals["dma.descriptors"] == fused.figures["dma_descriptors"] > 0


def test_the_tracker_counts_its_tiles(fused):
    tracked = CASE.chunks.tiles - len(CASE.chunks.span(0, 0))
    assert fused.totals["tracker.triggers"] == fused.totals["tracker.begun"] == tracked
    assert fused.totals["tracker.wavefronts"] == fused.figures["tracker_wavefronts"] == tracked  # of one warp each


def test_a_gpu_by_itself_has_no_such_units():
    alone = simulate(CommandSequence([CASE.source]), small_preset())
    joined = CASE.run("rs")[0]
    assert not {name.split(".")[0] for name in alone.totals} & {"link", "dma", "tracker"}
    assert {name.split(".")[0] for name in joined.totals} >= {"link", "dma", "tracker"}


def test_energy_of_links_and_engines(fused):
    energy = energy_of(fused.totals, CASE.machine.hbm.row_bytes, load_energy())
    units = energy.as_dict()["units"]
    assert units["link"]["bytes"] == 3 * D // 4 and units["link"]["uJ"] == pytest.approx(80e-6 * 3 * D / 4)
    assert units["dma"]["bytes"] == 2 * D // 4 and units["dma"]["uJ"] == pytest.approx(4e-6 * 2 * D / 4)


def test_a_configuration_is_the_sum_of_its_simulations(fused):
    gather = CASE.run("ag")[0]
    (energy,) = configuration_energies({"t3": fused, "ag": gather}, load_energy()).values()
    whole = add_totals([fused.totals, gather.totals])
    assert energy == energy_of(whole, CASE.machine.hbm.row_bytes, load_energy())
    assert whole["link.bytes"] == 2 * 3 * D // 4
