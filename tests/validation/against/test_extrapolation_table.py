"""`--accuracy`, what marks its results, and the committed table against whole runs."""

import json
import re

import pytest

import validation.against.extrapolation
from tests.support.programs import small_preset
from traces.command.cli import main
from traces.command.document import table_line
from validation.against.extrapolation import ACCURACY, KERNELS_DRAWN, TABLE, Case, drawn, outcome, report, table_row

MACHINE = [f"--set={value}" for value in ("cu.count=4", "l2.banks=4", "hbm.channels=2", "l2.bytes=262144")]
GEMM = "gemm:m=8192,n=2048,k=32,tile=64x64x32,warps=2x2"
LONG = ["run", "--preset", "t3_2024", *MACHINE, "--kernel"]
PERCENT = r"([-+.\d]+) %"
ROW_IN_PART = re.compile(
    rf"^\| .* \| ([\d.]+) \| ([\d.]+) \| [\d,.]+ \| [\d,.]+ \| {PERCENT} \| {PERCENT} \| {PERCENT} \| {PERCENT} \|",
    re.MULTILINE,
)


@pytest.mark.slow
def test_marked_wherever_it_is_shown(tmp_path, capsys):
    file = str(tmp_path / "r.h5")
    assert main([*LONG, GEMM, "--accuracy", "1%", "-o", file]) == 0
    shown = capsys.readouterr()
    assert "EXTRAPOLATED" in shown.out and "extrapolated_time_error" in shown.out
    assert "run whole" not in shown.err
    assert main(["show", file]) == 0
    shown = capsys.readouterr()
    assert "EXTRAPOLATED" in shown.out and "--accuracy 1%" in shown.out
    assert main(["show", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["extrapolation"]["extrapolated_to_workgroups"] == 4096 and found["options"]["accuracy"] == 0.01
    assert found["extrapolation"]["extrapolated_from_waves"] < found["extrapolation"]["extrapolated_to_waves"]


def test_a_whole_run_says_so_at_once(capsys):
    arguments = ["run", "--gemm", "256x256x64", "--preset", "t3_2024", "--json"]
    assert main([*arguments, "--accuracy", "1%"]) == 0
    shown = capsys.readouterr()
    assert "run whole: it has 0.0 waves of 160 workgroups, at least 20 are needed" in shown.err
    found = json.loads(shown.out)
    assert main([*arguments, "--accuracy", "exact"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert found["extrapolation"] == whole["extrapolation"] == {}
    assert found["time_ns"] == whole["time_ns"]


@pytest.mark.parametrize("accuracy", ["0", "0%", "-1%", "60%", "much", ""])
@pytest.mark.parametrize("verb", [[*LONG, GEMM], ["kernel", GEMM], ["model", "mega-gpt-2"]])
def test_accuracies_that_are_refused(verb, accuracy, capsys):
    assert main([*verb, "--accuracy", accuracy]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and f"--accuracy: found {accuracy!r}, allowed are exact and percentages" in shown.err


@pytest.mark.parametrize(
    ("option", "name"), [(["--checkpoint", "60"], "--checkpoint"), (["--line-trace"], "--line-trace")]
)
def test_what_does_not_go_with_it(option, name, capsys):
    assert main([*LONG, GEMM, *option, "--accuracy", "1%"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and f"{name}: found --accuracy 1%, allowed with it is --accuracy exact" in shown.err


@pytest.mark.slow
def test_rows_of_a_kernel_in_part_and_of_a_whole_one(monkeypatch):
    monkeypatch.setattr(validation.against.extrapolation, "load_preset", lambda name: small_preset("l2.bytes=262144"))
    part, whole = (outcome(Case(GEMM.replace("8192", m), "p")) for m in ("8192", "512"))
    ((waves, simulated, error, stated, traffic, stated_traffic),) = ROW_IN_PART.findall(table_line(table_row(part)))
    assert float(simulated) < float(waves)
    assert float(error) == pytest.approx(100 * (part.part[0] / part.whole[0] - 1), abs=0.01)
    assert part.kept() == (abs(float(error)) <= float(stated) and abs(float(traffic)) <= float(stated_traffic))
    assert whole.part == whole.whole and "all" in table_row(whole) and whole.kept()
    assert "1 of 2 simulated in part" in report([part, whole])


def test_the_kernels_are_drawn_with_the_seed():
    text = TABLE.read_text(encoding="utf-8")
    cases = list(drawn())
    assert len(cases) == len(set(cases)) == KERNELS_DRAWN
    assert all(f"| {case.text} | {case.preset} |" in text for case in cases)


def test_the_table_keeps_the_promise():
    """Of every kernel that was simulated in part, the errors are within the accuracy."""
    rows = ROW_IN_PART.findall(TABLE.read_text(encoding="utf-8"))
    assert len(rows) >= 5
    for waves, simulated, error, stated, traffic, stated_traffic in rows:
        assert float(waves) >= 20 and float(simulated) <= 0.8 * float(waves)
        assert abs(float(error)) <= 100 * ACCURACY and 0 < float(stated) <= 100 * ACCURACY
        assert abs(float(traffic)) <= 200 * ACCURACY and 0 < float(stated_traffic) <= 200 * ACCURACY
