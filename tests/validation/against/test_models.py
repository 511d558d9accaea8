"""Models against measurements: cases fit their machines, rows are those of the references, verdicts are right."""

import math
import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from sim.presets import load_preset
from sim.run.dram import timing_sets
from sim.scenario.model import ModelScenario
from tracer.data_type import DataType
from tracer.gemm.batched import BatchedGemm
from tracer.gemm.source import GemmSource
from tracer.models.catalogue import load_model
from tracer.models.deployment import Recompute
from tracer.models.schedule import OperatorClass
from traces.units import PS_PER_MS
from validation.against import model_predictions, models
from validation.against.models import BertRow, Compared, Simulated, share_rows, shares
from validation.csv_file import read_csv
from validation.experiments import bert_layer
from validation.experiments.load import load_experiments


class Found(NamedTuple):
    time_ps: int


def test_every_operator_of_the_gpt3_layer_is_a_step():
    steps = {step.name for block, step in models.gpt3_layer().steps() if block.name == "layer"}
    assert {name for names in models.OPERATORS.values() for name in names} <= steps
    measured = {row["operator"] for row in models.rows("layer_gpt3_4xa100_prefill.csv")}
    assert measured == set(models.OPERATORS)


def test_the_cases_fit_their_machines():
    assert models.megatron(48, Recompute.FULL, False).how.gpus == 8
    assert models.megatron(48, Recompute.SELECTIVE, True).schedule.finish
    assert models.bert(BertRow(DataType.FP16, 64, 128, True)).how.micro_batches == 64
    assert models.bert(BertRow(DataType.FP32, 4, 512, False)).how.micro_batches == 512


def test_flagged_rows_are_left_out(monkeypatch):
    monkeypatch.setattr(models, "iteration", lambda scenario, store: Found(scenario.how.micro_batches * 300 * 10**9))
    compared = [models.bert_iterations(None, dtype) for dtype in (DataType.FP16, DataType.FP32)]
    measured = [[each.measured for each in rows] for rows in compared]
    assert measured == [[285.71, 373.13, 265.96], [640.0, 793.65, 478.47]]
    assert all(each.ours == 300 for rows in compared for each in rows)


def test_a_part_of_a_block_is_chosen():
    scenario = models.gpt3_layer()
    works = models.works_of(scenario, ["layer"], ["scores", "values"])
    assert works == {
        "gemm:m=2048,n=2048,k=128,batch=192,dtype=fp16",
        "gemm:m=2048,n=128,k=2048,batch=192,dtype=fp16",
    }
    found = Simulated(scenario, {work: models.Figures(10, 0, 0, "dram") for work in works})
    assert found.steps_ps(["scores", "values"]) == 20


def test_kernels_of_the_bert_layer():
    """GEMMs of the layer forward and backward; LayerNorm reads its input twice, its backward pass three times."""
    parts = [*bert_layer.FORWARD, *bert_layer.BACKWARD]
    v100 = load_preset("v100", models.V100_DGX)
    operations = 0
    for part in parts:
        for kernel in bert_layer.kernels_of(part, v100):
            if isinstance(kernel, GemmSource):
                problem = kernel.problem
                operations += part.number * 2 * problem.m * problem.n * problem.k
            elif isinstance(kernel, BatchedGemm):
                operations += part.number * kernel.flops
    tokens, hidden = 8 * 512, 1024
    assert operations == 3 * 2 * tokens * (12 * hidden**2 + 2 * 512 * hidden)
    assert sum(part.number for part in parts if not part.text) == 5
    lines = tokens * hidden * 2 // 128
    added = [(part.number, *bert_layer.kernels_of(part, v100)) for part in bert_layer.ADDED]
    assert sum(number * kernel.rows * kernel.cols for number, kernel in added) == 12 * hidden**2 + 13 * hidden
    (over_heads,) = bert_layer.head_sum()
    elements = 8 * 512**2  # of the sum over 16 heads
    assert over_heads.rows * over_heads.cols == elements and over_heads.line_requests == 17 * elements * 2 // 128 + 1
    (widened,) = (
        kernel for part in parts if part.text.endswith("out=fp32") for kernel in bert_layer.kernels_of(part, v100)
    )
    assert widened.line_requests == 3 * lines + 1  # two bytes read and four written for each element
    assert [len(kernel.inputs) for kernel in bert_layer.layernorm()] == [1, 1]
    *rest, columns = bert_layer.layernorm_back()
    assert len(rest) == 3 and columns.info.workgroups == 32 and columns.line_requests == 2 * lines + 1


def test_verdicts():
    assert Compared("a", 10, 10.75, 0.08).cells == ["a", "10.00", "10.75", "+7.5 %", "reached"]
    assert Compared("a", 10, 8.0, 0.08).cells[-1] == "missed"
    assert Compared("a", 10, 8.0, 0).cells[-1] == "-"
    assert shares({"a": 3, "b": 1}) == {"a": 75, "b": 25}
    assert share_rows({"a": 75.0}, {"a": 79.0}) == [["a", "75.0 %", "79.0 %", "+4.0", "missed"]]


