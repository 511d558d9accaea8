"""`t3sim run --extrapolate`, what marks its results, and the committed table against whole runs."""

import json
import re
from dataclasses import replace

import pytest

import validation.against.extrapolation
from tests.support.paths import SMALL_TRACE
from tests.support.programs import small_preset
from tracer.gemm.source import GemmProblem
from tracer.workloads import DEFAULT_KERNEL
from traces.command.cli import main
from traces.command.document import table_line
from validation.against.extrapolation import PROMISE, PROMISED_ERROR, TABLE, Case, cases, outcome, report, table_row

MACHINE = [f"--set={value}" for value in ("cu.count=4", "l2.banks=4", "hbm.channels=2", "l2.bytes=262144")]
GEMM = "gemm:m=8192,n=2048,k=32,tile=64x64x32,warps=2x2"
LONG = ["run", "--preset", "t3_2024", *MACHINE, "--kernel"]
EXTRAPOLATED_ROW = re.compile(r"^\| .* \| ([\d,]+) of ([\d,]+) \| .*? \| ([-+.\d]+) % \| ([.\d]+) % \|", re.MULTILINE)


@pytest.mark.slow
def test_marked_wherever_it_is_shown(tmp_path, capsys):
    file = str(tmp_path / "r.h5")
    assert main([*LONG, GEMM, "--extrapolate", "-o", file]) == 0
    shown = capsys.readouterr()
    assert "EXTRAPOLATED" in shown.out and "extrapolated_from_workgroups" in shown.out
    assert "run whole" not in shown.err
    assert main(["show", file]) == 0
    assert "EXTRAPOLATED" in capsys.readouterr().out
    assert main(["show", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["extrapolation"]["extrapolated_to_workgroups"] == 4096 and found["options"]["extrapolate"]


def test_a_whole_run_says_so(capsys):
    arguments = ["run", "--gemm", "256x256x64", "--preset", "t3_2024", "--json"]
    assert main([*arguments, "--extrapolate"]) == 0
    shown = capsys.readouterr()
    assert "run whole: it has 0.0 waves of 160 workgroups, at least 17 are needed" in shown.err
    found = json.loads(shown.out)
    assert main(arguments) == 0
    whole = json.loads(capsys.readouterr().out)
    assert found["extrapolation"] == whole["extrapolation"] == {}
    assert found["time_ns"] == whole["time_ns"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", str(SMALL_TRACE)], "--extrapolate: found TRACE"),
        ([*LONG, GEMM, "--kernels", "0"], "--extrapolate: found --kernels"),
        ([*LONG, GEMM, "--checkpoint", "60"], "--extrapolate: found --checkpoint"),
        ([*LONG, GEMM, "--line-trace"], "--extrapolate: found --line-trace"),
        ([*LONG, f"{GEMM},persistent=4"], "found a GEMM with persistent workgroups"),
        ([*LONG, "gemm:shape=256x256x128,split_k=2"], "found a GEMM with split-K"),
    ],
)
def test_what_does_not_go_with_it(arguments, said, capsys):
    assert main([*arguments, "--extrapolate"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and said in shown.err


@pytest.mark.slow
def test_rows_of_a_case_that_is_cut_and_of_one_that_is_not(monkeypatch):
    monkeypatch.setattr(validation.against.extrapolation, "load_preset", lambda name: small_preset("l2.bytes=262144"))
    kernel = replace(DEFAULT_KERNEL, tile_m=64, tile_n=64, warps_m=2, warps_n=2)
    cut, whole = (outcome(Case("x", "p", GemmProblem(m, 2048, 32), kernel)) for m in (8192, 512))
    ((simulated, of, error, uncertainty),) = EXTRAPOLATED_ROW.findall(table_line(table_row(cut)))
    figures = cut.cut.results.figures
    assert (simulated, of) == (f"{figures['extrapolated_from_workgroups']:,}", "4,096")
    assert float(error) == pytest.approx(100 * (cut.cut.results.time_ps / cut.whole.results.time_ps - 1), abs=0.01)
    assert 0 < float(uncertainty) <= 1
    assert whole.whole is whole.cut and "all" in table_row(whole)
    assert f"1 extrapolated: mean absolute error {abs(float(error)):.2f} %" in report([cut, whole])


@pytest.mark.slow
def test_a_committed_row_is_what_the_simulator_says():
    """Without its CPU times."""
    title = "2048 x 2048 x 256"
    (case,) = (case for case in cases() if case.title == title)
    (row,) = (line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {title} |"))
    assert row.split("|")[1:9] == table_line(table_row(outcome(case))).split("|")[1:9]


def test_the_table_keeps_the_promise():
    """Of every row that was extrapolated, the error lies within the promise."""
    text = TABLE.read_text(encoding="utf-8")
    assert all(f"| {case.title} | {case.preset} |" in text for case in cases())
    rows = EXTRAPOLATED_ROW.findall(text)
    assert len(rows) >= 5
    for simulated, whole, error, uncertainty in rows:
        assert int(simulated.replace(",", "")) <= 0.75 * int(whole.replace(",", ""))
        assert abs(float(error)) <= 100 * PROMISED_ERROR and float(uncertainty) <= 100 * PROMISE.time
