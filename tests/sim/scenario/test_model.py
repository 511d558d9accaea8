"""A model on a machine: its time follows from its runs, pairs become fused kernels."""

import csv
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from sim.presets import load_preset
from sim.run.library_run import LibraryRun
from sim.run.runner import run_all
from sim.run.store import Store
from sim.scenario.model import ModelScenario
from sim.scenario.result import CONFIGURATIONS, FLUX, IDEAL, LIBRARY, NVLS, SEQUENTIAL, SP_NVLS, T3
from sim.scenario.scheduled import assemble_schedule
from sim.verbs.model import model as verb
from sim.verbs.schedule_run import show_limits
from tracer.models.catalogue import load_model
from tracer.models.deployment import ContextExchange, Deployment, ModelPhase
from tracer.models.schedule import Exchange, OperatorClass
from tracer.models.shape import ModelShape, Norm
from tracer.streams import Flow
from traces.errors import UserError

TINY = ModelShape(
    name="tiny",
    layers=3,
    hidden=256,
    intermediate=512,
    heads=4,
    kv_heads=2,
    head_dim=64,
    vocab=1024,
    max_positions=512,
    gated=True,
    norm=Norm.RMSNORM,
    rotary=True,
    bias=False,
)
HOW = Deployment(tp=2, sequence=128)
SMALL_L2 = "l2.bytes=3276800"
"""Of `h100_sxm`: the kernel that fills L2 before each kernel is short."""
CONFIG = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
}


def _result(scenario, store):
    runs = scenario.runs()
    outcomes = run_all(runs, store, workers=1)
    assert not outcomes.failed and not outcomes.lost
    return assemble_schedule(scenario, {run.key: outcomes.result(run) for run in runs}), outcomes


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def prompt(store):
    return _result(ModelScenario(load_preset("t3_2024"), TINY, HOW), store)[0]


def test_a_prompt_takes_the_sum_of_its_steps(prompt):
    """Nothing overlaps in a prompt on one stage."""
    rows = prompt.operators()
    total_ns = sum(row["count"] * row["time_ns"] for row in rows)
    base = prompt.configurations[SEQUENTIAL]
    assert base.time_ps / 1000 == pytest.approx(total_ns)
    assert base.exposed_ps == base.class_ps[OperatorClass.COMMUNICATION]
    assert {row["count"] for row in rows if row["name"].startswith("layer/")} == {3}


def test_a_gemm_keeps_matrix_units_busy_for_its_operations(prompt):
    cu = prompt.scenario.preset.machine.cu
    for block, step in prompt.scenario.steps():
        figures = prompt.figures[prompt.scenario.key_of(block, step)]
        if step.operator_class == OperatorClass.MATRIX:
            macs = figures.matrix_ps * 1e-6 * cu.clock_MHz * cu.count * cu.tensor_macs_per_clk
            assert 0.99 * figures.operations <= 2 * macs  # more if a tile is larger than the output
            assert 0 < figures.matrix_ps < figures.time_ps
        else:
            assert (figures.matrix_ps > 0) == (step.operator_class == OperatorClass.ATTENTION)


def test_t3_reaches_the_paired_gemms_and_their_reductions(prompt):
    rows = {row["name"]: row["count"] * row["time_ns"] for row in prompt.operators()}
    names = ("layer/output", "layer/attention_reduce", "layer/mlp_down", "layer/mlp_reduce")
    assert prompt.reach_ps == pytest.approx(1000 * sum(rows[name] for name in names))


def test_every_gemm_before_an_all_reduce_is_a_pair(prompt):
    texts = {text.partition(",dtype")[0] for text, _ in prompt.scenario.pairs}
    assert texts == {"gemm:m=128,n=256,k=128", "gemm:m=128,n=256,k=256"}
    assert not any(pair.refused for pair in prompt.scenario.pairs.values())


