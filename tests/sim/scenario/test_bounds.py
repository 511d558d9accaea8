"""Bounds of a scenario: from a formula written again, never above what is simulated, shown before the simulation."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from sim.presets import load_preset
from sim.scenario.bounds import Bounds, bounds
from sim.scenario.result import SEQUENTIAL, T3, T3_MCA
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.verbs.t3 import t3
from tests.support.programs import small_preset
from tracer.gemm.source import GemmKernel
from tracer.workloads import aligned_problem


def test_the_work_at_the_peaks():
    case = Scenario(load_preset("t3_2024"), aligned_problem(2048, 2048, 512), GemmKernel(), 8)
    found = bounds(case)
    assert found.gemm_ps == pytest.approx(2 * 2048 * 2048 * 512 / (80 * 512 * 2 * 1.4e9) * 1e12, rel=1e-6)
    assert (found.gemm_unit, found.exchange_ps) == ("matrix pipes", int(7 / 8 * 2048 * 2048 * 2 / 150e9 * 1e12))
    assert found.sequential_ps == found.gemm_ps + 2 * found.exchange_ps and found.t3_ps == 2 * found.exchange_ps
    slower = bounds(replace(case, preset=load_preset("t3_2024", ["link.efficiency=0.5"])))
    assert slower.exchange_ps == pytest.approx(2 * found.exchange_ps)
    thin = bounds(replace(case, problem=aligned_problem(32, 8192, 512)))
    assert (thin.gemm_unit, thin.gemm_ps) == ("DRAM", int(512 * (32 + 8192) * 2 / 1024e9 * 1e12))


@pytest.mark.parametrize("link", ["ring", "switch", "fully_connected"])
def test_no_simulated_time_is_below_its_bound(link):
    case = Scenario(
        small_preset(f"link.topology={link}"), aligned_problem(320, 256, 64), GemmKernel(64, 64, 32, 2, 2), 3
    )
    found, result = bounds(case), simulate_scenario(case, [SEQUENTIAL, T3, T3_MCA])
    assert 0 < found.exchange_ps <= min(result.runs[name].time_ps for name in ("rs", "ag"))
    assert 0 < found.gemm_ps <= result.runs["gemm"].time_ps
    assert found.sequential_ps <= result.configurations[SEQUENTIAL].time_ps
    for name in (T3, T3_MCA):
        assert found.t3_ps <= result.configurations[name].time_ps


@pytest.mark.parametrize("link", ["ring", "switch", "fully_connected"])
@pytest.mark.parametrize(("gpus", "per_node"), [(4, 2), (5, 2), (3, 1), (6, 4)])
@pytest.mark.parametrize("card", [150, 20])
def test_no_time_over_nodes_is_below_its_bound(link, gpus, per_node, card):
    settings = (f"link.topology={link}", f"network.node_gpus={per_node}", f"network.GB_per_s={card}")
    preset = small_preset(*settings, "network.efficiency=1", "network.latency_ps=500000")
    case = Scenario(preset, aligned_problem(64 * gpus, 512, 64), GemmKernel(64, 64, 32, 2, 2), gpus)
    found = bounds(case)
    for name in ("rs", "ag", "t3"):
        run = case.run(name).execute()
        busy_ps = run.figures[f"{found.exchange_unit}_busy_ps"]
        assert 0.99 * found.exchange_ps <= busy_ps < run.time_ps
    assert card == 150 or found.exchange_unit == "network"


def test_what_crosses_nodes_goes_over_cards():
    """Of 8 GPUs in nodes of 2: all that a ring sends, 6 of 7 parts else; of the others one goes over links."""
    sent_bytes = 7 / 8 * 2048 * 2048 * 2
    for link, near, far in (("ring", 1, 1), ("switch", 1 / 7, 6 / 7), ("fully_connected", 1 / 7, 6 / 7)):
        settings = (f"link.topology={link}", "network.node_gpus=2", "network.efficiency=0.5")
        for card, unit, share, rate in ((10, "network", far, 5e9), (9000, "link", near, 150e9)):
            preset = load_preset("t3_2024", [*settings, f"network.GB_per_s={card}"])
            found = bounds(Scenario(preset, aligned_problem(2048, 2048, 512), GemmKernel(), 8))
            expected = (unit, pytest.approx(share * sent_bytes / rate * 1e12))
            assert (found.exchange_unit, found.exchange_ps) == expected and f"({unit})" in found.text()


@pytest.mark.parametrize(("link", "wires"), [("ring", 1), ("switch", 1), ("fully_connected", 3)])
def test_the_link_is_busy_for_what_it_sends(link, wires):
    """A switch has one wire for all ports of a GPU."""
    preset = small_preset(f"link.topology={link}", "link.efficiency=0.8")
    case = Scenario(preset, aligned_problem(512, 512, 64), GemmKernel(64, 64, 32, 2, 2), 4)
    result = case.run("ag").execute()
    sent_ps = result.link_bytes / wires / (preset.machine.link.GB_per_s * 0.8e9) * 1e12
    assert result.figures["link_busy_ps"] == pytest.approx(sent_ps, rel=0.02)


def test_a_run_on_many_gpus_starts_after_its_launch():
    """Rates and shares of a fused kernel have the same base as those of the GEMM alone: the time after the launch."""
    preset = small_preset("dispatch.launch_ps=1500000", "link.topology=ring")
    case = Scenario(preset, aligned_problem(256, 256, 64), GemmKernel(64, 64, 32, 2, 2), 4)
    starts_ps = {name: case.run(name).execute().kernels[0].start_ps for name in ("gemm", "t3")}
    assert starts_ps == {"gemm": 1_500_000, "t3": 1_500_000}


def test_they_are_shown_before_the_simulation():
    arguments = ["--kernel", "gemm:m=128,n=128,k=32,tile=64x64x32", "--gpus", "2"]
    shown = CliRunner().invoke(t3, arguments).stderr.splitlines()
    assert shown[0].startswith("Before the simulation: ")
    case = Scenario(load_preset("t3_2024"), aligned_problem(128, 128, 32), GemmKernel(64, 64, 32, 2, 2), 2)
    assert shown[:3] == bounds(case).text().splitlines()
    assert "Before the simulation" not in CliRunner().invoke(t3, [*arguments, "--json"]).stderr


@pytest.mark.parametrize("exchange_ps", [0, 999_949, 123_456_000_000_000])
def test_the_text_fits_a_terminal(exchange_ps):
    assert max(map(len, Bounds(123_456_000_000_000, "matrix pipes", exchange_ps).text().splitlines())) <= 80
