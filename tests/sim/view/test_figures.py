"""Figures are drawn from results archives; what they show is what was counted; what they cannot draw they say."""

import io
import sys

import numpy as np
import pytest

from sim import results
from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.results import Failure, ResultsArchive, write_runs
from sim.run.run import KernelRun
from sim.view.dram_traffic import STREAMS, draw_traffic
from sim.view.figures import draw
from sim.view.queue_occupancy import draw_queue
from sim.view.rates import BANDWIDTHS, bandwidth, draw_rates
from sim.view.roofline import draw_roofline, point
from sim.view.study_lines import draw_study
from sim.view.style import new_figure, save
from tests.support.paths import SMALL_TRACE
from tests.support.result_samples import sample_results
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from traces.command.cli import main as t3sim
from traces.errors import UserError
from traces.units import GIGA

POINTS = [(16, 2), (16, 3), (32, 2), (32, 3)]


def study():
    """Times of 11, 12, 13 and 14 ns over queue entries and pipeline depth, and one failure."""
    runs = []
    for number, (entries, depth) in enumerate(POINTS):
        run = sample_results()
        run.point = {"hbm.queue_entries": entries, "gemm.pipeline_depth": depth}
        run.kernels[-1].end_ps += 1000 * number
        runs.append(run)
    return [*runs, Failure({"hbm.queue_entries": 3, "gemm.pipeline_depth": 2}, "does not fit")]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """Results of a small GEMM with a time series, of a copy without, and of a study."""
    folder = tmp_path_factory.mktemp("results")
    gemm = ["run", "--gemm", "256x256x128", "--interval-ns", "200", "-o", str(folder / "gemm.h5")]
    assert t3sim(gemm) == 0
    assert t3sim(["run", str(SMALL_TRACE), "-o", str(folder / "copy.h5")]) == 0
    write_runs(folder / "study.h5", study())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.parametrize("kind", ["traffic", "queue", "rates", "roofline", "study"])
def test_every_figure_in_every_format(kind, ending, desk, tmp_path):
    result = desk / ("study.h5" if kind == "study" else "gemm.h5")
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        assert t3sim(["plot", kind, str(result), "-o", str(path)]) == 0
    content = paths[0].read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])
    assert content == paths[1].read_bytes()
    if ending == "svg":
        text = content.decode()
        assert ("time" in text or "GB/s" in text) and ("v100" in text or "hbm.queue_entries" in text)


def test_traffic_is_all_the_traffic(desk):
    found = results.open(desk / "gemm.h5").run()
    drawn = sum(int(found.series[name].sum()) for name in STREAMS)
    headline = found.headline()
    assert drawn == 32 * (headline["dram_read_sectors"] + headline["dram_write_sectors_after_flush"])
    assert load_preset("v100").peaks().dram_bytes_per_s / GIGA == pytest.approx(898, abs=1)
    axes = draw_traffic(found).axes[0]
    tops = axes.collections[-1].get_paths()[0].vertices[:, 1]
    assert tops.max() <= 898 * 1.001


def test_every_interval_is_drawn_with_its_height():
    """As wide as an interval, the first one too. A run of one interval has a figure."""
    for heights in ([7], [5, 0, 3]):
        run = sample_results()
        run.series = {name: np.zeros(len(heights), "i8") for name in [*STREAMS, "resident_workgroups"]}
        run.series |= dict.fromkeys(("dram_compute_read_bytes", "queue_columns"), np.array(heights))
        (area,) = draw_traffic(run).axes[0].collections
        line = draw_queue(run).axes[0].lines[0]
        ends_us = run.times_ps() / 1e6
        rates = np.array(heights) * 1000 / run.interval_ps
        for k, end_us in enumerate(ends_us):
            inside = end_us - ends_us[0] / 2
            for share, filled in ((0.99, rates[k] > 0), (1.01, False)):
                assert area.get_paths()[0].contains_point((inside, rates[k] * share)) == filled
        entries = [height / run.preset.machine.hbm.channels for height in heights]
        assert line.get_drawstyle() == "steps-pre" and line.get_xdata()[0] == 0
        assert list(line.get_ydata()) == [entries[0], *entries]