def test_kernels_begin_in_a_used_l2_but_not_a_gemm_whose_output_is_reduced():
    """The same with and without the configurations."""
    scenarios = [ModelScenario(load_preset("t3_2024"), TINY, HOW, overlap=overlap) for overlap in (True, False)]
    for scenario in scenarios:
        empty = {text for text in scenario.kernels if scenario.kernel_run(text).flush_l2}
        assert {text.partition(",dtype")[0] for text in empty} == {"gemm:m=128,n=256,k=128", "gemm:m=128,n=256,k=256"}
    keys = [{text: scenario.kernel_run(text).key for text in scenario.kernels} for scenario in scenarios]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("phase", "least", "most", "before"),
    [(ModelPhase.PROMPT, 0.3, 0.5, Flow.COPY), (ModelPhase.GENERATE, 0.0, 0.05, Flow.READ)],
)
def test_the_dirty_part_of_l2_is_what_the_kernels_of_the_phase_write(phase, least, most, before):
    """To generate a token, weights are read."""
    scenario = ModelScenario(load_preset("t3_2024"), TINY, Deployment(phase=phase, tp=2))
    assert least < scenario.dirty < most
    sources = [scenario.kernel_run(text).source for text in scenario.kernels if not scenario.kernel_run(text).flush_l2]
    assert {next(source.commands()).flow for source in sources} == {before}


def test_the_ideal_hides_the_shorter_of_gemm_and_reduce_scatter(prompt):
    times = {name: each.time_ps for name, each in prompt.configurations.items()}
    assert set(times) == set(CONFIGURATIONS)
    saved_ps = 0
    for pair in prompt.scenario.pairs.values():
        gemm_ps, rs_ps = (_time_ps(prompt, pair.scenario.run(name)) for name in ("gemm", "rs"))
        saved_ps += TINY.layers * min(gemm_ps, rs_ps)
    assert times[SEQUENTIAL] - times[IDEAL] == pytest.approx(saved_ps, rel=0.02)  # a GEMM alone is run with a flush
    assert times[T3] < times[SEQUENTIAL]


SWITCH = ("link.topology=switch", "link.in_switch=true")


def test_software_stands_beside_t3(store):
    """The pair takes the time of the runs of each configuration; what the machine lacks keeps that of Sequential."""
    names = (LIBRARY, FLUX, NVLS, SP_NVLS, T3)
    result, _ = _result(ModelScenario(load_preset("t3_2024", SWITCH), TINY, HOW, configurations=names), store)
    assert list(result.configurations) == [SEQUENTIAL, *names]
    times = {name: each.time_ps for name, each in result.configurations.items()}
    assert times[LIBRARY] == times[SEQUENTIAL]
    ((name, (reason,)),) = result.as_dict()["not_fused"].items()
    assert (name, reason.partition(" (")[0]) == (LIBRARY, "collective.library: found plain")
    saved_ps = dict.fromkeys((FLUX, NVLS, SP_NVLS), 0)
    for (text, exchange), pair in result.scenario.pairs.items():
        runs = {name: store.get(run.key).time_ps for name, run in pair.runs().items()}
        gemm_ps, both_ps = result.figures[text].time_ps, result.figures[exchange].time_ps
        dispatch = pair.scenario.preset.machine.dispatch
        flux_ps = runs["flux"] + runs["add"] + runs["ag"] - dispatch.launch_ps + dispatch.gap_ps
        saved_ps[FLUX] += TINY.layers * (gemm_ps + both_ps - flux_ps)
        saved_ps[NVLS] += TINY.layers * (both_ps - runs["ar_nvls"])
        saved_ps[SP_NVLS] += TINY.layers * (both_ps - runs["rs_nvls"] - runs["ag_nvls"])
    assert {name: times[SEQUENTIAL] - times[name] for name in saved_ps} == saved_ps


def test_a_gemm_before_an_exchange_of_the_library_is_as_slow_as_in_sequential(store):
    """The gradients of other layers keep CUs beside it, whatever reduces its output afterwards."""
    how = replace(HOW, phase=ModelPhase.TRAIN, dp=2)
    result, _ = _result(ModelScenario(load_preset("h100_sxm", [SMALL_L2]), TINY, how, configurations=(LIBRARY,)), store)
    gemms = {text for text, _ in result.scenario.pairs}
    lengths = {
        name: [each.length_ps for each in found.timeline.intervals if each.step.work in gemms]
        for name, found in result.configurations.items()
    }
    alone = sorted(result.figures[text].step_time.alone_ps for text in gemms)
    assert lengths[LIBRARY] == lengths[SEQUENTIAL] and max(lengths[LIBRARY]) > alone[-1]


