"""Which configurations a user asks for, by machine."""

import pytest

from sim.presets import load_preset
from sim.scenario.asked import ALL, asked_configurations
from sim.scenario.result import ALL_CONFIGURATIONS, CONFIGURATIONS, LIBRARY, SOFTWARE, SWITCH_CONFIGURATIONS
from sim.scenario.scenario import Scenario, check_scenario
from tracer.gemm.source import GemmProblem
from traces.errors import UserError


@pytest.mark.parametrize(
    ("preset", "overrides", "missing"),
    [
        ("h100_sxm", [], ()),
        ("mi300x", [], SWITCH_CONFIGURATIONS),
        ("t3_2024", [], (LIBRARY, *SOFTWARE, *SWITCH_CONFIGURATIONS)),
        ("t3_2024", ["link.topology=switch"], (LIBRARY, *SWITCH_CONFIGURATIONS)),
        ("t3_2024", ["link.topology=switch", "link.in_switch=true"], (LIBRARY,)),
    ],
)
def test_all_configurations_of_a_machine(preset, overrides, missing):
    machine = load_preset(preset, overrides)
    wanted = tuple(name for name in ALL_CONFIGURATIONS if name not in missing)
    assert asked_configurations([ALL], machine) == asked_configurations(["T3", ALL], machine) == wanted


@pytest.mark.parametrize(("gpus", "missing"), [(4, ()), (8, SWITCH_CONFIGURATIONS)])
def test_switches_of_several_nodes_do_not_add(gpus, missing):
    machine = load_preset("h100_sxm", ["network.node_gpus=4"])
    assert {*ALL_CONFIGURATIONS} - {*asked_configurations([ALL], machine, gpus=gpus)} == {*missing}


@pytest.mark.parametrize(
    ("preset", "gpus", "runs"),
    [("mi300x", 8, True), ("mi300x", 12, False), ("mi300x", 16, True), ("a100_80g", 72, False)],
)
def test_all_configurations_are_without_a_library_that_does_not_run_on_so_many_gpus(preset, gpus, runs):
    """It fills nodes of 8, at most 8 of them."""
    assert (LIBRARY in asked_configurations([ALL], load_preset(preset), gpus=gpus)) == runs


@pytest.mark.parametrize("name", SWITCH_CONFIGURATIONS)
def test_in_switch_configurations_of_several_nodes_are_refused(name):
    scenario = Scenario.of_library(load_preset("h100_sxm", ["network.node_gpus=2"]), GemmProblem(2048, 1024, 512), 4)
    with pytest.raises(UserError, match="node_gpus: found 2 for 4 GPUs, allowed for NVLS is one node"):
        check_scenario(scenario, [name])


def test_named_configurations_and_those_of_the_paper():
    machine = load_preset("t3_2024")
    assert asked_configurations(("FLUX", "T3"), machine) == ("FLUX", "T3")
    assert asked_configurations((), machine) == CONFIGURATIONS


def test_a_cache_that_keeps_what_arrives_is_refused_before_anything_runs():
    preset = load_preset("mi300x", ["msc.write_back=true"])
    scenario = Scenario.of_library(preset, GemmProblem(2048, 1024, 512), 4)
    with pytest.raises(UserError, match=r"msc.write_back: found true, allowed is false for joined GPUs"):
        check_scenario(scenario, ["Sequential"])
