"""T3 beside software: the published ratios, the means, and the committed table."""

import re
from types import SimpleNamespace

import pytest

from sim.scenario.result import ALL_CONFIGURATIONS, FLUX, T3
from validation.against import software
from validation.against.software import ALIKE, CASES, TABLE, over, published


def test_published_ratios_are_those_of_the_file():
    ratios = published()
    assert ratios["CoCoNet"]["inference"] == 1.23 and ratios["TP-NVLS"]["inference"] == 0.857
    assert set(ALIKE) <= set(ratios) and set(ALIKE.values()) <= set(ALL_CONFIGURATIONS)


def test_the_mean_over_sub_layers_is_geometric():
    def of(t3_ps, flux_ps):
        return SimpleNamespace(
            configurations={T3: SimpleNamespace(time_ps=t3_ps), FLUX: SimpleNamespace(time_ps=flux_ps)}
        )

    assert over({"a": of(100, 200), "b": of(300, 150)}, FLUX) == pytest.approx(1.0)


def test_every_sub_layer_has_every_configuration():
    text = TABLE.read_text(encoding="utf-8")
    for case in CASES:
        for name in case.scenarios:
            part = text.split(f"## {name} on {case.preset}")[1].split("##")[0]
            assert re.findall(r"^\| ([\w+-]+) \| [\d,.]+ \|", part, re.M)[: len(ALL_CONFIGURATIONS)] == [
                *ALL_CONFIGURATIONS
            ]


def test_software_needs_links_to_all_owners():
    assert all(software.SWITCH in case.changes for case in CASES)