def test_only_a_pair_has_the_plain_exchange_of_sequential():
    """On a machine with a library the all-reduce behind the embedding is the library's, in every configuration."""
    scenario = ModelScenario(load_preset("h100_sxm"), TINY, HOW, configurations=(LIBRARY,))
    (exchange,) = {exchange for _, exchange in scenario.pairs}
    keys = {step.name: scenario.key_of(block, step) for block, step in scenario.steps()}
    assert keys["embedding_reduce"] == exchange and keys["mlp_reduce"] == (scenario_text(scenario, 256), exchange)
    assert exchange in scenario.alone and scenario.exchange_runs(exchange)[0] in scenario.runs()
    plain = ModelScenario(load_preset("t3_2024"), TINY, HOW)
    assert not plain.alone & {exchange for _, exchange in plain.pairs}  # the same plan: one run


def scenario_text(scenario, k):
    return next(text for text, _ in scenario.pairs if text.startswith(f"gemm:m=128,n=256,k={k},"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "In Sequential and T3, reductions of GEMMs are plain"),
        (("--no-overlap", "--tp", "16"), "Exchanges between nodes: all links of a group are alike (D62)."),
        (("--no-overlap", "--phase", "train", "--dp", "12", "--tp", "1"), "all links of a group are alike (D62)."),
    ],
)
def test_the_verb_says_which_exchanges_are_plain(options, words, tmp_path, store, monkeypatch):
    monkeypatch.setenv("T3SIM_STORE", str(store.folder))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | {"num_attention_heads": 16, "num_key_value_heads": 16, "hidden_size": 1024}))
    command = [str(path), "--preset", "h100_sxm", "--set", SMALL_L2, "--tp", "2", "--tokens", "128"]
    command += ["--layers", "1", *options]
    shown = CliRunner().invoke(verb, [*command, "--configuration", SEQUENTIAL], catch_exceptions=False).stdout
    assert words in shown and "16 heads (16 of keys and values),\ngated MLP 512, rmsnorm, decoder, rotary" in shown


def test_a_gemm_whose_output_is_reduced_over_nodes_is_not_fused_with_a_library():
    there, found = ["network.node_gpus=1"], {}
    for name, nodes in (("h100_sxm", there), ("h100_sxm", []), ("t3_2024", there)):
        found[name, len(nodes)] = ModelScenario(load_preset(name, nodes), TINY, HOW, configurations=(T3,)).not_fused
    (reasons,) = found.pop(("h100_sxm", 1)).values()
    assert "of 2 GPUs is fused only within the 1 GPUs of a node" in reasons[0] and not any(found.values())


def test_an_all_reduce_does_not_stand_for_a_reduce_scatter(store):
    how = replace(HOW, sequence_parallel=True)
    scenario = ModelScenario(load_preset("t3_2024", SWITCH), TINY, how, configurations=(NVLS, SP_NVLS))
    saved_ps, result = 0, _result(scenario, store)[0]
    for (_, exchange), pair in scenario.pairs.items():
        assert pair.refused == {NVLS: "NVLS ends with an all-reduce, the exchange is a reduce-scatter"}
        assert set(pair.names) == {"rs", "rs_nvls"}
        scattered_ps = store.get(pair.runs()["rs_nvls"].key).time_ps
        saved_ps += TINY.layers * (result.figures[exchange].time_ps - scattered_ps)
    times = {name: each.time_ps for name, each in result.configurations.items()}
    assert times[NVLS] == times[SEQUENTIAL] and times[SEQUENTIAL] - times[SP_NVLS] == saved_ps


