"""Real and synthetic traces on the machine that Accel-Sim simulated: the same sectors reach every level."""

import os
from pathlib import Path

import pytest

from sim.presets import load_preset
from sim.run.one_gpu import simulate
from tests.support.paths import ROOT
from tracer.accelsim.reader import open_accelsim
from validation.csv_file import read_csv

REFERENCES = ROOT / "validation" / "references"
DATA = os.environ.get("T3SIM_DATA", "")
CASES = {
    "gemm_512x512x256": REFERENCES / "accelsim_traces" / "gemm_512x512x256_sm70",
    "copy_512KiB": REFERENCES / "accelsim_traces" / "copy_512KiB_sm70",
    "flashinfer_prefill": Path(DATA, "real-traces", "sm80-v5-flashinfer-prefill"),
}
EXACT = {
    "l1_read_sectors": "l1.read_sectors",
    "l1_read_hits": "l1.read_hit_sectors",
    "l1_write_sectors": "l1.write_sectors",
    "l2_read_sectors": "l2.read_sectors",
    "l2_write_sectors": "l2.write_sectors",
    "dram_read_sectors": "hbm.read_columns",
}
"""Column of accelsim.csv -> our counter."""


def reference(case):
    return next(row for row in read_csv(REFERENCES / "accelsim.csv") if row["case"] == case)


PRESETS = {"flashinfer_prefill": "accelsim_a100"}
"""The machine that the reference run simulated, where it is not the QV100."""


@pytest.mark.parametrize("case", CASES)
def test_traffic_equals_accelsims_exactly(case):
    if not CASES[case].is_dir():
        pytest.skip(f"no {CASES[case].name}: T3SIM_DATA is {'set' if DATA else 'not set'}")
    results = simulate(open_accelsim(CASES[case]), load_preset(PRESETS.get(case, "accelsim_qv100")))
    (result,) = results.kernels
    expected = reference(case)
    found = {column: result.totals[counter] for column, counter in EXACT.items()}
    assert found == {column: int(expected[column]) for column in EXACT}
    written = result.totals["hbm.write_columns"] - result.totals["l2.flush_sectors"]
    assert written == int(expected["dram_write_sectors"])  # the stores are still in L2 when the kernel ends
    # Of the reads, those that found their sectors present or on their way: which of the two, timing decides.
    present = result.totals["l2.read_hit_sectors"] + result.totals["l2.read_merged_sectors"]
    assert present == int(expected["l2_read_hits"]) + int(expected["l2_read_mshr_merged"])
