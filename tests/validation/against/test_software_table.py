"""T3 beside software: the published ratios, the means, and the committed figures and page."""

import pytest

from sim.scenario.result import (
    ALL_CONFIGURATIONS,
    FLUX,
    IDEAL,
    LIBRARY,
    SEQUENTIAL,
    SWITCH_CONFIGURATIONS,
    T3,
    T3_NVLS,
)
from sim.spec import Topology
from tracer.workloads import PAPER_CASES
from traces.errors import UserError
from traces.units import PS_PER_US
from validation.against import software
from validation.against.software import ALIKE, MACHINES, TABLE, Case, Figures, asked_cases, over, published

FOUND = software.read_figures()


def test_published_ratios_are_those_of_the_file():
    ratios = published()
    assert ratios["CoCoNet"]["inference"] == 1.23 and ratios["TP-NVLS"]["inference"] == 0.857
    assert set(ALIKE) <= set(ratios) and set(ALIKE.values()) <= set(ALL_CONFIGURATIONS)


def test_the_mean_over_sub_layers_is_geometric():
    def of(t3_ps, flux_ps):
        return {T3: Figures(t3_ps, 0, 0, 0, 0, 0), FLUX: Figures(flux_ps, 0, 0, 0, 0, 0)}

    assert over([of(100, 200), of(300, 150)], FLUX) == pytest.approx(1.0)
    assert over([of(100, 200)], T3_NVLS) is None


def test_cases_are_the_paper_s_and_three_models_on_every_machine():
    assert len(software.cases()) == len(MACHINES) * (len(PAPER_CASES) + 2 * len(software.TODAY))
    assert asked_cases(["mi300x/t-nlg/op/tp8", "t3_2024/t-nlg"])[:2] == [
        Case("mi300x", "t-nlg/op/tp8"),
        Case("t3_2024", "t-nlg/op/tp8"),
    ]
    with pytest.raises(UserError, match="--run: found 'h100', allowed is MACHINE or MACHINE/SUB-LAYER"):
        asked_cases(["h100"])


def test_the_page_is_made_of_the_figures():
    assert TABLE.read_text(encoding="utf-8") == software.table(FOUND)


def test_every_case_has_every_configuration_of_its_machine():
    assert list(FOUND) == software.cases()
    for case, figures in FOUND.items():
        missing = {"t3_2024": (LIBRARY,), "h100_sxm": (), "mi300x": SWITCH_CONFIGURATIONS}[case.machine]
        assert list(figures) == [name for name in ALL_CONFIGURATIONS if name not in missing]


def test_figures_obey_what_no_machine_can_break():
    for case, figures in FOUND.items():
        (problem, gpus), sequence = software.sub_layers()[case.sub_layer], figures[SEQUENTIAL]
        moved = problem.output_bytes * (gpus - 1) / gpus
        for name, one in figures.items():
            in_switch = name in SWITCH_CONFIGURATIONS or (name == LIBRARY and one.link_bytes < 1.5 * moved)
            least = problem.output_bytes * (gpus + 1) / gpus if in_switch else 2 * moved
            assert one.link_bytes >= 0.999 * least, (case, name)
            # A fused GEMM makes its tiles in another order, and most of its stores leave L2 alone.
            assert one.time_ps >= max(one.gemm_ps, one.on_cus_ps) and one.gemm_ps >= 0.99 * sequence.gemm_ps
        assert sequence.time_ps == sequence.gemm_ps + sequence.on_cus_ps
        assert figures[IDEAL].time_ps < sequence.time_ps


def test_a_fused_gemm_is_not_slower_than_gemm_and_transfer_one_after_the_other():
    """Too few credits of a link made it so (2048 where NVLink 4 needs 4,400)."""
    for case, figures in FOUND.items():
        (problem, gpus), link = software.sub_layers()[case.sub_layer], software.scenario(case).preset.machine.link
        links = gpus - 1 if link.topology == Topology.FULLY_CONNECTED else 1
        bytes_per_us = link.GB_per_s * link.efficiency * links * 1000
        transfer_us = problem.output_bytes * (gpus - 1) / gpus / bytes_per_us
        apart_us = figures[SEQUENTIAL].gemm_ps / PS_PER_US + transfer_us
        assert figures[FLUX].gemm_ps / PS_PER_US < 1.05 * apart_us, case


def test_software_has_links_to_all_owners():
    for machine in MACHINES:
        topology = software.load_preset(machine, MACHINES[machine]).machine.link.topology
        assert topology in (Topology.SWITCH, Topology.FULLY_CONNECTED)
