"""Experiments: their files load, equal work is one run, and their answers follow from the runs as they should."""

import pickle
import re

import pytest

from sim.run.code import code_key
from sim.scenario.result import CONFIGURATIONS, T3_MCA
from tests.support.doc_blocks import file_of
from tests.support.fake_runs import TIMES_US, fake_results
from tracer.compile.source_facts import parsed_facts
from tracer.models.schedule import OperatorClass
from tracer.workloads import DEFAULT_KERNEL
from traces.errors import UserError
from validation.experiments.collectives import ScatterGain
from validation.experiments.cu_split import CuSplit
from validation.experiments.layers import Layers
from validation.experiments.load import load_experiments
from validation.experiments.sublayers import Sublayers
from validation.experiments.workbench import PAPER, Workbench, scenario_names

SMALL = Workbench(tokens=256)
NAME = "mega-gpt-2/op/tp8"


@pytest.fixture(scope="module")
def experiments():
    return load_experiments()


def fake_answers(experiment):
    return experiment.answers(fake_results(experiment.runs()))


def simulated(experiment):
    return experiment.answers({run.key: run.execute() for run in experiment.runs()})


@pytest.mark.slow
def test_every_file_makes_its_runs(experiments):
    for name, experiment in experiments.items():
        assert experiment.title, name
        keys = {run.key for run in experiment.runs()[::20]}
        assert all(len(key) == 64 for key in keys), name
    assert sum(not each.full for each in experiments.values()) >= 3


def test_another_process_measures_the_same(experiments):
    names = ("hbm_channel", "gemm_counters", "gemm_mi300x", "microbenchmarks_h200", "machine_of_today_b200")
    runs = [run for name in names for run in experiments[name].runs()]
    assert [pickle.loads(pickle.dumps(run)).key for run in runs] == [run.key for run in runs]
    assert len({run.key for run in runs}) == len({(run.measure, run.given) for run in runs})


def test_the_paper_is_16_sublayers_of_48_runs(experiments):
    assert len(scenario_names((PAPER,))) == 16
    runs = experiments["paper"].runs()
    assert len(runs) == 96
    # 4 x (model, TP): GEMM, T3 and T3-MCA of OP, IP and FC-2 = FC-1; RS, RS + NMC and AG of the one output.
    assert len({run.key for run in runs}) == 4 * (3 * 3 + 3)


def test_the_default_kernel_is_plain():
    """The kernel of all sub-layers: 128 x 128 x 32, 16-byte accesses, a K-step in one piece."""
    shape = (DEFAULT_KERNEL.tile_m, DEFAULT_KERNEL.tile_n, DEFAULT_KERNEL.tile_k, DEFAULT_KERNEL.pipeline_depth)
    assert shape == (128, 128, 32, 2)
    assert (DEFAULT_KERNEL.vector_bytes, DEFAULT_KERNEL.fragment_pieces) == (16, 1)


def test_keys_tell_apart_what_differs():
    def keys(bench):
        return {run.key for run in Sublayers(title="", scenarios=(NAME,), bench=bench).runs()}

    base = keys(SMALL)
    assert keys(Workbench(tokens=256)) == base
    assert not keys(Workbench(tokens=512)) & base
    assert len(keys(Workbench(tokens=256, overrides=("link.GB_per_s=75.0",))) & base) == 1  # a GEMM has no link
    column = Workbench(tokens=256, kernel={"a_layout": "column", "c_layout": "column"}).scenarios((NAME,))[NAME].problem
    assert (column.lda, column.ldc) == (256, 256)  # of the tokens that are simulated
    deeper = keys(Workbench(tokens=256, kernel={"pipeline_depth": 3}))
    assert len(deeper & base) == 3  # collectives do not see the kernel
    timed = keys(Workbench(tokens=256, series=(NAME,)))
    assert len(timed & base) == 3  # and take no time series


def test_words_do_not_change_a_key_but_code_does():
    def syntax(source):
        return parsed_facts(source.encode(), "").syntax_hash

    source = '"""Old."""\n\nWAYS = 8  # many\n"""Of a set."""\n\ndef f(x):\n    """Old."""\n    return x + WAYS\n'
    words = source.replace("Old", "New").replace("# many", "# few").replace("Of a set", "Ways")
    assert syntax(source) == syntax(words)
    assert syntax(source) != syntax(source.replace("= 8", "= 16"))
    assert syntax(source) != syntax(source.replace("x +", "x -"))
    assert code_key("sim.run.run") != code_key("sim.run.dram")


