"""t3sim explain: claims are those of runs with the value changed, and are in the store afterwards."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from sim.collective.chunks import chunks_of
from sim.explain.changes import FASTER, HALF, LATENCIES, QUICKER, Change, assumed_changes, changed
from sim.explain.explain import Check, Explanation, _candidates, explain, waiting
from sim.explain.repeat import Answer, repeat_run, repeat_scenario
from sim.presets import load_preset, presets
from sim.presets.preset import OVERRIDE
from sim.results import open as open_results
from sim.results import write_results
from sim.run.run import KernelRun
from sim.run.shares import shares
from sim.run.store import Store, run_or_get
from sim.run.together import TogetherRun
from sim.scenario.archive import scenario_row, write_scenario
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.verbs.explain import explain_verb
from sim.view.explain_tables import show_explanation
from tests.support.paths import BINARIES, SMALL_TRACE, SMALL_TRACE_TEXT
from tests.support.programs import small_preset
from tests.support.schemas import check as check_schema
from tracer.accelsim.reader import open_accelsim
from tracer.gemm.raster import TileOrder
from tracer.gemm.source import GemmKernel
from tracer.kernels import make_kernel, make_kernels
from tracer.sequence import CommandSequence
from tracer.workloads import aligned_problem
from traces.archive import open_archive
from traces.errors import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    case = KernelRun(preset=small_preset(), source=CommandSequence([make_kernel("gemm:m=128,n=128,k=64")]))
    return run_or_get(case, Store(tmp_path_factory.mktemp("store"))).result


def invoke(*arguments):
    done = CliRunner().invoke(explain_verb, [*map(str, arguments), "--json"])
    if done.exception:
        raise done.exception
    return json.loads(done.stdout)


def test_changes_name_values_that_exist_and_peaks_that_grow(run):
    before, here = shares(run), run.preset.values()
    for change in FASTER:
        if not any(here[field] for field in change.factors):
            continue  # a unit that this machine lacks
        preset, values = changed(run.preset, change.factors)
        assert all(max(old, new) == pytest.approx(2 * min(old, new), abs=1) for old, new in values.values())
        assert all(preset.sources[field].kind == OVERRIDE for field in values)
        if before.get(change.unit):
            run.preset, kept = preset, run.preset
            assert shares(run)[change.unit] <= before[change.unit] * 1.001
            run.preset = kept


def test_only_assumed_values_are_doubted():
    preset = load_preset("t3_2024")
    doubted = list(assumed_changes(preset, gpus=4))
    assert len(doubted) > 5
    for change in doubted:
        assert preset.sources[change.title].kind in ("assumed", "borrowed") and change.factors == {change.title: HALF}
    assert all("link" not in change.title for change in assumed_changes(preset, gpus=1))


def test_the_network_is_doubted_and_tried_where_a_run_uses_it(run, monkeypatch):
    run = replace(run, preset=load_preset("t3_2024", ["network.node_gpus=2"]))
    for gpus, uses in ((1, False), (2, False), (4, True)):
        fields = [field for change in assumed_changes(run.preset, gpus) for field in change.factors]
        fields += [field for change in _candidates(run, gpus) for field in change.factors]
        assert any(field.startswith("network.") for field in fields) == uses


@pytest.mark.parametrize("name", list(presets()))
def test_every_assumed_value_can_be_halved(name):
    preset = load_preset(name)
    for change in (*assumed_changes(preset, gpus=4), LATENCIES, QUICKER):
        changed(preset, change.factors)


def test_a_change_that_does_not_fit_is_told(run):
    def refuses(preset):
        if preset is not run.preset:
            raise UserError("does not fit")
        return Answer(1000)

    found = explain(run, refuses, 2, 1, 1, lambda done, whole: None)
    assert [check.reason for check in found.helps] == ["does not fit"] * 2
    assert not found.hangs_on[0].matters


@pytest.mark.parametrize(
    ("saved", "word"), [(0.45, "sure"), (0.31, "sure"), (0.29, "partly"), (0.13, "partly"), (0.12, "not confirmed")]
)
def test_the_verdict_follows_from_the_saving(run, monkeypatch, saved, word):
    """Twice as fast saves a half at most. From 0.6 of that it is sure, from 0.25 of it a part of the truth."""
    monkeypatch.setattr("sim.explain.explain.bounded_by", lambda run: "DRAM")
    monkeypatch.setattr("sim.explain.explain.shares", lambda run: {"DRAM": 0.9, "L2": 0.3})

    def answers(preset):
        faster = preset.machine.hbm.clock_MHz > run.preset.machine.hbm.clock_MHz
        return Answer(round(1e6 * (1 - saved if faster else 1)))

    found = explain(run, answers, 2, 0, 1, lambda done, whole: None)
    assert found.sure.startswith(word) and found.sure.endswith("it would save 50%")
    assert found.helps[0].saves == pytest.approx(saved)


@pytest.mark.parametrize(("bound", "change"), [("latency (DRAM 30%)", LATENCIES), ("too few workgroups (2)", QUICKER)])
@pytest.mark.parametrize(
    ("saved", "faster_dram", "word"),
    [
        (0.31, 0.1, "sure: "),
        (0.29, 0.1, "partly: "),
        (0.12, 0.1, "not confirmed: "),
        (-0.1, 0.0, "not confirmed: "),
        (0.31, 0.4, "not confirmed: "),
    ],
)
def test_a_wait_is_sure_only_if_it_saves_much_and_no_unit_saves_more(
    run, monkeypatch, bound, change, saved, faster_dram, word
):
    """The same rule as for a unit."""
    monkeypatch.setattr("sim.explain.explain.bounded_by", lambda run: bound)
    monkeypatch.setattr("sim.explain.explain.shares", lambda run: {"DRAM": 0.3})
    machine = run.preset.machine

    def answers(preset):
        quicker = preset.machine.l2.latency_clk < machine.l2.latency_clk
        less = saved if quicker else faster_dram if preset.machine.hbm.clock_MHz > machine.hbm.clock_MHz else 0
        return Answer(round(1e6 * (1 - less)))

    found = explain(run, answers, 2, 0, 1, lambda done, whole: None)
    assert found.sure.startswith(word) and change in [check.change for check in found.helps]
    expected = f"but DRAM at twice its clock {faster_dram:.1%}" if faster_dram > saved else "it would save 50%"
    assert found.sure.endswith(expected)


def test_a_bound_is_not_checked_if_its_change_cannot_run(run, monkeypatch):
    monkeypatch.setattr("sim.explain.explain.bounded_by", lambda run: "latency (DRAM 30%)")

    def answers(preset):
        if preset.machine.l2.latency_clk < run.preset.machine.l2.latency_clk:
            raise UserError("does not fit")
        return Answer(1000)

    assert explain(run, answers, 2, 0, 1, lambda done, whole: None).sure == "not checked"


@pytest.mark.parametrize(
    ("unit", "counter", "limit"),
    [
        ("atomics", "l2.atomic_sectors", "l2.atomics_per_clk=1"),
        ("matrix pipes held up", "cu.tensor_held_ps", "cu.tensor_hold=0.5"),
        ("ports between partitions", "far.far_requests", ""),
        ("ports between partitions", "far.far_answers", ""),
    ],
)
def test_a_unit_without_a_share_is_tried_where_it_is_used(run, unit, counter, limit):
    """And where the machine has a limit: two units before it, the change of the bound before these."""
    idle = replace(run, preset=small_preset(*[limit] if limit else []))
    idle.totals = run.totals | {counter: 0}
    assert unit not in [change.unit for change in _candidates(idle, 1)]
    idle.totals = run.totals | {counter: 7}
    assert _candidates(idle, 1)[3].unit == unit
    idle.preset = small_preset()
    assert (unit in [change.unit for change in _candidates(idle, 1)]) != bool(limit)


@pytest.mark.parametrize(
    ("text", "preset", "settings", "saves"),
    [
        ("stream:flow=read,buffer_bytes=1048576", "t3_2024", ["dispatch.workgroup_ps=100000"], "sure: workgroups "),
        ("gemm:m=256,n=256,k=64,split_k=2", "h100_sxm", ["l2.atomics_per_clk=0.001"], "but atomics on one address "),
        ("gemm:m=1024,n=1024,k=1984", "t3_2024", [], "not confirmed: CUs and their ports twice"),
        ("stream:flow=read,buffer_bytes=4194304", "a100_80g_halves", ["l2.far_bytes_per_clk=1"], "but ports between "),
    ],
)
def test_what_counts_most_is_found_with_the_fewest_checks(text, preset, settings, saves, tmp_path):
    case = KernelRun(preset=load_preset(preset, settings), source=CommandSequence(make_kernels(text), text))
    found = explain(case.execute(), repeat_run(case.execute(), Store(tmp_path), None), 4, 0, 1, lambda *_: None)
    assert saves in found.sure and found.helps[0].saves > 0.3


def test_what_waits_is_the_sum_of_the_waiting_times(run):
    found = dict(waiting(run))
    assert found["warps, for data"] == pytest.approx(run.totals["cu.slot_stall_ps"] / run.time_ps)
    warps = run.totals["cu.workgroups"] * 64
    assert found["warps, for data"] < warps


def test_a_flush_after_the_kernel_waits_for_nobody():
    """All writes of this GEMM are the flush, which is not in its time."""
    kernels = CommandSequence([make_kernel("gemm:m=128,n=128,k=64")])
    flushed, kept = (
        KernelRun(preset=small_preset(), source=kernels, flush_l2=each).execute() for each in (True, False)
    )
    assert flushed.totals["hbm.occupancy"] > kept.totals["hbm.occupancy"]
    assert dict(waiting(flushed)) == pytest.approx(dict(waiting(kept)))


def test_a_run_is_explained_and_its_checks_are_in_the_store(run, tmp_path):
    write_results(tmp_path / "a.h5", run)
    found = invoke(tmp_path / "a.h5", "--checks", 2, "--assumed", 1)
    assert found["time_ns"] == run.time_ps / 1000
    assert len(found["helps"]) == 2 and len(found["assumed"]) == 1
    entries = [open_results(entry.path).run() for entry in Store().entries()]
    times = {entry.time_ps / 1000 for entry in entries}
    assert {check["time_ns"] for check in found["helps"] + found["assumed"] if check["time_ns"]} <= times
    for check in found["helps"]:
        assert check["saves"] == pytest.approx(1 - check["time_ns"] / found["time_ns"])


def test_a_trace_is_needed_and_must_be_the_same(tmp_path):
    case = KernelRun(preset=load_preset("v100"), source=open_archive(SMALL_TRACE))
    write_results(tmp_path / "a.h5", run_or_get(case, Store()).result)
    with pytest.raises(UserError, match="name it with --trace"):
        invoke(tmp_path / "a.h5", "--checks", 0)
    other = SMALL_TRACE.parent / "gemm_512x512x256.h5"
    with pytest.raises(UserError, match="its fingerprint differs"):
        invoke(tmp_path / "a.h5", "--trace", other, "--checks", 0)
    with pytest.raises(UserError, match="the archive imported from it"):
        invoke(tmp_path / "a.h5", "--trace", SMALL_TRACE_TEXT, "--checks", 0)
    assert invoke(tmp_path / "a.h5", "--trace", SMALL_TRACE, "--checks", 0, "--assumed", 0)["how_sure"] == "not checked"


def test_kernels_at_once_are_refused(tmp_path):
    sources = tuple(make_kernel("stream:flow=copy,buffer_bytes=65536") for _ in range(2))
    write_results(tmp_path / "a.h5", TogetherRun(preset=small_preset(), sources=sources, cus=(2, 2)).execute())
    with pytest.raises(UserError, match="at once"):
        invoke(tmp_path / "a.h5", "--checks", 0)


KERNEL = """\
-kernel name = {name}
-grid dim = (1,1,1)
-block dim = (32,1,1)
-binary version = 90
-accelsim tracer version = 5

