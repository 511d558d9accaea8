"""A profile on a machine: what is simulated, measured beside simulated times, and what overlap would buy."""

import json

import pytest
from click.testing import CliRunner

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from sim.run.library_run import BARE_PS
from sim.run.runner import run_all
from sim.run.store import VARIABLE, Store, run_or_get
from sim.scenario.exchange import exchange_run
from sim.scenario.profile import UNKNOWN, ProfileScenario, compared, overlapped, speedup
from sim.scenario.result import LIBRARY, NVLS, SEQUENTIAL, T3
from sim.scenario.scheduled import assemble_schedule
from sim.verbs.profile import profile as verb
from tests.support.profiles import kernel, layer, nccl, operator, write_profile
from tests.support.schemas import check
from tracer.kernels import make_kernels
from tracer.models.schedule import Exchange
from tracer.profile.kineto import read_profile
from traces.errors import UserError

GEMM, NORM = "gemm:m=512,n=512,k=256,dtype=bf16", "layernorm:rows=512,cols=512,stats=true,library=torch"
ALL_REDUCE = Exchange("all_reduce", 512 * 512 * 2, 4)
GPU_MEASURED_NS = 38_000
"""Measured time of the GEMM and its all-reduce in `layer`."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


def _scenario(tmp_path, events, preset="h100_sxm", gpus=4, **options):
    profile = read_profile(write_profile(tmp_path / "p.json", events, gpus=gpus))
    return ProfileScenario(load_preset(preset), profile, **options)


def _result(scenario, store):
    runs = scenario.runs()
    outcomes = run_all(runs, store, workers=1)
    assert not outcomes.failed and not outcomes.lost
    return assemble_schedule(scenario, {run.key: outcomes.result(run) for run in runs})


@pytest.fixture(scope="module")
def result(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    return _result(_scenario(folder, layer(), configurations=(T3, LIBRARY)), store)


def test_calls_of_the_same_work_are_one_block_and_a_gemm_has_its_exchange(result):
    blocks = result.scenario.schedule.forward
    assert [(block.repeats, [step.work for step in block.steps]) for block in blocks] == [
        (2, [f"{NORM},dtype=bf16"]),
        (2, [GEMM, ALL_REDUCE]),
    ]
    assert list(result.scenario.pairs) == [(GEMM, ALL_REDUCE)]
    assert [row._asdict() for row in result.scenario.left_out()] == [
        {"operator": "my::operator", "reason": UNKNOWN, "calls": 2, "measured_ns": 11_500}
    ]


def test_measured_times_stand_beside_those_of_the_runs_without_launches_and_gaps(result, store):
    rows = {row.work: row for row in compared(result)}
    preset, kernels = load_preset("h100_sxm"), make_kernels(GEMM, gpu_facts(load_preset("h100_sxm").machine))
    alone = run_or_get(kernel_run(preset, kernels, L2State.EMPTY, 0.0), store).result
    figures = figures_of(alone, preset, kernels)
    library = run_or_get(exchange_run(preset, ALL_REDUCE), store).result
    assert rows[GEMM].simulated_ns == pytest.approx(figures.time_ns - figures.launch_ns)
    assert rows[ALL_REDUCE].simulated_ns == library.figures[BARE_PS] / 1000 < library.time_ps / 1000 - 1000
    assert [(row.calls, row.measured_ns) for row in rows.values()] == [(2, 30_000), (2, 8_000), (2, 4_000)]
    assert rows[GEMM].error == pytest.approx(rows[GEMM].simulated_ns / 8_000 - 1)


def test_kernels_begin_in_a_used_l2_but_not_a_gemm_with_an_exchange(result):
    scenario = result.scenario
    runs = {text: scenario.kernel_run(text) for text in scenario.kernels}
    kernels = {text: [kernel.name for kernel in run.execute().kernels] for text, run in runs.items() if text != GEMM}
    assert all(names[0].startswith("copy_") for names in kernels.values()) and kernels
    assert runs[GEMM].flush_l2


def test_overlap_saves_measured_time_in_the_ratio_of_simulated_ones(result):
    (pair,) = overlapped(result)
    assert (pair.calls, pair.measured_ns, pair.today) == (2, GPU_MEASURED_NS, LIBRARY)
    saved_ns = 2 * GPU_MEASURED_NS * (1 - pair.simulated_ns[T3] / pair.simulated_ns[LIBRARY])
    whole_ns = result.scenario.profile.time_ns
    assert speedup(result, T3) == pytest.approx(whole_ns / (whole_ns - saved_ns))
    assert speedup(result, LIBRARY) == 1.0
    assert pair.simulated_ns[SEQUENTIAL] == pytest.approx(
        sum(result.figures[key].time_ps for key in (GEMM, (GEMM, ALL_REDUCE))) / 1000
    )


def test_no_call_is_played(result):
    """A profile may have a million of them."""
    assert compared(result) and overlapped(result)
    assert "configurations" not in vars(result)


def test_without_overlap_every_exchange_is_alone(tmp_path, store):
    result = _result(_scenario(tmp_path, layer(), overlap=False), store)
    assert not result.scenario.pairs and not overlapped(result)
    assert speedup(result, SEQUENTIAL) == 1.0
    library = run_or_get(exchange_run(load_preset("h100_sxm"), ALL_REDUCE), store).result
    assert compared(result)[0].simulated_ns == library.figures[BARE_PS] / 1000
    assert [row.work for row in compared(result)] == [ALL_REDUCE, GEMM, f"{NORM},dtype=bf16"]


NVJET = "nvjet_tst_128x128_64x6_2x1_v_bz_TNT"
NAMED = ",family=sm90,tile=128x128x64,warps=2x4,cluster=1x2,pipeline_depth=6"


@pytest.mark.parametrize(
    ("preset", "overlap", "text"),
    [
        ("h100_sxm", False, f"{GEMM}{NAMED}"),
        ("h100_sxm", True, GEMM),  # in all configurations of a pair the library chooses
        ("a100_80g", False, GEMM),  # a machine that cannot run it
    ],
)
def test_a_gemm_has_the_kernel_of_its_name(tmp_path, preset, overlap, text):
    events = layer()
    for event in events:
        if event["cat"] == "kernel" and event["args"]["External id"] % 10 == 2:
            event["name"] = NVJET
            event["args"]["block"] = [384, 1, 1]
    scenario = _scenario(tmp_path, events, preset, overlap=overlap)
    works = {step.work for _, step in scenario.steps() if isinstance(step.work, str) and step.work.startswith("gemm")}
    assert works == {text}


def _in_switch():
    """A GEMM and an all-reduce of its output in the switch."""
    return [
        operator(1, "aten::mm", [[512, 256], [256, 512]]),
        operator(2, "symm_mem::multimem_all_reduce_", [[512 * 512], [], []]),
        kernel(1, 0.0, 5.0),
        kernel(2, 10.0, 5.0),
    ]


def test_today_is_what_the_program_does_if_the_machine_has_it(tmp_path):
    def today(events, preset, *names):
        scenario = _scenario(tmp_path, events, preset, configurations=names)
        return scenario.today(next(block for block in scenario.schedule.forward if len(block.steps) > 1))

    assert today(_in_switch(), "h100_sxm", LIBRARY, NVLS) == NVLS
    assert today(_in_switch(), "a100_80g", LIBRARY, T3) == LIBRARY
    assert today(layer(), "h100_sxm", LIBRARY, NVLS) == LIBRARY
    assert today(layer(), "h100_sxm", T3) == SEQUENTIAL
    assert today(_in_switch(), "t3_2024", T3) == SEQUENTIAL


def test_a_library_reduces_and_scatters_a_pair_as_alone(tmp_path, store):
    events = [operator(1, "aten::mm", [[256, 64], [64, 512]]), kernel(1, 0.0, 5.0),
              nccl(2, 6.0, 20.0, "_reduce_scatter_base", 256 * 512, 64 * 512, 4)]  # fmt: skip
    result = _result(_scenario(tmp_path, events, configurations=(LIBRARY,)), store)
    library = run_or_get(exchange_run(load_preset("h100_sxm"), Exchange("reduce_scatter", 256 * 512 * 2, 4)), store)
    assert compared(result)[0].simulated_ns == library.result.figures[BARE_PS] / 1000
    assert overlapped(result)[0].today == LIBRARY
    assert not result.scenario.not_fused


FP8 = [operator(1, "aten::_scaled_mm", [[64, 32], [32, 16]], 2 * ["c10::Float8_e4m3fn"]), kernel(1, 0.0, 1.0)]
ALL_TO_ALL = [operator(1, "c10d::alltoall", [[4096]]), nccl(1, 2.0, 1.0, "all_to_allv", 4096, 4096, 4)]

HUGE = [operator(1, "x", [[1]]), nccl(2, 0.0, 1.0, "allreduce", 10**4000, 10**4000, 4)]
EMPTY = [operator(1, "x", [[1]]), operator(2, "symm_mem::multimem_all_reduce_", [[0]]), kernel(2, 0.0, 1.0)]
WIDE = [*([1, 512, 8, 256] for _ in range(3)), *([] for _ in range(6))]
FLASH = [operator(1, "aten::_flash_attention_forward", WIDE, values=[*[""] * 8, "True"]), kernel(1, 0.0, 1.0)]


@pytest.mark.parametrize(
    ("events", "preset", "reason"),
    [
        (FP8, "a100_80g", "found fp8, which the machine lacks"),
        (ALL_TO_ALL, "t3_2024", "link.topology"),
        (HUGE, "h100_sxm", "allowed are 1 to 1099511627776"),
        (EMPTY, "h100_sxm", "found 0 bytes"),
        (FLASH, "t3_2024", "does not fit on a CU: cu.shared_bytes = 98304"),
    ],
)
def test_what_the_machine_cannot_run_is_left_out_with_the_reason(tmp_path, events, preset, reason):
    scenario = _scenario(tmp_path, events, preset)
    assert not scenario.runs()
    (row,) = scenario.left_out()
    assert reason in row.reason and row.calls == 1


@pytest.fixture
def invoke(tmp_path, monkeypatch, store):
    monkeypatch.setenv(VARIABLE, str(store.folder))
    monkeypatch.chdir(tmp_path)

    def run(*arguments, gpus=4):
        write_profile(tmp_path / "p.json.gz", layer(), gpus=gpus)
        done = CliRunner().invoke(verb, ["p.json.gz", *arguments])
        if done.exception:
            raise done.exception
        return done.stdout

    return run


def test_the_verb_prints_all_figures_as_json(invoke, result):
    found = json.loads(invoke("--configuration", "T3", "--json"))
    check("profile", found)
    assert found["steps"][1]["work"] == GEMM and found["steps"][1]["measured_ns"] == 8_000
    assert found["pairs"][0]["today"] == LIBRARY
    assert set(found["speedups"]) == {SEQUENTIAL, T3, LIBRARY, NVLS}
    assert all(found["speedups"][name] == pytest.approx(speedup(result, name)) for name in (SEQUENTIAL, T3, LIBRARY))
    assert found["not_simulated"][0]["operator"] == "my::operator"
    assert (found["runs"], found["gpus"], found["measured_ns"]) == (7, 4, 95_500)


def test_the_verb_prints_tables(invoke):
    text = invoke("--no-overlap")
    assert "kernels run 95.5 us of 1.066 ms" in text
    assert "overlap buys nothing" not in text  # it was not asked for
    for name in ("Longest steps", "Not simulated", "my::operator", UNKNOWN):
        assert name in text
    with_pairs = invoke()
    assert with_pairs.count("all_reduce of 512 KiB, 4 GPUs") == 2  # a step, and in its pair
    assert "GEMMs and the exchanges of their outputs, a call" in with_pairs
    assert "T3-MCA" in with_pairs and "NVLS" in with_pairs


def test_kernels_without_a_measured_time_have_no_error(tmp_path, monkeypatch, store):
    events = [operator(1, "aten::mm", [[512, 256], [256, 512]]), kernel(1, 0.0, 0.0), kernel(2, 1.0, 1.0)]
    monkeypatch.setenv(VARIABLE, str(store.folder))
    path = str(write_profile(tmp_path / "p.json", events))
    text, found = (CliRunner().invoke(verb, [path, f"--{form}"], catch_exceptions=False).stdout
                   for form in ("format=csv", "json"))  # fmt: skip
    assert "\nmatrix,1,0.0,0.0," in text
    check("profile", json.loads(found))
    assert json.loads(found)["steps"][0]["error"] is None


def test_exchanges_within_a_node_have_its_switch_also_if_the_run_has_several_nodes(invoke):
    found = json.loads(invoke("--set", "network.node_gpus=8", "--json", gpus=16))
    assert found["gpus"] == 16 and "NVLS" in found["speedups"]
    assert not found["not_fused"]


def test_the_verb_refuses_a_configuration_without_overlap(invoke):
    with pytest.raises(UserError, match="found T3 with --no-overlap, allowed is Sequential"):
        invoke("--no-overlap", "--configuration", "Sequential", "--configuration", "T3")


def test_the_verb_names_a_file_that_is_no_profile(tmp_path):
    (tmp_path / "p.json").write_text("{}")
    failure = CliRunner().invoke(verb, [str(tmp_path / "p.json")]).exception
    assert isinstance(failure, UserError) and "no list traceEvents" in str(failure)


@pytest.mark.parametrize(
    ("number", "gemm"), [("15", "gemm:m=512,n=512,k=256,out_dtype=bf16,dtype=fp8"), ("", "")], ids=["bf16", "fp8"]
)
def test_a_gemm_of_fp8_is_in_a_pair_if_its_output_has_the_type_of_the_exchange(tmp_path, store, number, gemm):
    values = [*[""] * 6, number, "True"]
    fp8 = 2 * ["c10::Float8_e4m3fn"] + 6 * [""]
    events = [
        operator(1, "aten::_scaled_mm", [[512, 256], [256, 512], *[[]] * 6], fp8, values=values),
        kernel(1, 0.0, 10.0),
        nccl(2, 12.0, 5.0, "allreduce", 512 * 512, 512 * 512, 4),
    ]
    scenario = _scenario(tmp_path, events, configurations=(T3, LIBRARY))
    assert [text for text, _ in scenario.pairs] == ([gemm] if gemm else [])
    if gemm:
        (pair,) = overlapped(_result(scenario, store))
        assert pair.simulated_ns[T3] < pair.simulated_ns[LIBRARY]


@pytest.mark.parametrize(("gpu", "family"), [("NVIDIA B200", "sm100"), ("NVIDIA H100 80GB HBM3", "sm90")])
def test_a_gemm_has_the_kernel_of_the_gpu_that_ran_it(tmp_path, gpu, family):
    name = "nvjet_tst_64x64_64x8_2x1_v_bz_TNT"
    events = [operator(1, "aten::mm", [[512, 256], [256, 512]]), kernel(1, 0.0, 9.0, name, block=[256, 1, 1])]
    profile = read_profile(write_profile(tmp_path / "p.json", events, gpu=gpu))
    (work,) = (step.work for _, step in ProfileScenario(load_preset("b200"), profile).steps())
    assert f",family={family},tile=64x64x64,warps=1x4,cluster=1x2,pipeline_depth=8" in work