def test_an_output_of_too_few_tiles_is_not_fused(store, capsys):
    """16 tokens: two tiles for four GPUs."""
    how = replace(HOW, tp=4, sequence=16)
    result, _ = _result(ModelScenario(load_preset("t3_2024"), TINY, how), store)
    assert {each.time_ps for each in result.configurations.values()} == {result.configurations[SEQUENTIAL].time_ps}
    assert result.reach_ps == 0 and not result.scenario.pairs
    reason = "gpus: found 4 for an output of 2 tiles; allowed is one tile per GPU at least"
    assert result.as_dict()["not_fused"] == {name: [reason] for name in CONFIGURATIONS[1:]}
    show_limits(result.scenario)
    names = ", ".join(CONFIGURATIONS[1:])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"GEMMs with the time of Sequential in {names}: {reason}" in shown
    assert "values of t3_2024 are assumed" in shown and "nobody has built it" in shown


def _time_ps(result, run):
    return result.store.get(run.key).time_ps


@pytest.fixture(autouse=True)
def _with_store(prompt, store):
    prompt.store = store


def test_training_hides_gradients_under_the_backward_pass(store):
    how = replace(HOW, phase=ModelPhase.TRAIN, dp=2, zero=1, micro_batches=3)
    result, _ = _result(ModelScenario(load_preset("t3_2024"), TINY, how), store)
    base = result.configurations[SEQUENTIAL]
    communication_ps = base.class_ps[OperatorClass.COMMUNICATION]
    assert 0 < base.exposed_ps < communication_ps
    names = [row["name"] for row in result.operators()]
    assert {"backward/gradients", "optimizer/adam", "new weights/new_weights"} <= set(names)
    counts = {row["name"]: row["count"] for row in result.operators()}
    assert (counts["backward/qkv_weight"], counts["optimizer/adam"]) == (9, 1)


def test_a_library_takes_cus_from_the_gemms_beside_it(store):
    """Weight gradients run beside the all-reduce of the input's gradient; T3 hides that exchange, so they are alone."""
    preset = load_preset("h100_sxm", [SMALL_L2])
    result, _ = _result(ModelScenario(preset, TINY, replace(HOW, phase=ModelPhase.TRAIN)), store)
    scenario = result.scenario
    kept = {step.name for _, step in scenario.steps() if step.work in scenario.kept}
    assert {"mlp_up_weight", "qkv_weight"} <= kept and "mlp_down_input" not in kept
    counts = {scenario.beside_run(text).preset.machine.cu.count for text in scenario.kept}
    assert counts and max(counts) < preset.machine.cu.count
    rows = {row["name"]: row for row in result.operators()}
    for name, row in rows.items():
        beside_ns, alone_ns = row["beside_exchanges_ns"], row["time_ns"]
        assert beside_ns >= alone_ns if name.partition("/")[2] in kept else beside_ns == alone_ns
    whole = sum(row["count"] * row["time_ns"] for row in rows.values() if row["class"] != "communication")
    base = result.configurations[SEQUENTIAL]
    assert sum(base.class_ps[name] for name in OperatorClass if name != OperatorClass.COMMUNICATION) >= whole * 1000 - 1


def test_more_stages_add_the_time_of_their_layers(prompt, store):
    """Embedding and output are on one stage only, so a prompt crosses them once."""
    two, _ = _result(ModelScenario(load_preset("t3_2024"), replace(TINY, layers=2), replace(HOW, pp=2)), store)
    one, _ = _result(ModelScenario(load_preset("t3_2024"), replace(TINY, layers=2), HOW), store)
    send_ns = next(row["time_ns"] for row in two.operators() if row["name"] == "handover/send")
    alone_ps = one.configurations[SEQUENTIAL].time_ps
    assert two.configurations[SEQUENTIAL].time_ps == pytest.approx(alone_ps + send_ns * 1000)
    assert two.configurations[SEQUENTIAL].bubble_ps > 0


def test_interleaved_stages_have_a_shorter_bubble(store):
    how = replace(HOW, phase=ModelPhase.TRAIN, pp=2, micro_batches=4)
    found = {}
    for parts in (1, 2):
        shape = replace(TINY, layers=4)
        found[parts], _ = _result(
            ModelScenario(load_preset("t3_2024"), shape, replace(how, interleave=parts), overlap=False), store
        )
    plain, interleaved = (each.configurations[SEQUENTIAL] for each in found.values())
    assert plain.bubble_ps == 2 * interleaved.bubble_ps
    sends_ps = plain.exposed_ps - interleaved.exposed_ps
    assert sends_ps != 0
    assert plain.time_ps - interleaved.time_ps == interleaved.bubble_ps + sends_ps
    assert list(found[1].configurations) == [SEQUENTIAL]


