"""`t3sim diff` and `t3sim merge`: statuses, tables, JSON; old versions become new ones; show of several runs."""

import json
from dataclasses import replace

import pytest

from sim import results
from sim.results import Failure, write_results, write_runs
from tests.support.paths import ROOT
from tests.support.result_samples import sample_results
from traces.command.cli import main

OLD = ROOT / "tests" / "sim" / "results" / "archives" / "results_v1.h5"


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Two archives that differ in one counter, and one of several runs."""
    monkeypatch.chdir(tmp_path)
    one, other = sample_results(), sample_results()
    other.kernels[0].totals["l2.read_sectors"] += 1
    other.kernels[0].units["l2"]["read_sectors"][1] += 1
    write_results("one.h5", one)
    write_results("other.h5", other)
    one.point, other.point = {"hbm.queue_entries": 32}, {"hbm.queue_entries": 64}
    write_runs("study.h5", [one, Failure({"hbm.queue_entries": 3}, "does not fit"), other])
    return tmp_path


def test_diff(desk, capsys):
    assert main(["diff", "one.h5", "one.h5"]) == 0
    assert capsys.readouterr().out == "no differences in 1 runs\n"
    assert main(["diff", "one.h5", "other.h5"]) == 1
    shown = capsys.readouterr().out
    assert "1 differences" in shown and "l2.read_sectors" in shown
    assert main(["diff", "one.h5", "other.h5", "--json"]) == 1
    (move,) = json.loads(capsys.readouterr().out)["moved"]
    assert (move["name"], move["after"] - move["before"], move["instances"]) == ("l2.read_sectors", 1, 1)


@pytest.mark.slow
def test_merge_keeps_the_order_and_renews_the_version(desk, capsys):
    assert main(["merge", "one.h5", str(OLD), "study.h5", "-o", "all.h5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"output": "all.h5", "runs": 5}
    found = results.open("all.h5")
    assert [number for number, _ in found.failures()] == [3]
    assert found.runs[1].totals["l1.read_sectors"] == results.open(OLD).runs[0].totals["l1.read_sectors"]
    assert main(["merge", str(OLD), "-o", "new.h5"]) == 0
    assert main(["diff", str(OLD), "new.h5"]) == 0


def test_merge_into_one_of_its_own(desk):
    assert main(["merge", "one.h5", "other.h5", "-o", "one.h5"]) == 0
    assert len(results.open("one.h5").runs) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["diff", "one.h5"], "OTHER"),
        (["diff", "one.h5", "none.h5"], "none.h5: no such file"),
        (["merge", "one.h5", "none.h5", "-o", "x.h5"], "none.h5: no such file"),
        (["merge", "one.h5", "-o", "no/x.h5"], "no such folder"),
        (["merge", "-o", "x.h5"], "RESULTS"),
        (["show", "study.h5", "--run", "7"], "run: found 7, allowed are 0 to 2"),
        (["show", "study.h5", "--run", "1"], "run 1 has failed: does not fit"),
        (["show", "study.h5", "--unit", "hbm"], "--run"),
    ],
)
def test_mistakes(arguments, words, desk, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error, error
    assert not (desk / "x.h5").exists()


def test_show_of_several_runs(desk, capsys):
    assert main(["show", "study.h5"]) == 0
    shown = capsys.readouterr().out
    assert "3 runs, 1 failed" in shown and "hbm.queue_entries" in shown and "does not fit" in shown
    assert main(["show", "study.h5", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert runs[1] == {"point": {"hbm.queue_entries": 3}, "failure": "does not fit"}
    assert runs[2]["l2_read_sectors"] == results.open("other.h5").runs[0].totals["l2.read_sectors"]
    assert main(["show", "study.h5", "--run", "2", "--unit", "hbm"]) == 0
    assert "bus_busy_ps" in capsys.readouterr().out


@pytest.mark.parametrize("version", [1, 2, 3])
def test_archives_of_older_versions_are_shown_without_what_they_did_not_count(version, desk, capsys):
    old = str(OLD.with_name(f"results_v{version}.h5"))
    assert main(["show", old, "--run", "0"]) == 0
    shown = capsys.readouterr().out
    assert "dram_read_sectors" in shown and "Share of each peak" not in shown and "lacks counters" in shown
    assert main(["show", old, "--run", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["shares"], found["bounded_by"], found["energy"]) == ({}, "", None)
    assert main(["explore", old, "-o", "old.html"]) == 0


@pytest.mark.parametrize("wrong", [(), ("GPU 1: a sector came twice of 1 tiles, the first is 3",)])
def test_show_prints_what_the_ledger_found(tmp_path, capsys, wrong):
    write_results(tmp_path / "a.h5", replace(sample_results(), wrong=wrong))
    assert main(["show", str(tmp_path / "a.h5")]) == 0
    shown = capsys.readouterr().out
    assert ("ledger: " in shown) == bool(wrong) and all(f"\nledger: {fault}\n" in shown for fault in wrong)