def test_queue_stays_under_its_depth(desk):
    found = results.open(desk / "gemm.h5").run()
    left, right = draw_queue(found).axes
    entries = left.lines[0].get_ydata()[1:]
    hbm = found.preset.machine.hbm
    assert entries.max() <= 2 * hbm.queue_entries  # v100 has a queue for reads and one for writes
    assert left.get_ylim()[1] >= 2 * hbm.queue_entries
    assert entries.sum() * hbm.channels == found.series["queue_columns"].sum()
    assert right.lines[0].get_ydata().max() == found.series["resident_workgroups"].max() > 0
    assert len(left.figure.legends[0].get_texts()) == 3


def test_bandwidths_are_bytes_over_time(desk):
    (kernel,) = results.open(desk / "gemm.h5").run().kernels
    expected = kernel.totals["hbm.read_columns"] * 32 / (kernel.time_ps * 1e-12) / 1e9
    assert bandwidth(kernel, BANDWIDTHS["DRAM reads"]) == pytest.approx(expected)
    assert bandwidth(kernel, BANDWIDTHS["DRAM writes"]) == 0  # all of it is the flush afterwards
    left, right = draw_rates(results.open(desk / "gemm.h5").run()).axes
    assert [bar.get_width() for bar in left.patches][3] == pytest.approx(expected)
    assert len(right.patches) == 4


def test_roofline_points(desk):
    run = results.open(desk / "gemm.h5").run()
    (kernel,) = run.kernels
    flop = 2 * 256 * 256 * 128
    per_byte, per_s = point(run, 0, "DRAM")
    assert per_byte == pytest.approx(flop / (2 * 256 * 128 * 2))  # A and B once; C is flushed later
    assert per_s == pytest.approx(flop / (kernel.time_ps * 1e-12))


@pytest.mark.parametrize(("dtype", "cost"), [("int8", 0.5), ("fp32", 16)])
def test_the_roof_is_that_of_the_data_type_and_padding_is_no_work(dtype, cost):
    preset = load_preset("a100_80g", ["cu.count=2"])
    kernel = make_kernel(f"gemm:m=100,n=128,k=256,dtype={dtype}", gpu_facts(preset.machine))
    run = KernelRun(preset=preset, source=CommandSequence([kernel])).execute()
    axes = draw_roofline(run).axes[0]
    peak = preset.peaks().tensor_flop_per_s / 1e12 / cost
    (roof,) = [path.vertices[0, 1] for lines in axes.collections for path in lines.get_paths()]
    points = [float(line.get_ydata()[0]) for line in axes.lines if line.get_linestyle() == "None"]
    assert roof == pytest.approx(peak)
    assert points == pytest.approx([2 * 100 * 128 * 256 / run.kernels[0].time_ps] * 2)


