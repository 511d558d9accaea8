"""`t3sim show --energy`: a table by unit, the same in JSON, another preset or a file, mistakes on one line."""

import json

import pytest

from sim.energy import energy_of, load_energy
from sim.results import write_results
from tests.support.result_samples import sample_results
from traces.command.cli import main


@pytest.fixture
def result(tmp_path):
    path = tmp_path / "result.h5"
    write_results(path, sample_results())
    return str(path)


def shown_json(capsys, *arguments):
    assert main(["show", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["energy"]


def test_table(result, capsys):
    assert main(["show", result, "--energy", "gpujoule_k40"]) == 0
    shown = capsys.readouterr().out
    assert "gpujoule_k40" in shown
    for unit in ("dram", "l2", "l1", "shared", "noc", "link", "dma", "mac", "all"):
        assert f"\n{unit} " in shown


def test_json_is_what_the_counters_say(result, capsys):
    results = sample_results()
    totals, row_bytes = results.totals, results.preset.machine.hbm.row_bytes
    assert shown_json(capsys, result) == energy_of(totals, row_bytes, load_energy()).as_dict()
    other = shown_json(capsys, result, "--energy", "gpujoule_k40")
    assert other == energy_of(totals, row_bytes, load_energy("gpujoule_k40")).as_dict()


def test_an_unknown_name_is_a_mistake(result, capsys):
    assert main(["show", result, "--energy", "hbm5"]) == 2
    assert "allowed are gpujoule_k40, hbm2_12nm" in capsys.readouterr().err
