"""`t3sim plot speedups`: cases of evaluations and of studies, their names, means, table and figure; what has none."""

import io
from itertools import pairwise
from statistics import geometric_mean

import pytest

from sim import results
from sim.results import Failure, ResultsArchive
from sim.scenario.result import CONFIGURATIONS, SEQUENTIAL
from sim.view.speedup_cases import mean_speedups, speedup_cases
from sim.view.speedups import WIDEST_IN, draw_speedups
from tests.support.result_samples import sample_results
from traces.command.cli import main

SHAPE = ["--kernel", "gemm:m=256,n=256,k=64", "--gpus", "2"]
SHOWN = [name for name in CONFIGURATIONS if name != SEQUENTIAL]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """An evaluation, one without Sequential, and a study over the speed of the links."""
    folder = tmp_path_factory.mktemp("speedups")
    assert main(["t3", *SHAPE, "-o", str(folder / "one.h5")]) == 0
    assert main(["t3", *SHAPE, "--configuration", "T3", "-o", str(folder / "t3.h5")]) == 0
    (folder / "study.toml").write_text(
        'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\nt3.gpus = 2\n'
        't3.configurations = ["Sequential", "T3"]\n[axes]\nlink.GB_per_s = [20.0, 150.0]\n'
    )
    assert main(["study", str(folder / "study.toml"), "-o", str(folder), "--workers", "0"]) == 0
    next(folder.glob("study-*.h5")).rename(folder / "study.h5")
    return folder


@pytest.mark.slow
def test_cases_of_both_kinds_of_archive(desk):
    one, study = results.open(desk / "one.h5"), results.open(desk / "study.h5")
    cases = speedup_cases([one, study])
    titles = [case.title for case in cases]
    assert titles == [
        "256 x 256 x 64\n2 GPUs",
        *(f"256 x 256 x 64\n2 GPUs\nlink.GB_per_s = {x}" for x in (20, 150)),
    ]
    assert list(cases[0].speedups) == SHOWN and list(cases[1].speedups) == ["T3"]
    assert cases[0].speedups["T3-MCA"] == one.runs[0].figures["T3-MCA.speedup"]
    assert cases[2].sequential_ns == cases[0].sequential_ns < cases[1].sequential_ns  # 150 GB/s is the preset's
    means = mean_speedups(cases)
    assert means["T3"] == pytest.approx(geometric_mean([case.speedups["T3"] for case in cases]))
    assert means["T3-MCA"] is None  # the study has none


def test_cases_that_look_the_same_are_told_apart(desk):
    one = results.open(desk / "one.h5")
    other = ResultsArchive(one.runs, path="elsewhere/two.h5")
    assert [case.title.splitlines()[-1] for case in speedup_cases([one, other])] == ["one", "two"]
    named = sample_results()
    named.point, named.figures = {"kernel.workload": "t-nlg/fc2/tp8"}, one.runs[0].figures
    first, second = speedup_cases([one, ResultsArchive([named, Failure({}, "does not fit")])])
    assert first.title.splitlines()[-1] == "t3_2024" and second.title == "FC-2 TP 8\nt-nlg\nv100"


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_bytes_each_time(ending, desk, tmp_path):
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        assert main(["plot", "speedups", str(desk / "one.h5"), str(desk / "study.h5"), "-o", str(path)]) == 0
    content = paths[0].read_bytes()
    assert content == paths[1].read_bytes() and content.startswith({"png": b"\x89PNG", "svg": b"<?xml"}[ending])
    if ending == "svg":
        mean = mean_speedups(speedup_cases([results.open(desk / name) for name in ("one.h5", "study.h5")]))["T3"]
        text = content.decode()
        assert f"T3, geomean {mean:.3f}" in text and "T3-MCA, geomean" not in text and ">T3-MCA<" in text


def test_table(desk, capsys):
    assert main(["plot", "speedups", str(desk / "one.h5"), "--table"]) == 0
    shown = capsys.readouterr().out
    figures = results.open(desk / "one.h5").runs[0].figures
    assert "256 x 256 x 64 2 GPUs" in shown and "wrote" not in shown and "geomean" not in shown
    assert all(name in shown and f"{figures[f'{name}.speedup']:.4g}" in shown for name in SHOWN)
    assert main(["plot", "speedups", str(desk / "study.h5"), "--table"]) == 0
    assert "geomean" in capsys.readouterr().out


def test_without_sequential_there_is_nothing_to_compare_with(desk, capsys):
    assert main(["plot", "speedups", str(desk / "one.h5"), str(desk / "t3.h5"), "--table"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "t3.h5: speed-ups are over Sequential, which was not simulated" in said.err


def test_labels_say_only_what_differs():
    from_titles = [f"256 x 256 x 64\n4 GPUs\nhbm.queue_entries = {entries}\nlink.GB_per_s = 20" for entries in (16, 32)]
    beside = {"geomean,\npublished": {"T3": 1.2}, "largest": {"T3": 1.6}}
    figure = draw_speedups(from_titles, {"T3": [1.5, 1.6]}, {"T3": 1.55}, beside)
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == ["queue_entries = 16", "queue_entries = 32", "geomean", "geomean,\npublished", "largest"]
    assert axes.get_title().splitlines() == [
        "Speed-ups over Sequential",
        "256 x 256 x 64, 4 GPUs, GB_per_s = 20",
        "The paper has numbers for all cases together (published), not for single ones",
    ]
    heights = [bar.get_height() for bar in axes.containers[0]]
    assert heights == pytest.approx([0.5, 0.6, 0.55, 0.2, 0.6])
    assert all(text.get_rotation() == 0 for text in axes.get_xticklabels())
    many = draw_speedups([f"{name}\n{'a long label ' * 3}{name}" for name in range(20)], {"T3": [1.5] * 20}, {})
    assert many.axes[0].get_xticklabels()[0].get_rotation() == 90 and many.get_figwidth() == WIDEST_IN


def test_labels_of_cases_do_not_touch():
    titles = [f"{gpus} GPUs\nlink.GB_per_s = {rate}" for gpus in (2, 4) for rate in (75, 150, 600)]
    figure = draw_speedups(titles, {"T3": [1.2] * len(titles)}, {"T3": 1.2})
    figure.savefig(io.BytesIO(), format="png")  # sets the layout
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels()]
    assert len(boxes) == len(titles) + 1
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