def test_study_lines():
    axes = draw_study(ResultsArchive(study()), "time_ns", "hbm.queue_entries", relative=True).axes[0]
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn == {"gemm.pipeline_depth = 2": [1, 11 / 13], "gemm.pipeline_depth = 3": [1, 12 / 14]}
    assert axes.get_xlabel() == "hbm.queue_entries" and "first / this" in axes.get_ylabel()
    plain = draw_study(ResultsArchive(study()), "l2_hit_rate", "gemm.pipeline_depth", relative=False).axes[0]
    assert [text.get_text() for text in plain.get_xticklabels()] == ["2", "3"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["traffic", "copy.h5", "-o", "x.png"], "--interval-ns"),
        (["queue", "copy.h5", "-o", "x.png"], "--interval-ns"),
        (["roofline", "copy.h5", "-o", "x.png"], "matrix operations"),
        (["traffic", "none.h5", "-o", "x.png"], "no such file"),
        (["traffic", "gemm.h5", "-o", "no/x.png"], "no such folder"),
        (["traffic", "gemm.h5", "-o", "x.jpg"], ".png, .svg, .pdf"),
        (["traffic", "gemm.h5", "-o", "x"], "no ending"),
        (["pie", "gemm.h5", "-o", "x.png"], "traffic"),
        (["rates", "study.h5", "--run", "9", "-o", "x.png"], "run: found 9"),
        (["rates", "study.h5", "--run", "4", "-o", "x.png"], "run 4 has failed"),
        (["study", "gemm.h5", "-o", "x.png"], "no field was swept"),
        (["study", "study.h5", "--over", "l2.ways", "-o", "x.png"], "--over: found 'l2.ways'"),
        (["study", "study.h5", "--figure", "time", "-o", "x.png"], "--figure: found 'time'"),
        (["rates", "gemm.h5"], "--output: missing"),
        (["rates", "gemm.h5", "gemm.h5", "-o", "x.png"], "takes one RESULT"),
        (["rates", "gemm.h5", "--table", "-o", "x.png"], "no --table"),
        (["rates", "gemm.h5", "--over", "l2.ways", "-o", "x.png"], "figure, over and relative are settings of study"),
        (["traffic", "gemm.h5", "--relative", "-o", "x.png"], "figure, over and relative are settings of study"),
        (["speedups", "study.h5", "--figure", "time_ns", "--table"], "figure, over and relative are settings of study"),
        (["speedups", "study.h5", "--run", "1", "--table"], "shows all runs"),
        (["study", "study.h5", "--run", "1", "-o", "x.png"], "shows all runs"),
        (["speedups", "gemm.h5", "-o", "x.png"], "gemm.h5: holds no configurations"),
        (["speedups", "study.h5", "--table"], "study.h5: holds no configurations"),
    ],
)
def test_mistakes(arguments, words, desk, monkeypatch, capsys):
    monkeypatch.chdir(desk)
    before = sorted(desk.iterdir())
    assert t3sim(["plot", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error, error
    assert sorted(desk.iterdir()) == before


def test_without_matplotlib_it_says_what_to_install(desk, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert t3sim(["plot", "rates", "before-any-file-is-read.h5", "-o", str(desk / "y.png")]) == 2
    assert "y.png: figures need matplotlib: pip install 't3sim[plots]'" in capsys.readouterr().err
    with pytest.raises(UserError, match="matplotlib"):
        draw("rates", [])


def test_save_refuses_other_formats(tmp_path):
    with pytest.raises(Exception, match=r"found \.jpg"):
        save(new_figure()[0], tmp_path / "x.jpg")


def scenario_archive():
    """A row of figures and two runs, the second one fused."""
    row, gemm, fused = sample_results(), sample_results(), sample_results()
    row.kernels, row.series, row.point = [], {}, {"simulation": "all"}
    row.figures = {"T3.speedup": 1.5, "T3-MCA.speedup": 1.6, **{f"figure_{number}": number for number in range(100)}}
    gemm.series, gemm.point = {}, {"simulation": "gemm"}
    gemm.kernels[0].name, fused.kernels[0].name = "plain", "fused"
    fused.point = {"simulation": "t3"}
    for run in (gemm, fused):
        run.series = {name: np.arange(11) for name in [*STREAMS, "queue_columns", "resident_workgroups"]}
        run.kernels[0].totals["cu.tensor_macs"] += 1
    return ResultsArchive([row, gemm, fused])


@pytest.mark.parametrize("kind", ["traffic", "rates"])
def test_the_fused_kernel_of_a_scenario_is_drawn_if_none_is_chosen(kind):
    assert "fused" in figure_texts(draw(kind, [scenario_archive()]))
    assert "plain" in figure_texts(draw(kind, [scenario_archive()], number=1))
    with pytest.raises(UserError, match=r"time series|no kernels"):
        draw(kind, [scenario_archive()], number=0)


def figure_texts(figure):
    return " ".join([figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)])


@pytest.mark.parametrize("theme", ["screen", "paper"])
@pytest.mark.parametrize("kind", ["traffic", "queue", "rates", "roofline"])
def test_nothing_is_cut(kind, theme):
    """Texts and legend lie within the figure, for long names of kernels too."""
    archive = scenario_archive()
    for kernel in archive.runs[2].kernels:
        kernel.name = "_ZN7cutlass6kernel" + "x" * 80
    figure = draw(kind, [archive], theme=theme)
    figure.savefig(io.BytesIO(), format="png")  # sets the layout
    width, height = figure.canvas.get_width_height()
    boxes = [
        text.get_window_extent() for axes in figure.axes for text in (axes.title, axes.xaxis.label, axes.yaxis.label)
    ]
    boxes = [box for box in boxes if box.width]  # an empty text has none
    boxes += [legend.get_window_extent() for legend in figure.legends]
    assert figure.legends and all(box.x0 >= -1 and box.y0 >= -1 for box in boxes)
    assert all(box.x1 <= width + 1 and box.y1 <= height + 1 for box in boxes)
    if kind == "rates":
        assert any("cutlass" in text.get_text() or "_ZN7" in text.get_text() for text in figure.legends[0].get_texts())
    if theme == "paper":
        assert figure.get_figwidth() == 3.35


def test_swept_numbers_stand_at_their_values():
    def axes_over(values):
        runs = [sample_results() for _ in values]
        for run, value in zip(runs, values, strict=True):
            run.point = {"x": value}
        return draw("study", [ResultsArchive(runs)]).axes[0]

    even = axes_over([1, 2, 4])
    assert list(even.get_xticks()) == [1, 2, 4] and even.get_xscale() == "linear"
    far = axes_over([1, 2, 64])
    assert far.get_xscale() == "log" and [text.get_text() for text in far.get_xticklabels()] == ["1", "2", "64"]
    names = axes_over(["ring", "switch", "fully_connected"])
    assert list(names.get_xticks()) == [0, 1, 2] and names.get_xscale() == "linear"
    many = axes_over([f"a long name of a value {number}" for number in range(6)])
    assert many.get_xticklabels()[0].get_rotation() == 90


@pytest.mark.filterwarnings("error")
def test_a_figure_of_zeros_has_an_axis():
    runs = study()[:2]
    for run in runs:
        run.figures = {"lost": 0}
    axes = draw_study(ResultsArchive(runs), "lost", None, relative=False).axes[0]
    assert list(axes.lines[0].get_ydata()) == [0, 0] and axes.get_ylim() == (0, 1)


def test_points_without_a_swept_field_are_no_numbers():
    runs = [sample_results() for _ in range(5)]
    for run, swept in zip(runs, [{"x": 1, "y": 2}, {"x": 1}, {"x": 3}, {"y": 7}, {}], strict=True):
        run.point = swept
    axes = draw("study", [ResultsArchive(runs)], over="x").axes[0]
    assert [(line.get_label(), list(line.get_xdata())) for line in axes.lines] == [("y = 2", [1]), ("_child1", [1, 3])]
    assert list(axes.get_xticks()) == [1, 3]


def test_amounts_have_a_unit_that_fits():
    run = sample_results()
    run.series = {name: np.full(11, 600_000 // 11) for name in STREAMS}
    (legend,) = draw_traffic(run).legends
    assert legend.get_texts()[0].get_text() == "GEMM reads, 600 KB"


def test_a_study_of_scenarios_shows_a_speed_up(capsys):
    rows = [scenario_archive().runs[0] for _ in range(3)]
    for row, cus in zip(rows, (1, 2, 4), strict=True):
        row.point = {"cu.count": cus}
    figure = draw("study", [ResultsArchive(rows)])
    assert figure.axes[0].get_ylabel() == "T3-MCA.speedup"
    with pytest.raises(
        UserError, match=r"--figure: found 'T3-MCA\.spedup'; did you mean T3-MCA\.speedup or T3\.speedup"
    ):
        draw("study", [ResultsArchive(rows)], figure="T3-MCA.spedup")


def test_a_kind_that_is_none_is_answered_with_the_nearest(capsys):
    assert t3sim(["plot", "trafic", "a.h5", "-o", "a.png"]) == 2
    assert "found 'trafic'; did you mean traffic? allowed are traffic, queue, rates" in capsys.readouterr().err
