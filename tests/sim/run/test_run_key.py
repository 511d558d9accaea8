"""The key of a run: every value that decides a result changes it, and what is left out changes nothing."""

import pickle
import sys
from dataclasses import replace

import pytest
from msgspec import structs

from sim.collective.chunks import chunks_of, even_chunks
from sim.collective.library import tables
from sim.collective.own_plan import load_plan
from sim.hw.policy import MODULE
from sim.presets import Preset, load_preset
from sim.results.layout import run_digest
from sim.run.code import policy_key
from sim.run.gpus_run import CollectiveRun, FusedRun, SideBySideRun
from sim.run.policy_file import bound_file
from sim.run.run import KernelRun, gemm_run
from sim.scenario.collective import Collective
from sim.scenario.scenario import Scenario
from sim.spec import Arbiter
from tests.support.programs import small_preset
from tests.support.t3_cases import TILE, fp16_problem
from tracer.gemm.source import GemmSource
from tracer.sequence import CommandSequence
from traces.archive import open_archive
from traces.write import write_archive

SOURCE = GemmSource(fp16_problem(96, 96, 32), TILE)
PRESET = small_preset()
GPUS = {"preset": PRESET, "source": SOURCE, "chunks": even_chunks(9, 3)}
RUNS = {
    "gemm": gemm_run(PRESET, SOURCE),
    "collective": CollectiveRun(kind="reduce_scatter", **GPUS),
    "fused": FusedRun(arbitration=Arbiter.MCA, **GPUS),
    "side_by_side": SideBySideRun(kind="reduce_scatter", collective_cus=1, **GPUS),
}
CHANGES = {
    "gemm": {
        "source": CommandSequence([GemmSource(fp16_problem(96, 96, 64), TILE)]),
        "kernels": (0,),
        "flush_l2": False,
        "accuracy": 0.01,
        "interval_ps": 1000,
    },
    "collective": {
        "source": GemmSource(fp16_problem(96, 128, 32), TILE),
        "chunks": chunks_of((2, 3, 4)),
        "explicit": True,
        "kind": "all_gather",
        "update": True,
        "interval_ps": 1000,
    },
    "fused": {
        "source": GemmSource(fp16_problem(96, 96, 64), TILE),
        "chunks": chunks_of((2, 3, 4)),
        "explicit": True,
        "arbitration": Arbiter.ROUND_ROBIN,
        "interval_ps": 1000,
    },
    "side_by_side": {"kind": "all_gather", "collective_cus": 2, "interval_ps": 1000},
}
OTHER_VALUES = {
    "link": ("link.topology=fully_connected", "link.GB_per_s=7", "link.efficiency=0.5", "link.latency_ps=900000",
             "link.header_bytes=64", "link.egress_fifo=3", "link.credits=9", "link.in_switch=true"),
    "network": ("network.node_gpus=2", "network.GB_per_s=7", "network.efficiency=0.5", "network.latency_ps=900000",
                "network.header_bytes=64", "network.credits=9"),
    "tracker": ("tracker.entries=64", "tracker.ways=2", "tracker.wavefronts=7", "tracker.address_bits=50",
                "tracker.counter_bits=20", "tracker.granularity=wavefront", "tracker.latency_ps=77777",
                "tracker.count_at=service"),
    "dma": ("dma.engines=1", "dma.clock_MHz=500", "dma.lines_per_clk=0.25", "dma.outstanding=3", "dma.setup_ps=9999",
            "dma.policy=paced", "dma.start_ps=5555"),
    "mca": ("mca.threshold=3", "mca.strict=2", "mca.medium=3", "mca.loose=4", "mca.strict_from=0.45",
            "mca.medium_from=0.2", "mca.loose_from=0.05", "mca.age_limit_ps=12345"),
    "collective": ("collective.cus=1", "collective.workgroups=3", "collective.warps=2", "collective.unroll=2",
                   "collective.slices=2", "collective.launch_ps=777", "collective.step_ps=888",
                   "collective.library=nccl_a100", "collective.pulls=true", "collective.shared_bytes=64"),
    "power": ("power.limit_W=500", "power.idle_W=50", "power.clock_W_per_GHz=9", "power.mac_pJ=3",
              "power.dram_pJ_per_byte=50", "power.knee_MHz=777", "power.tensor_macs_per_clk=7"),
}  # fmt: skip
"""Unit -> every value of it, changed."""


def with_preset(run, *settings):
    return replace(run, preset=small_preset(*settings))


