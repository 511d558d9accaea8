"""Blind predictions: layers and iterations of models that this project has not compared with a measurement.

`python -m validation.against.model_predictions` simulates every case and writes `predictions/models.csv`; `--only`
makes some cases. Rows of other cases and of earlier code stay: a blind prediction is not changed, and the last rows of
a case are those of the newest code. Machines, links and software are those of `validation.against.models`. The file was
committed before any measurement of these cases was at hand in this project.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.presets import load_preset
from sim.run import run
from sim.run.code import code_key
from sim.run.store import Store
from sim.scenario.iteration import ConfigurationTime
from sim.scenario.model import ModelScenario
from tracer.data_type import DataType
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Optimizer, Recompute, Software
from tracer.models.schedule import OperatorClass
from traces.units import PS_PER_MS
from validation.against import models
from validation.against.models import ACCURACY, BERT, OPERATORS, iteration, simulate
from validation.csv_file import read_csv, write_csv
from validation.revision import current_revision

PATH = Path(__file__).parents[1] / "predictions" / "models.csv"
COLUMNS = ("case", "machine", "figure", "time_ms", "kind", "code", "revision")
CODE_DIGITS = 12
"""Of the hash of the simulator's code (`sim.run.code`) that made a row. Column `revision`: the commit, whose
links and schedules the row has."""
A100_40_TIMING = {
    "CL": 18, "WL": 7, "RCD_rd": 18, "RCD_wr": 15, "RP": 18, "RAS": 42, "RC": 60, "RRD_S": 5, "RRD_L": 5, "FAW": 19,
    "RTP": 7, "WR": 20, "WTR_S": 8, "WTR_L": 10, "RTW": 15, "REFI": 4738, "RFC": 426,
}  # fmt: skip
A100_40 = (
    *("hbm.clock_MHz=1215", "hbm.capacity_bytes=42949672960"),
    *(f"hbm.timing.{name}={clocks}" for name, clocks in A100_40_TIMING.items()),
)
"""A100 SXM4 40 GB (data sheet): 1555 GB/s. The times of its DRAM are those of preset `a100_80g` at this clock."""
ONE_A100 = {"A100-80": ("A100-80", ()), "A100-40": ("A100-40: 1555 GB/s, 40 GB", A100_40)}
"""Name in a case -> column `machine`, what differs from preset `a100_80g`."""
GPT_ITERATIONS: dict[str, dict[str, Any]] = {
    "gpt-175b": {"pp": 8, "interleave": 3, "micro_batches": 64},
    "gpt-530b": {"pp": 35, "interleave": 3, "micro_batches": 280},
    "gpt-1t": {"pp": 64, "interleave": 1, "micro_batches": 512},
}
"""arXiv 2205.05198, Table 3: tensor parallelism 8, micro-batches of one sequence of 2048 tokens."""
STEP_SEQUENCES = {128: 4096, 512: 2048}
"""BERT-Large: tokens of a sequence -> sequences of a step and GPU (the two phases of the pre-training)."""
PREDICTIONS = {128: 20, 512: 80}
"""BERT-Large: tokens of a sequence -> words that are predicted (NVIDIA/DeepLearningExamples, run_pretraining.sh)."""
BERT_SHAPES = (
    *((DataType.FP16, 64, 128), (DataType.FP16, 8, 512)),
    *((DataType.TF32, 64, 128), (DataType.TF32, 32, 128), (DataType.TF32, 4, 512)),
)
"""Type, sequences, tokens: shapes of `references/iteration_bert_large_v100.csv`, with tf32 instead of fp32."""
PRECISIONS = models.PRECISIONS | {DataType.TF32: "tf32"}
Figures = dict[str, float]
"""What a row is about -> ms."""


def gpt3_generation(store: Store) -> Figures:
    """A layer of GPT-3 that makes a token for 8 sequences, by operator; each with the launch of a kernel alone."""
    how = replace(models.gpt3_layer().how, phase=ModelPhase.GENERATE, kv_length=3071)
    model = replace(load_model("gpt-175b"), layers=1, max_positions=4096)
    scenario = ModelScenario(load_preset("a100_80g"), model, how, 0.0, overlap=False)
    found = simulate(scenario, store, ["layer"], {name for names in OPERATORS.values() for name in names})
    dispatch = scenario.preset.machine.dispatch
    launch_ms = (dispatch.launch_ps - dispatch.gap_ps) / PS_PER_MS
    times = {name: found.steps_ps(steps) / PS_PER_MS for name, steps in OPERATORS.items()}
    kernels = {name: 0 if name.startswith("AllReduce") else len(steps) for name, steps in OPERATORS.items()}
    times = {name: value + kernels[name] * launch_ms for name, value in times.items()}
    return times | {"all operators": sum(times.values())}


def megatron_layer(recompute: Recompute, sequence_parallel: bool) -> Callable[[Store], Figures]:
    """The 22 B layer of arXiv 2205.05198, forward and backward."""

    def predict(store: Store) -> Figures:
        found = simulate(models.megatron(1, recompute, sequence_parallel), store, ["layer", "backward"])
        return {name: found.once_ps(block) / PS_PER_MS for name, block in (("forward", "layer"), ("backward",) * 2)}

    return predict


def gpt_iteration(name: str, recompute: Recompute, sequence_parallel: bool) -> Callable[[Store], Figures]:
    """An iteration of a larger model of arXiv 2205.05198."""

    def predict(store: Store) -> Figures:
        how = replace(models.megatron(1, recompute, sequence_parallel).how, micro_batch=1, **GPT_ITERATIONS[name])
        scenario = ModelScenario(load_preset("a100_80g"), load_model(name), how, ACCURACY, overlap=False)
        return classes(iteration(scenario, store), 1)

    return predict


def bert_iteration(machine: tuple[str, ...], dtype: DataType, batch: int, sequence: int) -> Callable[[Store], Figures]:
    """A micro-batch of NVIDIA's BERT-Large of 2021 on one A100; as many micro-batches a step as on a V100."""

    def predict(store: Store) -> Figures:
        how = Deployment(
            phase=ModelPhase.TRAIN, micro_batch=batch, sequence=sequence, dtype=dtype, flash=False, dropout=True,
            micro_batches=STEP_SEQUENCES[sequence] // batch, optimizer=Optimizer.LAMB, software=Software.FUSED,
            predictions=PREDICTIONS[sequence],
        )  # fmt: skip
        scenario = ModelScenario(load_preset("a100_80g", machine), BERT, how, ACCURACY, overlap=False)
        return classes(iteration(scenario, store), how.micro_batches)

    return predict


