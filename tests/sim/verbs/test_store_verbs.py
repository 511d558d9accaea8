"""`t3sim store`: list, check and prune; and what `t3sim run` and `t3` say about results from the store."""

import csv
import json

import pytest
from click.testing import CliRunner

from sim.run.store import Store
from sim.verbs.store_check import store_check
from sim.verbs.store_list import store_list
from sim.verbs.store_prune import store_prune
from tests.support.accelsim_texts import kernel_text, write
from traces.command.cli import main

GEMM = ["run", "--gemm", "128x256x32", "--preset", "t3_2024"]
T3 = ["t3", "--kernel", "gemm:shape=128x256x32", "--gpus", "2", "--configuration", "Ideal-GEMM-RS-Overlap"]


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """A store of its own."""
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    return Store()


def shown(command, *arguments):
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_list(store):
    assert "0 entries" in shown(store_list)
    assert main([*GEMM, "--interval-ns", "500"]) == main(GEMM) == 0
    (store.folder / f"{'a' * 64}.npz").write_bytes(b"a checkpoint" * 100_000)
    text = shown(store_list)
    assert "3 entries" in text and "gemm_128x256x32" in text and "t3_2024" in text and "a state" in text
    found = json.loads(shown(store_list, "--json", "--last", "2"))
    assert found["entries"] == 3 and len(found["last"]) == 2 and found["max_bytes"] == 2 << 30
    _, names, *rows = csv.reader(shown(store_list, "--format", "csv").splitlines())
    sizes = {row[0]: int(row[names.index("kB")]) for row in rows if row}
    assert sizes == {entry.key[:12]: round(entry.size_bytes / 1000) for entry in store.entries()}
    gemm = next(entry for entry in found["last"] if entry["run"] == "gemm_128x256x32")
    assert len(gemm["code"]) == len(gemm["key"]) == 64 and gemm["time_ns"] > 0


def test_list_shows_short_names_of_the_first_kernels_of_a_trace(store, tmp_path):
    """Mangled names of a real trace have hundreds of characters, and a trace has thousands of kernels."""
    name = f"_ZN3app{60}{'a' * 60}E"
    for number in range(5):
        text = kernel_text([["0000 ffffffff 0 EXIT 0 0 0 "]]).replace("_Z4testPf", name)
        write(tmp_path, text, f"kernel-{number}.traceg")
    write(tmp_path, "".join(f"kernel-{number}.traceg\n" for number in range(5)), "kernelslist.g")
    assert main(["run", str(tmp_path), "--preset", "v100"]) == 0
    short = f"app::{'a' * 11}...{'a' * 17}"
    assert f" {short}, {short}, {short}, ... " in shown(store_list)
    assert json.loads(shown(store_list, "--json"))["last"][0]["run"] == ", ".join([name] * 5)


def test_check_and_prune(store, capsys):
    assert main(GEMM) == 0
    assert "1 results are whole, 0 were damaged" in shown(store_check)
    (entry,) = store.entries()
    entry.path.write_bytes(entry.path.read_bytes()[:-9])
    assert "damaged" in shown(store_list)
    assert json.loads(shown(store_check, "--json"))["removed"] == [entry.path.name]
    assert main(GEMM) == 0
    assert "0 entries removed, 1 are left" in shown(store_prune)
    assert json.loads(shown(store_prune, "--bytes", "0", "--json"))["removed"] == 1
    assert store.entries() == []


@pytest.mark.slow
def test_a_run_says_where_it_comes_from(store, tmp_path, capsys):
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    assert main([*GEMM, "-o", str(first)]) == 0
    assert "from the store" not in capsys.readouterr().out
    assert main([*GEMM, "-o", str(second)]) == 0
    assert "from the store" in capsys.readouterr().out
    assert first.read_bytes() == second.read_bytes()
    for arguments, from_store in (([], True), (["--fresh"], False), (["--keep-l2"], False), (["--line-trace"], False)):
        assert main([*GEMM, "--json", *arguments]) == 0
        assert json.loads(capsys.readouterr().out)["from_store"] is from_store, arguments
    assert len(store.entries()) == 2, "of a line trace nothing is kept"


@pytest.mark.slow
def test_the_gemm_of_a_scenario_is_that_of_a_run(store, capsys):
    """Where everything that decides them is equal."""
    assert main([*GEMM, "--json"]) == 0
    gemm_ns = json.loads(capsys.readouterr().out)["time_ns"]
    assert main([*T3, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["configurations"]["Ideal-GEMM-RS-Overlap"]["gemm_ns"] == gemm_ns
    assert main(T3) == 0
    assert "from the store: gemm, rs, ag" in capsys.readouterr().out
    assert main([*T3, "--set", "link.GB_per_s=75", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["from_store"] == ["gemm"]
