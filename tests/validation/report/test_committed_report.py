"""The committed report: one of its rows is simulated again."""

import pytest

from sim.presets import load_preset
from sim.scenario.result import IDEAL, IDEAL_NMC, T3, T3_MCA
from sim.scenario.scenario import Scenario, simulate_scenario
from tests.support.paths import ROOT
from tracer.workloads import DEFAULT_KERNEL, named_sublayer
from traces.units import PS_PER_US

REPORT = (ROOT / "validation" / "tables" / "report" / "report.md").read_text(encoding="utf-8")
SUBLAYER = "t-nlg/op/tp16"
"""The smallest of the paper's sixteen."""


@pytest.mark.slow
def test_a_row_of_the_paper_is_what_the_simulator_says():
    problem, gpus = named_sublayer(SUBLAYER)
    found = simulate_scenario(Scenario(load_preset("t3_2024"), problem, DEFAULT_KERNEL, gpus))
    times_us = [found.runs[run].time_ps / PS_PER_US for run in ("gemm", "rs", "ag")]
    speedups = [found.speedup(name) for name in (IDEAL, T3, T3_MCA, IDEAL_NMC)]
    row = next(line for line in REPORT.splitlines() if line.startswith(f"| {SUBLAYER} | "))
    cells = [cell.strip() for cell in row.strip("| ").split("|")]
    ours = [f"{value:.1f}" for value in times_us] + [f"{value:.3f}" for value in speedups]
    assert sorted(cells[1:8]) == sorted(ours)
