"""Figures are drawn from results archives; what they cannot draw they say."""

import pytest

from sim.presets import load_preset
from sim.results import open_results
from sim.units import GIGA
from tests.validation.paths import SMALL_TRACE
from validation.cli import main as t3sim
from validation.figures import dram_traffic


@pytest.fixture(scope="module")
def results_file(tmp_path_factory):
    """Results of a small trace, with a time series and without."""
    folder = tmp_path_factory.mktemp("results")
    run = ["run", str(SMALL_TRACE), "-o"]
    assert t3sim([*run, str(folder / "series.h5"), "--interval-ns", "200"]) == 0
    assert t3sim([*run, str(folder / "plain.h5")]) == 0
    return lambda name: str(folder / f"{name}.h5")


def test_traffic_over_time(results_file, tmp_path):
    path = tmp_path / "traffic.png"
    assert dram_traffic.main([results_file("series"), str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_is_drawn_is_all_the_traffic(results_file):
    results = open_results(results_file("series"))
    drawn = sum(int(results.series[name].sum()) for name in dram_traffic.STREAMS)
    headline = results.headline()
    assert drawn == 32 * (headline["dram_read_sectors"] + headline["dram_write_sectors_after_flush"])
    assert load_preset("v100").peaks().dram_bytes_per_s / GIGA == pytest.approx(898, abs=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plain", "x.png"], "--interval-ns"),
        (["none", "x.png"], "no such file"),
        (["series", "no/x.png"], "no such folder"),
    ],
)
def test_mistakes(arguments, words, results_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert dram_traffic.main([results_file(arguments[0]), arguments[1]]) == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
