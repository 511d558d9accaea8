"""What commands say of measurements is what the pages of validation say."""

import json
import re

import pytest
from click.testing import CliRunner

from sim.presets import load_preset, measured, presets
from sim.presets.measured import TABLE
from sim.verbs.collective import collective
from sim.verbs.kernel import kernel
from sim.verbs.presets import presets as list_presets
from sim.view.heading import measured_text
from tests.support.paths import ROOT
from validation.csv_file import read_csv

PAGES = ROOT / "validation" / "tables"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_every_row_is_of_a_machine():
    assert {row["preset"] for row in read_csv(TABLE)} <= {*presets()}


@pytest.mark.parametrize("row", [row for name in presets() for row in measured(name)], ids=lambda row: row.error)
def test_numbers_are_those_of_the_page(row):
    """Each figure with a decimal point is the absolute value of one of the page; other numbers are counts and sizes."""
    page = {*NUMBER.findall(PAGES.joinpath(row.page).read_text(encoding="utf-8"))}
    said = re.sub(r"T3|GPT-3|22 B|4 MiB", "", row.error)
    assert {*NUMBER.findall(said)} <= page


def test_a_machine_of_the_user_has_no_measurement(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('extends = "v100"\n')
    assert measured_text(load_preset(path)) == f"no time on {path} has been compared with a measurement"


def output(verb, *arguments):
    result = CliRunner().invoke(verb, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        (kernel, ("residual:rows=8,cols=64", "--preset=v100")),
        (collective, ("all_gather", "--gpus=2", "--bytes=4096", "--preset=v100")),
    ],
)
def test_commands_print_it_with_a_table_only(verb, arguments, tmp_path, monkeypatch):
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path))
    assert measured_text(load_preset("v100")) in output(verb, *arguments)
    for other in ("--format=csv", "--json"):
        assert "BERT" not in output(verb, *arguments, other)


def test_a_machine_has_its_own_rows_only():
    assert {row.preset for row in measured("a100_80g_halves")} == {"a100_80g_halves"}


def test_presets_list_it_too():
    assert measured_text(load_preset("v100")) in output(list_presets, "v100")
    rows = json.loads(output(list_presets, "v100", "--json"))["measured"]
    assert [(row["error"], row["page"]) for row in rows] == [tuple(row)[1:] for row in measured("v100")]