#BEGIN_TB
thread block = 0,0,0
warp = 0
insts = 2
0050 ffffffff 0 STG.E 2 R2 R4 4 1 0x7f0000000000 4 0
0070 ffffffff 0 EXIT 0 0 0
#END_TB
"""


def test_lines_of_a_binary_for_a_trace_as_text(tmp_path):
    for number, name in enumerate(("bounded", "promised"), 1):
        (tmp_path / f"kernel-{number}.traceg").write_text(KERNEL.format(name=name))
    (tmp_path / "kernelslist.g").write_text("kernel-1.traceg\nkernel-2.traceg\n")
    case = KernelRun(preset=small_preset(), source=open_accelsim(tmp_path), kernels=(1,), interval_ps=1000)
    write_results(tmp_path / "a.h5", case.execute())
    asked = (tmp_path / "a.h5", "--trace", tmp_path, "--binary", BINARIES / "lines_sm90.cubin", "--checks", 0)
    found = invoke(*asked, "--assumed", 0)
    check_schema("explain", found)
    (kernel,) = found["by_line"]
    assert (kernel["kernel"], kernel["name"]) == (1, "promised")
    assert {(line["line"], line["store_sectors"]) for line in kernel["lines"]} == {(52, 4), (53, 0)}
    text = CliRunner().invoke(explain_verb, [*map(str, asked), "--assumed", "0"]).output
    assert "kernel 1: promised" in text and "kernel 0" not in text


@pytest.mark.parametrize("own_kernels", [False, True])
def test_a_scenario_is_explained_by_its_fused_run(own_kernels, tmp_path):
    kernel = GemmKernel(64, 64, 32, 2, 2)
    case = Scenario(small_preset("link.topology=switch"), aligned_problem(256, 256, 64), kernel, 4)
    if own_kernels:
        others = {"piece_kernel": kernel, "alone_kernel": replace(kernel, split_k=2)}
        case = replace(case, fused_kernel=replace(kernel, order=TileOrder.COLUMN), **others)
    whole = simulate_scenario(case, ["Sequential", "T3"])
    write_scenario(tmp_path / "a.h5", whole)
    with pytest.raises(UserError, match="replays no trace"):
        invoke(tmp_path / "a.h5", "--trace", SMALL_TRACE)
    found = invoke(tmp_path / "a.h5", "--checks", 1, "--assumed", 1)
    assert found["title"].startswith("T3: GEMM 256 x 256 x 64 on 4 GPUs")
    assert found["speedup"] == pytest.approx(whole.speedup("T3"))
    assert found["helps"][0]["speedup"] > 0
    text = CliRunner().invoke(explain_verb, [str(tmp_path / "a.h5"), "--checks", "1", "--assumed", "1"]).output
    assert "What would help (each was simulated again)" in text and "how sure: " in text


def test_a_scenario_is_repeated_with_its_own_options(monkeypatch):
    """Every run has the same key."""
    kernel = GemmKernel(64, 64, 32, 2, 2)
    others = {"fused_kernel": replace(kernel, order=TileOrder.COLUMN), "alone_kernel": replace(kernel, split_k=2)}
    case = Scenario(small_preset(), aligned_problem(256, 128, 64), kernel, 4, chunks_of([1, 3, 2, 2]), True, **others)
    whole, asked = simulate_scenario(case, ["Sequential", "T3"]), []

    def kept(scenario, names, store):
        asked.append((scenario, names))
        return whole

    monkeypatch.setattr("sim.explain.repeat.simulate_scenario", kept)
    answer = repeat_scenario(scenario_row(whole), "T3", None)(case.preset)
    assert answer == Answer(whole.configurations["T3"].time_ps, whole.speedup("T3"))
    ((scenario, names),) = asked
    assert names == ["Sequential", "T3"]
    assert {name: scenario.run(name).key for name in whole.runs} == {name: case.run(name).key for name in whole.runs}


def test_what_matters_most_comes_first(run):
    """A faster unit that saves most; an assumed value that changes most, in whatever direction."""
    times = iter([1000, 900, 700, 800, 990, 1300, 1100])  # unchanged, three units, three assumed values
    found = explain(run, lambda preset: Answer(next(times)), 3, 3, 1, lambda done, whole: None)
    assert [check.saves for check in found.helps] == pytest.approx([0.3, 0.2, 0.1])
    assert [check.saves for check in found.hangs_on] == pytest.approx([-0.3, -0.1, 0.01])


@pytest.mark.parametrize(
    ("bound", "units"),
    [
        ("L2", ["L2", "DRAM", "latency"]),
        ("latency (L2 30%)", ["latency", "L2", "DRAM"]),
        ("too few workgroups (3)", ["too few workgroups", "L2", "DRAM"]),
    ],
)
def test_what_tests_the_bound_is_tried_first(run, monkeypatch, bound, units):
    monkeypatch.setattr("sim.explain.explain.bounded_by", lambda run: bound)
    monkeypatch.setattr("sim.explain.explain.shares", lambda run: {"DRAM": 0.2, "L2": 0.3})
    assert [change.unit for change in _candidates(run, 1)[:3]] == units


@pytest.mark.parametrize(
    "options", [{}, {"flush_l2": False}, {"accuracy": 0.05}, {"kernels": (0,)}, {"interval_ps": 10_000}]
)
def test_a_run_is_repeated_with_its_own_options(options, monkeypatch):
    """The same key, so the same result; but no time series, which changes no time."""
    text = "gelu:rows=8,cols=64,bias=1,fused=0"  # two kernels
    case = KernelRun(preset=small_preset(), source=CommandSequence(make_kernels(text), text), **options)
    found = case.execute()
    asked = []

    def kept(description, store):
        asked.append(description)
        return SimpleNamespace(result=found)

    monkeypatch.setattr("sim.explain.repeat.run_or_get", kept)
    assert repeat_run(found, None, None)(found.preset) == Answer(found.time_ps)
    assert asked[0].key == replace(case, interval_ps=0).key


def test_values_of_a_change_are_shown_with_all_digits(capsys):
    """So that --set takes them."""
    values = {"l2.bytes": (6291456, 12582912), "link.efficiency": (0.25, 0.5)}
    check = Check(Change("twice", {}), values, Answer(1000))
    show_explanation(Explanation("L2", {}, Answer(1000), helps=[check]), load_preset("v100"))
    assert "l2.bytes 6291456 to 12582912, link.efficiency 0.25 to 0.5" in capsys.readouterr().out


@pytest.mark.parametrize(("preset", "tags"), [("v100", 8.0), ("t3_2024", 0.0)])
def test_a_faster_load_store_unit_also_takes_more_lines_of_few_sectors(preset, tags):
    (change,) = [each for each in FASTER if each.unit == "LSU"]
    cu = changed(load_preset(preset), change.factors)[0].machine.cu
    assert (cu.lsu_lines_per_clk, cu.lsu_tags_per_clk) == (2.0, tags)