def classes(found: ConfigurationTime, parts: int) -> Figures:
    """The time of an iteration and of its classes, each divided by `parts`."""
    times = {"iteration": found.time_ps, **{str(name): value for name, value in found.class_ps.items()}}
    del times[OperatorClass.COMMUNICATION]
    times |= {"exposed communication": found.exposed_ps, "other stages of the pipeline": found.bubble_ps}
    return {name: value / parts / PS_PER_MS for name, value in times.items()}


SELECTIVE, NONE, FULL = Recompute.SELECTIVE, Recompute.NONE, Recompute.FULL
CASES: dict[str, tuple[str, Callable[[Store], Figures]]] = {
    "GPT-3 layer, generation": ("4 A100-80", gpt3_generation),
    "22 B layer, sequence parallelism": ("8 A100-80", megatron_layer(NONE, True)),
    "22 B layer, selective recomputation": ("8 A100-80", megatron_layer(SELECTIVE, False)),
    "22 B layer, sequence parallelism, selective recomputation": ("8 A100-80", megatron_layer(SELECTIVE, True)),
    **{
        f"{name}, full recomputation": (f"{8 * how['pp']} A100-80", gpt_iteration(name, FULL, False))
        for name, how in GPT_ITERATIONS.items()
    },
    **{
        f"{name}, sequence parallelism, selective recomputation": (
            *(f"{8 * how['pp']} A100-80", gpt_iteration(name, SELECTIVE, True)),
        )
        for name, how in GPT_ITERATIONS.items()
    },
    **{
        f"BERT-Large, {PRECISIONS[dtype]}, {batch} x {sequence}, {name}": (
            *(machine, bert_iteration(overrides, dtype, batch, sequence)),
        )
        for name, (machine, overrides) in ONE_A100.items()
        for dtype, batch, sequence in BERT_SHAPES
    },
}
"""Case -> machine, what predicts it. Iterations of BERT-Large: times of a micro-batch with its share of LAMB."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Predict layers and iterations of models.")
    parser.add_argument("--only", nargs="*", choices=[*CASES], default=[*CASES], help="these cases only")
    store = Store()
    rows = read_csv(PATH) if PATH.exists() else []
    code, revision = code_key(run.__name__)[:CODE_DIGITS], current_revision()
    for name in parser.parse_args().only:
        machine, predict = CASES[name]
        values = [
            (name, machine, figure, f"{time_ms:.4f}", "blind", code, revision)
            for figure, time_ms in predict(store).items()
        ]
        rows = [row for row in rows if (row["case"], row["code"]) != (name, code)]
        rows += [dict(zip(COLUMNS, row, strict=True)) for row in values]
        rows.sort(key=lambda row: [*CASES].index(row["case"]))
        write_csv(PATH, COLUMNS, (row.values() for row in rows))


if __name__ == "__main__":
    main()
