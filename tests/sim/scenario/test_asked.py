"""Which configurations a user asks for, by machine."""

import pytest

from sim.presets import load_preset
from sim.scenario.asked import ALL, asked_configurations
from sim.scenario.result import ALL_CONFIGURATIONS, CONFIGURATIONS, IN_SWITCH, LIBRARY, SOFTWARE


@pytest.mark.parametrize(
    ("preset", "overrides", "missing"),
    [
        ("h100_sxm", [], ()),
        ("mi300x", [], IN_SWITCH),
        ("t3_2024", [], (LIBRARY, *SOFTWARE, *IN_SWITCH)),
        ("t3_2024", ["link.topology=switch"], (LIBRARY, *IN_SWITCH)),
        ("t3_2024", ["link.topology=switch", "link.in_switch=true"], (LIBRARY,)),
    ],
)
def test_all_configurations_of_a_machine(preset, overrides, missing):
    machine = load_preset(preset, overrides)
    wanted = tuple(name for name in ALL_CONFIGURATIONS if name not in missing)
    assert asked_configurations([ALL], machine) == asked_configurations(["T3", ALL], machine) == wanted


def test_named_configurations_and_those_of_the_paper():
    machine = load_preset("t3_2024")
    assert asked_configurations(("FLUX", "T3"), machine) == ("FLUX", "T3")
    assert asked_configurations((), machine) == CONFIGURATIONS