@pytest.mark.parametrize(("parts", "sends"), [(1, 4), (2, 8)])
def test_a_stage_sends_each_micro_batch_behind_each_of_its_parts(parts, sends):
    how = replace(HOW, phase=ModelPhase.TRAIN, pp=2, micro_batches=4, interleave=parts)
    scenario = ModelScenario(load_preset("t3_2024"), replace(TINY, layers=4), how, overlap=False)
    counts = [scenario.count(*each) for each in scenario.steps() if each[0].name == "handover"]
    assert counts == [sends, sends]


def test_another_link_simulates_only_what_crosses_it(prompt, store):
    slow = ModelScenario(load_preset("t3_2024", ["link.GB_per_s=10.0"]), TINY, HOW)
    result, outcomes = _result(slow, store)
    kernels = {slow.kernel_run(text).key for text in slow.kernels}
    assert kernels <= outcomes.from_store
    assert result.configurations[SEQUENTIAL].time_ps > prompt.configurations[SEQUENTIAL].time_ps


def test_the_verb_prints_tables_and_json(tmp_path, store, monkeypatch, prompt):
    monkeypatch.setenv("T3SIM_STORE", str(store.folder))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    figure = tmp_path / "model.svg"
    options = [str(path), "--preset", "t3_2024", "--tp", "2", "--tokens", "128", "--gpus", "2"]
    options += ["--figure", str(figure)]
    plain = CliRunner().invoke(verb, options, catch_exceptions=False)
    assert "exposed communication" in plain.stdout and "T3-MCA" in plain.stdout
    found = json.loads(CliRunner().invoke(verb, [*options, "--json"], catch_exceptions=False).stdout)
    assert "exposed communication" in figure.read_text() and "tensor-parallel" in figure.read_text()
    assert found["simulated"] == 0  # the shape is TINY's: everything was in the store
    assert found["time_ns"] == prompt.configurations[SEQUENTIAL].time_ps / 1000
    assert set(found) >= {"phase", "classes", "exposed_communication_ns", "configurations", "operators"}
    assert {"name", "class", "count", "time_ns", "dram_bytes", "flops"} <= set(found["operators"][0])
    assert found["phase"] == "prompt" and set(found["configurations"]) == set(CONFIGURATIONS)
    assert sum(found["classes"].values()) == pytest.approx(found["time_ns"])  # nothing overlaps in a prompt
    for each in found["configurations"].values():
        assert each["speedup"] == pytest.approx(found["time_ns"] / each["time_ns"])


def test_a_full_store_keeps_the_runs_of_a_model_until_its_end(tmp_path, monkeypatch):
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("T3SIM_STORE_BYTES", "1")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    options = ["--preset", "t3_2024", "--tokens", "16", "--layers", "1", "--no-overlap", "--json"]
    found = json.loads(
        CliRunner().invoke(verb, [str(tmp_path / "config.json"), *options], catch_exceptions=False).stdout
    )
    assert found["simulated"] == found["runs"] > 1