def outcome(run):
    """Everything that it found, without the machine and the code."""
    return run_digest(replace(run.execute(), preset=PRESET, code=""))


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in CHANGES.items() for field in fields])
def test_every_field_of_a_run_is_in_its_key(name, field):
    run = RUNS[name]
    assert replace(run, **{field: CHANGES[name][field]}).key != run.key


def test_all_values_of_the_units_that_may_be_left_out_are_tried():
    known = {field for field in PRESET.values() if field.partition(".")[0] in OTHER_VALUES}
    tried = {setting.partition("=")[0] for settings in OTHER_VALUES.values() for setting in settings}
    assert known - tried == {"collective.cache"}
    values = PRESET.values()
    changed = small_preset(*(setting for settings in OTHER_VALUES.values() for setting in settings)).values()
    assert [field for field in known if changed[field] == values[field]] == ["collective.cache"]


@pytest.mark.parametrize("name", RUNS)
def test_a_value_of_the_machine_is_in_the_key_exactly_where_it_is_read(name):
    run = RUNS[name]
    assert list(run.identity()["machine"]) == [field for field in PRESET.values() if run.reads(field)]
    left_out = {field.partition(".")[0] for field in PRESET.values() if not run.reads(field)}
    assert (
        left_out
        == {
            "gemm": {"link", "network", "tracker", "dma", "mca", "collective", "power"},
            "collective": {"power"},
            "fused": {"collective", "power"},
            "side_by_side": {"power"},
        }[name]
    )


@pytest.mark.parametrize("arbiter", ["fcfs", "mca", "mca_fixed"])
def test_what_the_key_of_a_gemm_leaves_out_changes_nothing(arbiter):
    run = with_preset(RUNS["gemm"], f"hbm.arbiter={arbiter}")
    settings = [one for unit in OTHER_VALUES.values() for one in unit]
    other = with_preset(run, f"hbm.arbiter={arbiter}", *settings, "collective.cache=allocate")
    assert other.key == run.key and outcome(other) == outcome(run)


@pytest.mark.parametrize("explicit", [False, True])
def test_what_the_key_of_a_fused_gemm_leaves_out_changes_nothing(explicit):
    run = replace(RUNS["fused"], explicit=explicit)
    other = with_preset(run, *OTHER_VALUES["collective"])
    assert other.key == run.key and outcome(other) == outcome(run)
    assert with_preset(run, "collective.cache=allocate").key != run.key


def test_names_and_sources_of_values_are_not_in_the_key():
    named = replace(RUNS["fused"], preset=Preset("other", "another title", PRESET.machine, {}))
    assert named.key == RUNS["fused"].key
    same = with_preset(RUNS["gemm"], f"l2.mshrs={PRESET.values()['l2.mshrs']}")  # an override by the same value
    assert same.preset.sources != PRESET.sources and same.key == RUNS["gemm"].key


def test_a_collective_sees_the_output_alone():
    """Whatever K; the machine decides."""
    case = Scenario(PRESET, fp16_problem(96, 96, 32), TILE, 3)
    other = replace(case, problem=fp16_problem(96, 96, 1 << 20))
    for name in ("rs", "rs_nmc", "ag"):
        assert other.run(name).key == case.run(name).key
    assert other.run("t3").key != case.run("t3").key


def test_one_gemm_is_the_same_run_whoever_asks(tmp_path):
    case = Scenario(PRESET, fp16_problem(96, 96, 32), TILE, 3)
    described = KernelRun(preset=PRESET, source=CommandSequence([case.source()]))
    assert case.run("gemm").key == described.key
    assert replace(case, explicit=True).run("gemm").key == described.key
    spelled = replace(case.problem, lda=case.problem.a.leading_dimension, c_address=case.problem.c.address)
    assert replace(case, problem=spelled).run("gemm").key == described.key


def test_the_code_is_in_the_key(monkeypatch):
    before = RUNS["gemm"].key
    monkeypatch.setattr("sim.run.run.code_key", lambda *_: "other")
    assert replace(RUNS["gemm"]).key != before


def test_the_reader_of_a_trace_is_part_of_its_code(tmp_path):
    write_archive(tmp_path / "a.h5", CommandSequence([SOURCE]))
    run = KernelRun(preset=PRESET, source=open_archive(tmp_path / "a.h5"))
    assert run.modules() == ("sim.run.run", "traces.archive")
    assert RUNS["gemm"].modules() == ("sim.run.run", "tracer.gemm.source", "tracer.sequence")


