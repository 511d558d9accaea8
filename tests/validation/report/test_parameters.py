"""The table of parameters is what the presets say now, and no parameter is missing from it."""

import pytest

from sim.presets import load_preset, presets
from validation.report import parameters


def test_committed_table_is_what_the_presets_say():
    committed = parameters.TABLE.read_text(encoding="utf-8")
    assert committed == parameters.table(), "run python -m validation.report.parameters"


@pytest.mark.parametrize("name", presets())
def test_every_value_stands_in_it_with_its_source(name):
    preset, rows = load_preset(name), {}
    for line in parameters.TABLE.read_text(encoding="utf-8").splitlines():
        row = line.strip("| ").split(" | ")
        rows.setdefault(row[0], []).append(row)
    for field, value in preset.values().items():
        source = preset.sources[field]
        found = [row for row in rows[f"`{field}`"] if row[2] == "all" or name in row[2].split(", ")]
        assert found == [[f"`{field}`", str(value), found[0][2], source.kind, source.source]]