def test_the_links_are_those_of_the_library_that_exchanges():
    """a100_80g is a ring with plain plans; NCCL on it knows the switch."""
    how = Deployment(tp=8, ep=8, sequence=128)
    exchanges = {
        step.work for _, step in ModelScenario(load_preset("a100_80g"), load_model("mixtral-8x7b"), how).steps()
    }
    assert any(isinstance(work, Exchange) and work.kind == "all_to_all" for work in exchanges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["llama-3-70b"], r"needs 13\d\.\d GiB on each GPU"),
        (["llama-3-8b", "--tp", "3"], "tp = 3: allowed is a divisor of heads = 32"),
        (["llama-3-8b", "--gpus", "3"], "--gpus: found 3, allowed is tp x cp x pp x dp = 1"),
        (["llama-3-8b", "--tokens", "10", "--micro-batch", "3"], "--tokens: found 10"),
        (["llama-3-8b", "--tokens", "64", "--sequence", "32"], "--tokens: found 64 beside --sequence 32"),
        (["llama-3-8b", "--tokens", "64", "--sequence", "2048"], "--tokens: found 64 beside --sequence 2048"),
        (["llama-3-8b", "--phase", "generate", "--sequence", "2048"], "--sequence: found 2048, allowed is none in gen"),
        (["llama-3-8b", "--figure", "model.txt"], "allowed are .png, .svg, .pdf"),
        (
            ["mixtral-8x7b", "--tp", "8", "--ep", "8", "--set", "collective.library=plain"],
            "all_to_all: topology ring of 8 GPUs.*link.topology",
        ),
        (["llama-3-8b", "--tp", "0"], "tp = 0: allowed is 1 to"),
        (["llama-3-8b", "--pp", "0"], "pp = 0: allowed is 1 to"),
        (["llama-3-8b", "--micro-batch", "0", "--tokens", "128"], "--micro-batch: found 0"),
        (["palm", "--layers", "1", "--tokens", "64"], "head_dim = 384: .*; with --no-flash"),
        (
            ["gpt-530b", "--layers", "1", "--tokens", "64", "--phase", "train", "--tp", "8", "--preset", "t3_2024"],
            "does not fit on a CU: cu.shared_bytes = 98304; with --no-flash",
        ),
        (["gpt-22b", "--phase", "generate", "--kv-length", "2048", "--tp", "8"], "kv_length = 2048: allowed is 0 to"),
        ([], "found no name"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(options, message):
    with pytest.raises(UserError, match=message):
        verb.main(["--preset", "a100_80g", "--dtype", "bf16", *options], standalone_mode=False)


def test_a_configuration_without_overlap_is_refused():
    """It would not be simulated."""
    result = CliRunner().invoke(verb, ["bert-large", "--no-overlap", "--configuration", "T3"])
    assert "--configuration: found T3 with --no-overlap, allowed is Sequential" in str(result.exception)


def test_the_list_of_models_is_numbers_in_csv():
    done = CliRunner().invoke(verb, ["--list", "--format", "csv"], catch_exceptions=False)
    _, _, *rows = [row for row in csv.reader(done.stdout.splitlines()) if row]
    listed = json.loads(CliRunner().invoke(verb, ["--list", "--json"], catch_exceptions=False).stdout)
    assert {row[0]: float(row[1]) for row in rows} == {
        name: round(each["parameters"] / 1e9, 1) for name, each in listed.items()
    }


def test_a_ring_hides_keys_beside_attention_and_a_gather_does_not(store):
    """Two GPUs share each sequence; all but the last exchange of a ring runs beside the attention of the own keys."""
    preset = load_preset("t3_2024", ["link.topology=fully_connected", "l2.bytes=1048576"])
    times = {}
    for context in ContextExchange:
        how = Deployment(cp=2, sequence=512, context=context)
        result, _ = _result(ModelScenario(preset, replace(TINY, layers=1), how, overlap=False), store)
        base = result.configurations[SEQUENTIAL]
        communication_ps = base.class_ps[OperatorClass.COMMUNICATION]
        times[context] = (base.exposed_ps, communication_ps)
        assert communication_ps > 0 and base.exposed_ps <= communication_ps
    exposed_ps, communication_ps = times[ContextExchange.RING]
    assert exposed_ps < communication_ps
    for context in (ContextExchange.GATHER, ContextExchange.ULYSSES):
        assert times[context][0] == times[context][1]


def test_replicas_add_an_exchange_between_nodes():
    """HSDP on two nodes of two GPUs: shares in a node, then their sums over the network."""
    preset = load_preset("h100_sxm", [SMALL_L2, "network.node_gpus=2"])
    how = Deployment(phase=ModelPhase.TRAIN, dp=4, zero=3, replicas=2, sequence=64)
    runs = [run for run in ModelScenario(preset, TINY, how, overlap=False).runs() if isinstance(run, LibraryRun)]
    nodes = {run.kind: run.choice.nodes for run in runs}
    assert nodes == {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}