@pytest.mark.parametrize("part", models.PARTS)
def test_the_table_has_every_part(part):
    shares_of = [["x", "1 %", "1 %", "+0.0", "reached"]] if part in ("gpt3", "bert_layer") else []
    text = models.table({part: ([Compared("case", 10, 10, 0.1)], shares_of)})
    assert all(other in text for other in models.PARTS if other != part)  # as not simulated yet
    assert "| case | 10.00 | 10.00 | +0.0 % | reached |" in text and ("| x |" in text) == bool(shares_of)


def test_predicted_models_fit_their_gpus():
    for name in model_predictions.GPT_ITERATIONS:
        how = replace(models.megatron(1, Recompute.SELECTIVE, True).how, micro_batch=1)
        how = replace(how, **model_predictions.GPT_ITERATIONS[name])
        scenario = ModelScenario(load_preset("a100_80g"), load_model(name), how, overlap=False)
        assert scenario.schedule.stages * 8 == how.gpus


def test_the_smaller_a100_has_the_same_dram_times_at_its_clock():
    hbm, times = load_preset("a100_80g", model_predictions.A100_40).machine.hbm, timing_sets()["R"]
    assert hbm.channels * 16 * hbm.clock_MHz == pytest.approx(1_555_000, rel=1e-3)  # MB/s
    clocks = {name: value * hbm.clock_MHz / times["clock_MHz"] for name, value in times["timing"].items()}
    wanted = {name: math.ceil(value) for name, value in clocks.items()}
    standard = {name: times["timing"][name] for name in ("burst", "CCD_S", "CCD_L", "CCDWL")}
    wanted |= standard | {"REFI": math.floor(clocks["REFI"]), "RC": wanted["RAS"] + wanted["RP"]}
    wanted["RTW"] = wanted["CL"] + wanted["burst"] + 2 - wanted["WL"]
    assert {name: getattr(hbm.timing, name) for name in wanted} == wanted


def test_predictions_are_of_the_known_cases():
    rows = read_csv(model_predictions.PATH)
    assert {row["case"] for row in rows} <= set(model_predictions.CASES)
    assert all(row["kind"] == "blind" and float(row["time_ms"]) >= 0 for row in rows)
    assert all(re.fullmatch("[0-9a-f]{12}", row["code"]) for row in rows)
    assert all(re.fullmatch("[0-9a-f]{7,9}", row["revision"]) for row in rows)


def test_a_prediction_of_earlier_code_stays(tmp_path, monkeypatch):
    path = tmp_path / "models.csv"
    head = ",".join(model_predictions.COLUMNS)
    case = "BERT-Large, tf32, 4 x 512, A100-80"
    path.write_text(f'{head}\n"{case}",A100-80,iteration,3.0000,blind,0123456789ab,abcdefabc\n', encoding="utf-8")
    monkeypatch.setattr(model_predictions, "PATH", path)
    monkeypatch.setattr(model_predictions, "current_revision", lambda: "123456789")
    monkeypatch.setattr(sys, "argv", ["model_predictions", "--only", case])
    found = models.ConfigurationTime(512 * 10**9, dict.fromkeys(OperatorClass, 0), 0, 0, None)
    for time_ps in (512 * 10**9, 1024 * 10**9):
        monkeypatch.setattr(model_predictions, "iteration", lambda *_, time_ps=time_ps: replace(found, time_ps=time_ps))
        model_predictions.main()
    rows = [row for row in read_csv(path) if row["figure"] == "iteration"]
    assert [(row["time_ms"], row["revision"]) for row in rows] == [("3.0000", "abcdefabc"), ("2.0000", "123456789")]


def test_the_time_of_the_bert_layer_is_that_of_its_own_kernels():
    """A run begins with a kernel that fills L2, whose time does not count."""
    layer = load_experiments()["bert_layer"]
    parts = [*bert_layer.FORWARD, *bert_layer.BACKWARD]
    assert {part.kind for part in parts} == {"contraction", "normalisation", "element-wise"}
    filling, each = (SimpleNamespace(time_ps=time_ps) for time_ps in (PS_PER_MS, 1000))
    results = {
        run.key: SimpleNamespace(kernels=[filling, *[each] * (len([*run.source.commands()]) - 1)])
        for run in layer.runs()
    }
    kernels = sum(part.number * len(bert_layer.kernels_of(part, load_preset("v100"))) for part in parts)
    gap_ps = load_preset("v100").machine.dispatch.gap_ps
    assert layer.answers(results)["time_ms"] == pytest.approx(kernels * (1000 + gap_ps) / PS_PER_MS)
