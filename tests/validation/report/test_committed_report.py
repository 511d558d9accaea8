"""The committed report: one of its rows is simulated again."""

import pytest

from sim.presets import load_preset
from sim.scenario.result import IDEAL, SEQUENTIAL, T3
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
    found = simulate_scenario(Scenario(load_preset("t3_2024"), problem, DEFAULT_KERNEL, gpus), (SEQUENTIAL, T3, IDEAL))
    ours = [f"{found.runs[run].time_ps / PS_PER_US:.1f}" for run in ("gemm", "rs")]
    ours += [f"{found.speedup(name):.3f}" for name in (IDEAL, T3)]
    row = next(
        line for line in REPORT.splitlines() if line.startswith(f"| {SUBLAYER} | ")
    )  # the paper's table is first
    assert set(ours) <= {cell.strip() for cell in row.split("|")}