def test_a_policy_is_in_the_key_where_it_decides(monkeypatch):
    monkeypatch.setattr("sim.run.run.bound_file", lambda: "rule.py")
    monkeypatch.setattr("sim.run.run.policy_key", lambda path: f"one {path}")
    own = with_preset(RUNS["gemm"], "hbm.arbiter=user")
    keys = {run.key for run in (RUNS["gemm"], own)}
    monkeypatch.setattr("sim.run.run.policy_key", lambda path: f"other {path}")
    assert replace(own).key not in keys and replace(RUNS["gemm"]).key in keys
    assert own.reads("mca.threshold")  # a policy sees the channel's record


def test_the_text_of_a_policy_and_of_what_it_imports_is_hashed(tmp_path, monkeypatch):
    (tmp_path / "rule.py").write_text("from values import LIMIT\n\ndef pick(channel, now_ps):\n    return LIMIT\n")
    (tmp_path / "values.py").write_text("LIMIT = 1\n")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)  # another test may have bound one
    assert bound_file() == ""

    class Module:
        __file__ = str(tmp_path / "rule.py")

    monkeypatch.setitem(sys.modules, MODULE, Module)
    one = policy_key(bound_file())
    (tmp_path / "values.py").write_text("LIMIT = 2\n")
    assert one and policy_key(bound_file()) != one


def test_the_pieces_of_a_librarys_protocol_are_in_the_key(monkeypatch):
    """They are in no code and no value of the machine."""
    asked = Collective(load_preset("a100_80g"), "all_reduce", 4, 1 << 26, protocol="simple", channels=2)
    before, simple = asked.run().key, tables().protocol["simple"]
    for changed in ({"piece_bytes": simple.piece_bytes // 4}, {"slices": 1}):
        monkeypatch.setitem(tables().protocol, "simple", structs.replace(simple, **changed))
        assert asked.run().key != before
    monkeypatch.undo()
    assert asked.run().key == before


def test_what_a_plan_imports_is_in_the_key(tmp_path):
    text = "def distances(gpus):\n    return FAR\n\n\ndef fused_regions(chunks, gpu):\n    return []\n"
    text = f"from reach_of_plan import FAR\n\n\n{text}"
    (tmp_path / "plan.py").write_text(text)
    (tmp_path / "reach_of_plan.py").write_text("FAR = (1,)\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        own = load_plan(tmp_path / "plan.py")
    keys = [replace(run, own=own).key for run in (RUNS["fused"], RUNS["side_by_side"])]
    (tmp_path / "reach_of_plan.py").write_text("FAR = (1, 2)\n")
    assert not {*keys} & {replace(run, own=own).key for run in (RUNS["fused"], RUNS["side_by_side"])}


def test_runs_travel_to_other_processes(tmp_path):
    plan = "def distances(gpus):\n    return (1,)\n\n\ndef fused_regions(chunks, gpu):\n    return []\n"
    (tmp_path / "plan.py").write_text(plan)
    write_archive(tmp_path / "a.h5", CommandSequence([SOURCE]))
    runs = [
        *RUNS.values(),
        replace(RUNS["fused"], own=load_plan(tmp_path / "plan.py")),
        KernelRun(preset=PRESET, source=open_archive(tmp_path / "a.h5")),
    ]
    for run in runs:
        again = pickle.loads(pickle.dumps(run))
        assert (again.key, again.title, again.cost) == (run.key, run.title, run.cost)


def test_the_order_of_chosen_kernels_does_not_decide():
    """A kernel that is named twice does: a stored result would hide the mistake."""
    assert replace(RUNS["gemm"], kernels=(1, 0)).key == replace(RUNS["gemm"], kernels=(0, 1)).key
    assert replace(RUNS["gemm"], kernels=(0, 0)).key != replace(RUNS["gemm"], kernels=(0,)).key


def test_the_cost_is_that_of_the_chosen_kernels():
    large = GemmSource(fp16_problem(960, 960, 32), TILE)
    both = KernelRun(preset=PRESET, source=CommandSequence([SOURCE, large]))
    first, second = (replace(both, kernels=(number,)).cost for number in (0, 1))
    assert both.cost == first + second and second > 10 * first > 0


def test_titles_and_costs():
    assert RUNS["gemm"].title == "gemm_96x96x32 on t3_2024"
    assert len({run.title for run in RUNS.values()}) == len(RUNS)
    assert RUNS["side_by_side"].cost > RUNS["gemm"].cost > 0 and RUNS["fused"].cost > RUNS["gemm"].cost
