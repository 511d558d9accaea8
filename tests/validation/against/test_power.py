"""Power and clocks of boards: what calibrates, and what the page says."""

from statistics import mean

import pytest

from sim.presets import load_preset
from sim.scenario.power import EXPONENT
from validation.against.power import TABLE, rows, table


def test_the_page_is_up_to_date():
    assert TABLE.read_text(encoding="utf-8") == table()


def test_the_energy_of_an_operation_is_the_mean_of_four_boards():
    chosen = {("H100 a", 700), ("H100 b", 700), ("H200 a", 700), ("H200 b", 700)}
    found = []
    for row in rows():
        if (row.board, row.limit_W) in chosen and row.dtype != "fp8":
            power = row.power
            voltage = (row.clock_MHz / power.knee_MHz) ** EXPONENT
            on_chip_W = (row.power_W - power.idle_W) / voltage - power.clock_W_per_GHz * row.clock_MHz / 1000
            found.append(on_chip_W / row.macs_per_s * 1e12)
    assert len(found) == 4 and load_preset("h100_sxm").machine.power.mac_pJ == pytest.approx(mean(found), abs=0.005)
    assert [f"{one:.2f}" for one in sorted(found)] == ["0.86", "0.99", "1.12", "1.34"]


def test_five_rows_of_an_a100_calibrate_and_nineteen_are_predicted():
    kinds = [row.kind for row in rows() if row.board == "A100 a"]
    assert (kinds.count("calibration"), kinds.count("prediction")) == (5, 19)


def test_a_clock_that_is_not_stated_follows_from_the_time():
    (row,) = [row for row in rows() if row.work == "8192 x 8192 x 8192" and row.board == "A100 a" and row.limited]
    assert row.clock_MHz == pytest.approx(1200 * 130.23 / 123.65)
    assert row.ours_W(row.ours_MHz) == pytest.approx(400, abs=0.1)