def test_speedups_and_traffic_of_made_up_runs():
    answers = fake_answers(Sublayers(title="", scenarios=(NAME, "mega-gpt-2/fc2/tp8"), bench=SMALL))
    gemm, rs, ag, mca = (TIMES_US[run] for run in ("gemm", "rs", "ag", "t3_mca"))
    speedup = (gemm + rs + ag) / (mca + ag)
    assert answers[f"{NAME}/{T3_MCA}/speedup"] == pytest.approx(speedup)
    assert answers[f"geomean/{T3_MCA}/speedup"] == answers[f"fc/max/{T3_MCA}/speedup"] == pytest.approx(speedup)
    assert answers[f"op/least/{T3_MCA}/of_ideal"] == pytest.approx((max(gemm, rs) + ag) / (mca + ag))
    assert answers[f"{NAME}/{T3_MCA}/loss"] == pytest.approx(100 * (mca - gemm) / (gemm + ag))
    assert answers[f"most/{T3_MCA}/dram_change"] == pytest.approx(100 * (590 / 770 - 1))
    assert answers[f"most/{T3_MCA}/dram_change_without_ag"] == pytest.approx(100 * (410 / 590 - 1))
    assert answers["exactly_once"] == 1.0


def test_how_configurations_compare():
    answers = fake_answers(Sublayers(title="", scenarios=(NAME, "mega-gpt-2/op/tp16"), bench=SMALL))
    ag, t3, mca = (TIMES_US[run] for run in ("ag", "t3", "t3_mca"))
    assert answers["geomean/T3-MCA/of_T3"] == answers["max/T3-MCA/of_T3"] == pytest.approx((t3 + ag) / (mca + ag))
    assert answers["geomean/T3/gemm_reads_saved"] == pytest.approx(200 / 150)
    assert answers["geomean/tp8/rs_reads_saved"] == pytest.approx(190 / 80)
    assert answers["mean/tp16/nmc_gain"] == pytest.approx(100 * (500 / 470 - 1))
    assert answers["max/Ideal-RS+NMC/of_ideal"] == 1.0  # the GEMM is longer than both
    sent_bytes = [256 * 3072 * 2 * (gpus - 1) / gpus for gpus in (8, 16)]
    link_us = [sent / 150e9 * 1e6 for sent in sent_bytes]
    assert answers["mean/rs_of_link"] == pytest.approx(sum(500 / each for each in link_us) / 2)
    depths = [3072 // gpus for gpus in (8, 16)]
    macs_per_us = 80 * 512 * 1400  # the matrix units of t3_2024
    assert answers["least/gemm_of_peak"] == pytest.approx(256 * 3072 * min(depths) / (TIMES_US["gemm"] * macs_per_us))


def test_a_small_sublayer_in_the_machine():
    answers = simulated(Sublayers(title="", scenarios=(NAME,), bench=SMALL))
    assert answers["exactly_once"] == 1.0
    # N = 8 equal chunks: T3 writes (N-1)/N of the output, reads (N-2)/N and takes in (N-1)/N.
    reads, output = answers[f"{NAME}/{T3_MCA}/gemm_reads_MB"], answers[f"{NAME}/output_MB"]
    rest = sum(answers[f"{NAME}/{T3_MCA}/{kind}_MB"] for kind in ("gemm_writes", "rs_reads", "rs_writes"))
    assert rest == pytest.approx(output * (7 + 6 + 7) / 8)
    assert reads > 0
    for name in CONFIGURATIONS:
        assert answers[f"{NAME}/{name}/time_us"] > 0


def test_near_memory_updates_speed_a_reduce_scatter_up():
    answers = simulated(ScatterGain(title="", scenarios=(NAME,), bench=SMALL))
    assert answers[f"{NAME}/rs_us"] > answers[f"{NAME}/rs_nmc_us"] > 0
    assert answers["mean/tp8/nmc_gain"] == answers[f"{NAME}/nmc_gain"] > 0


def test_overlap_on_split_cus():
    answers = simulated(CuSplit(title="", scenarios=(NAME,), collective_cus=(16,), bench=SMALL))
    assert answers[f"{NAME}/64-16/rs_slowdown"] > 0
    assert answers["geomean/ideal/speedup"] >= answers["geomean/64-16/speedup"]


def test_layers_add_the_other_operators():
    experiment = Layers(title="", models=("t-nlg/tp8",), heads={"t-nlg": 28}, bench=SMALL)
    answers = fake_answers(experiment)
    reduced_us = 4 * (TIMES_US["gemm"] + TIMES_US["rs"] + TIMES_US["ag"])
    other_us = answers["training/t-nlg/tp8/other_us"]
    assert answers["training/t-nlg/tp8/Sequential/layer_us"] == pytest.approx(reduced_us + other_us)
    assert answers["training/t-nlg/tp8/share"] == pytest.approx(reduced_us / (reduced_us + other_us))
    assert 1 < answers["training/geomean/T3-MCA/speedup"] < 1.3
    assert answers["inference/t-nlg/tp8/other_us"] < other_us / 2
    kinds = [value for name, value in answers.items() if re.fullmatch("training/t-nlg/tp8/other .*_us", name)]
    assert len(kinds) == 4 and sum(kinds) == pytest.approx(other_us)


def test_other_operators_of_layers_begin_in_a_used_l2():
    """The first kernel of each run fills L2 as those of `t3sim model` do (D61). Its time does not count."""
    experiment = Layers(title="", models=("t-nlg/tp8",), heads={"t-nlg": 28}, bench=SMALL)
    results = fake_results(experiment.runs())
    others_us = experiment.answers(results)["inference/t-nlg/tp8/other_us"]
    others = [run for run in experiment.runs() if len(results[run.key].kernels) > 1]
    assert {next(run.source.commands()).stores for run in others} == {3}, "three stores for four loads"
    for run in others:
        results[run.key].kernels[0].end_ps = 10**9
    assert experiment.answers(results)["inference/t-nlg/tp8/other_us"] == others_us


def test_kernels_of_a_layer_add_up():
    """A training step has 3 x 2 x 12 T H^2 / TP operations in GEMMs, and 3 x 4 T S H / TP in the attention core."""
    experiment = Layers(title="", models=(), heads={"t-nlg": 28})
    layer = experiment.layer("t-nlg/tp16", "training")
    assert layer.reduced() == ["op", "fc2", "fc1", "ip"]
    assert experiment.layer("t-nlg/tp16", "inference").reduced() == ["op", "fc2"]
    operations = {OperatorClass.MATRIX: 0, OperatorClass.ATTENTION: 0}
    for kind, text in layer.others():
        if text.startswith("gemm:"):
            sizes = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}
            operations[kind] += 2 * sizes["m"] * sizes["n"] * sizes["k"] * sizes.get("batch", 1)
    tokens, hidden = 8 * 1024, 4256
    sublayers = 2 * (1 + 4 + 4 + 3) * tokens * hidden**2 // 16
    assert operations[OperatorClass.MATRIX] + sublayers == 3 * 2 * 12 * tokens * hidden**2 // 16
    assert operations[OperatorClass.ATTENTION] == 3 * 4 * tokens * 1024 * hidden // 16


def test_the_experiment_of_the_documentation(tmp_path):
    (tmp_path / "half_link.toml").write_text(file_of("validation.md", "half_link.toml"))
    experiment = load_experiments(tmp_path)["half_link"]
    assert isinstance(experiment, Sublayers) and len({run.key for run in experiment.runs()}) == 18


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kind = "sublayers"\ntitle = "x"\nscenarios = ["paper"]\nspeed = 3\n', "speed"),
        ('kind = "rumour"\ntitle = "x"\n', "rumour"),
        ("kind = \n", "new.toml"),
    ],
)
def test_mistakes_in_files(tmp_path, text, words):
    (tmp_path / "new.toml").write_text(text)
    with pytest.raises(UserError, match=words):
        load_experiments(tmp_path)


@pytest.mark.parametrize("given", [{"tile": 3}, {"order": "spiral"}, {"m": 64}])
def test_mistakes_in_kernels(given):
    with pytest.raises(UserError, match="kernel"):
        Workbench(kernel=given).scenarios((NAME,))
