"""Layers and training iterations of real models against measurements.

`python -m validation.against.models` simulates the steps of every case (results in the store are used) and writes
`tables/models.md`. Measured: `references/layer_*.csv`, `references/iteration_*.csv`. Each case is a model of
`t3sim model` with the software that ran it. Nothing is calibrated with a measurement of a model: clocks are those of
the data sheets, collectives those of the preset's library, and between two kernels is `dispatch.gap_ps` of the preset.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sim.presets import load_preset
from sim.run.store import Store, run_or_get
from sim.scenario.iteration import ConfigurationTime
from sim.scenario.model import ModelResult, ModelScenario
from sim.scenario.result import SEQUENTIAL
from sim.scenario.scheduled import Figures, assemble_schedule, work_figures
from sim.scenario.timeline import Timeline
from tracer.data_type import DataType
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Optimizer, Recompute, Software
from tracer.models.schedule import Block as ModelBlock
from tracer.models.schedule import Exchange
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.units import PS_PER_MS
from validation.csv_file import read_csv
from validation.experiments.load import load_experiments

HERE = Path(__file__).parents[1]
REFERENCES = HERE / "references"
NOTES = HERE / "against" / "models_notes.md"
TABLE = HERE / "tables" / "models.md"
ACCURACY = 0.01
"""Of the simulated times, as of `t3sim model --accuracy 1%`."""
LAYER_GOAL, SHARE_GOAL, ITERATION_GOAL = 0.08, 3.0, 0.12
"""Greatest relative error of a layer, difference of a share in points, and relative error of an iteration."""

V100_DGX = (*(f"{unit}.clock_MHz=1530" for unit in ("cu", "noc", "l2")), "hbm.capacity_bytes=34359738368")
"""V100 SXM2 32 GB: 1530 MHz (V100 data sheet: boost clock, 125 TFLOP/s); one clock for all, as in the preset."""
GEMM_CLOCK_MHZ = 1357.5
"""Clock of an A100-80 under cuBLAS GEMMs of 309 GFLOP, as the largest of the 22 B layer: mean of 1365 and 1350 MHz (K =
6144 and 12288; column `sm_clock_MHz` of `references/gemm_with_collective_a100.csv`)."""
BERT = replace(load_model("bert-large"), vocab=30528)
"""NVIDIA's BERT: its vocabulary is padded to a multiple of 8."""
OPERATORS = {
    "Q_K_V": ("q", "k", "v"),
    "Q_mul_K": ("scores",),
    "A_mul_V": ("values",),
    "Wo_proj": ("output",),
    "W1_proj": ("mlp_up",),
    "W2_proj": ("mlp_down",),
    "Softmax": ("softmax",),
    "LayerNorm_MHA": ("attention_norm",),
    "LayerNorm_FFN": ("attention_norm",),
    "GeLU": ("mlp_activation",),
    "AllReduce_MHA": ("attention_reduce",),
    "AllReduce_FFN": ("mlp_reduce",),
}
"""Operator of `layer_gpt3_4xa100_prefill.csv` -> steps of a layer."""
PRECISIONS = {DataType.FP16: "fp16 mixed", DataType.FP32: "fp32"}
"""Type of the activations -> column `precision` of `iteration_bert_large_v100.csv`."""
PUBLISHED_BERT_MS = 9.14
PUBLISHED_BERT_SHARES = {"contraction": 61.0, "normalisation": 25.5, "element-wise": 13.5}
"""PyTorch's encoder layer of BERT-Large on a V100 (`validation.experiments.bert_layer`); percent of its time."""


def rows(name: str) -> list[dict[str, str]]:
    """Rows of a file of references."""
    return read_csv(REFERENCES / name)


def gpt3_layer() -> ModelScenario:
    """A layer of GPT-3 on four A100 as its operators were measured: each a kernel of PyTorch or of cuBLAS."""
    how = Deployment(tp=4, micro_batch=8, sequence=2048, dtype=DataType.FP16, flash=False, software=Software.EAGER)
    model = replace(load_model("gpt-175b"), layers=1)
    return ModelScenario(load_preset("a100_80g"), model, how, ACCURACY, overlap=False)


def megatron(layers: int, recompute: Recompute, sequence_parallel: bool) -> ModelScenario:
    """The 22 B model of arXiv 2205.05198 on eight A100."""
    how = Deployment(
        phase=ModelPhase.TRAIN, tp=8, micro_batch=4, sequence=2048, dtype=DataType.FP16, flash=False, dropout=True,
        software=Software.MEGATRON, recompute=recompute, sequence_parallel=sequence_parallel,
    )  # fmt: skip
    model = replace(load_model("gpt-22b"), layers=layers)
    return ModelScenario(load_preset("a100_80g"), model, how, ACCURACY, overlap=False)


class BertRow(NamedTuple):
    """What a row of `iteration_bert_large_v100.csv` ran. newer: the code of 2021, with words predicted where masked."""

    dtype: DataType
    batch: int
    sequence: int
    newer: bool


def bert(row: BertRow) -> ModelScenario:
    """NVIDIA's BERT-Large on one V100, with LAMB; 4096 sequences of 128 tokens or 2048 of 512 per step and GPU."""
    how = Deployment(
        phase=ModelPhase.TRAIN, micro_batch=row.batch, sequence=row.sequence, dtype=row.dtype, flash=False,
        micro_batches=(4096 if row.sequence == 128 else 2048) // row.batch, dropout=True, optimizer=Optimizer.LAMB,
        software=Software.FUSED if row.newer else Software.EAGER_2019, predictions=20 if row.newer else 0,
    )  # fmt: skip
    return ModelScenario(load_preset("v100", V100_DGX), BERT, how, ACCURACY, overlap=False)


@dataclass
class Simulated:
    """Figures of the steps of some blocks of a model."""

    scenario: ModelScenario
    figures: Mapping[str | Exchange, Figures]

    def block(self, name: str) -> ModelBlock:
        return next(block for block in self.scenario.schedule.blocks() if block.name == name)

    def once_ps(self, name: str) -> int:
        """Time of a block once."""
        timeline = Timeline()
        timeline.play([replace(self.block(name), repeats=1)], lambda _, step: self.figures[step.work].step_time)
        return timeline.end_ps

    def steps_ps(self, names: Iterable[str]) -> int:
        """Sum of the times of some steps of a layer."""
        return sum(self.figures[step.work].time_ps for step in self.block("layer").steps if step.name in names)


def works_of(scenario: ModelScenario, blocks: Iterable[str], names: Iterable[str]) -> set[str | Exchange]:
    """Kernels and exchanges of these blocks; of steps with these names only, empty = all."""
    chosen = set(names)
    steps = [(block, step) for block, step in scenario.steps() if block.name in set(blocks)]
    return {step.work for _, step in steps if not chosen or step.name in chosen}


def simulate(scenario: ModelScenario, store: Store, blocks: Iterable[str], names: Iterable[str] = ()) -> Simulated:
    """Simulate these blocks of a model, or take their results from the store."""
    works = sorted(works_of(scenario, blocks, names), key=str)
    runs = [run for work in works for run in scenario.step_runs(work)]
    results = {run.key: run_or_get(run, store).result for run in runs}
    return Simulated(scenario, {work: work_figures(scenario, work, results) for work in works})


def whole(scenario: ModelScenario, store: Store) -> ModelResult:
    """A model with all its runs."""
    return assemble_schedule(scenario, {run.key: run_or_get(run, store).result for run in scenario.runs()})


def iteration(scenario: ModelScenario, store: Store) -> ConfigurationTime:
    """An iteration in order."""
    return whole(scenario, store).configurations[SEQUENTIAL]


class Compared(NamedTuple):
    """A measured and a simulated value; goal: greatest relative error, 0 = none."""

    name: str
    measured: float
    ours: float
    goal: float

    @property
    def error(self) -> float:
        return self.ours / self.measured - 1

    @property
    def cells(self) -> list[str]:
        """Name, measured, ours, error, verdict."""
        verdict = "-" if not self.goal else "reached" if abs(self.error) <= self.goal else "missed"
        return [self.name, f"{self.measured:,.2f}", f"{self.ours:,.2f}", f"{100 * self.error:+.1f} %", verdict]


def shares(values: Mapping[str, float]) -> dict[str, float]:
    """Percent of the sum."""
    return {name: 100 * value / sum(values.values()) for name, value in values.items()}


def share_rows(measured: Mapping[str, float], ours: Mapping[str, float]) -> list[list[str]]:
    """Name, share measured, ours, difference in points, verdict."""
    found = []
    for name, share in measured.items():
        points = ours[name] - share
        verdict = "reached" if abs(points) <= SHARE_GOAL else "missed"
        found.append([name, f"{share:.1f} %", f"{ours[name]:.1f} %", f"{points:+.1f}", verdict])
    return found


def gpt3(store: Store) -> tuple[list[Compared], list[list[str]]]:
    """The operators of the GPT-3 layer and their sum, in ms; their shares."""
    names = {name for steps in OPERATORS.values() for name in steps}
    found = simulate(gpt3_layer(), store, ["layer"], names)
    measured = {row["operator"]: float(row["time_us"]) / 1000 for row in rows("layer_gpt3_4xa100_prefill.csv")}
    ours = {name: found.steps_ps(steps) / PS_PER_MS for name, steps in OPERATORS.items()}
    compared = [Compared(f"GPT-3 layer, {name}", measured[name], ours[name], 0) for name in OPERATORS]
    whole = Compared("GPT-3 layer, all operators", sum(measured.values()), sum(ours.values()), LAYER_GOAL)
    return [*compared, whole], share_rows(shares(measured), shares(ours))


def at_clock(found: Simulated, clock_MHz: float) -> Simulated:
    """The same steps with kernels that the matrix units bound at another clock: computed, not simulated."""
    ratio = found.scenario.preset.machine.cu.clock_MHz / clock_MHz

    def slower(figures: Figures) -> Figures:
        times = {name: round(getattr(figures, name) * ratio) for name in ("time_ps", "beside_ps")}
        return replace(figures, **times) if figures.bound_by == "tensor" else figures

    return Simulated(found.scenario, {work: slower(each) for work, each in found.figures.items()})


def megatron_layer(store: Store) -> list[Compared]:
    """The 22 B layer at the clock of the preset, in ms, with goals; then at the clock of large GEMMs."""
    found = simulate(megatron(1, Recompute.NONE, False), store, ["layer", "backward"])
    slower = [
        each._replace(goal=0) for each in layer_rows(at_clock(found, GEMM_CLOCK_MHZ), f", {GEMM_CLOCK_MHZ:g} MHz")
    ]
    return [*layer_rows(found, ""), *slower]


def layer_rows(found: Simulated, where: str) -> list[Compared]:
    """The 22 B layer forward, backward, and backward with what it computes again, in ms. where: behind each name."""
    forward, backward = (found.once_ps(name) / PS_PER_MS for name in ("layer", "backward"))
    plain, full = rows("layer_megatron_22b.csv")
    pairs = {
        "forward": (plain["forward_ms"], forward),
        "backward": (plain["backward_ms_incl_recompute"], backward),
        "forward and backward": (plain["sum_ms"], forward + backward),
        "with full recomputation": (full["sum_ms"], 2 * forward + backward),
    }
    return [Compared(f"22 B layer, {name}{where}", float(ms), ours, LAYER_GOAL) for name, (ms, ours) in pairs.items()]


def bert_layer(store: Store) -> tuple[list[Compared], list[list[str]]]:
    """The encoder layer of arXiv 2007.00072, in ms, and the shares of its classes."""
    experiment = load_experiments()["bert_layer"]
    answers = experiment.answers({run.key: run_or_get(run, store).result for run in experiment.runs()})
    ours = {name: answers[f"{name}_share"] for name in PUBLISHED_BERT_SHARES}
    whole = Compared("BERT-Large layer, V100, fp16", PUBLISHED_BERT_MS, answers["time_ms"], LAYER_GOAL)
    return [whole], share_rows(PUBLISHED_BERT_SHARES, ours)


def bert_iterations(store: Store, dtype: DataType) -> list[Compared]:
    """Rows of one DGX-1 GPU, per micro-batch in ms; rows that say they are not for validation are left out."""
    compared = []
    for row in rows("iteration_bert_large_v100.csv"):
        if "DGX-1" not in row["gpu"] or row["gpus"] != "1" or "do not validate" in row["note"]:
            continue
        if row["precision"] != PRECISIONS[dtype]:
            continue
        newer = "21.11" in row["source"]
        scenario = bert(BertRow(dtype, int(row["micro_batch_per_gpu"]), int(row["seq_len"]), newer))
        ours = iteration(scenario, store).time_ps / scenario.how.micro_batches / PS_PER_MS
        name = f"BERT-Large, V100, {row['precision']}, {row['micro_batch_per_gpu']} x {row['seq_len']}, "
        name += "container 21.11" if newer else "container 19.07"
        measured = float(row["ms_per_micro_batch_incl_amortised_optimizer_and_allreduce"])
        compared.append(Compared(name, measured, ours, ITERATION_GOAL))
    return compared


def megatron_iterations(store: Store) -> list[Compared]:
    """The two iterations of the 22 B model, in ms."""
    (row,) = rows("iteration_megatron_22b.csv")
    full = iteration(megatron(48, Recompute.FULL, False), store).time_ps / PS_PER_MS
    selective = iteration(megatron(48, Recompute.SELECTIVE, True), store).time_ps / PS_PER_MS
    return [
        Compared("22 B, full recomputation", 1000 * float(row["full_recompute_s"]), full, ITERATION_GOAL),
        Compared(
            "22 B, sequence parallelism, selective recomputation",
            *(1000 * float(row["sequence_parallel_selective_s"]), selective, ITERATION_GOAL),
        ),
    ]


Part = Callable[[Store], tuple[list[Compared], list[list[str]]]]
PARTS: dict[str, Part] = {
    "gpt3": gpt3,
    "megatron_layer": lambda store: (megatron_layer(store), []),
    "bert_layer": bert_layer,
    "bert_fp16": lambda store: (bert_iterations(store, DataType.FP16), []),
    "bert_fp32": lambda store: (bert_iterations(store, DataType.FP32), []),
    "megatron": lambda store: (megatron_iterations(store), []),
}
"""Name of a part of the table -> what makes it: (rows of times, rows of shares)."""


def table(found: Mapping[str, tuple[list[Compared], list[list[str]]]]) -> str:
    """The page as Markdown, with the explanation of NOTES. found: part -> its rows."""
    head = (
        "Generated by `python -m validation.against.models`. Measured: `validation/references/layer_*.csv` and "
        "`iteration_*.csv`. Times in ms. Goals: a layer within 8 %, its shares within 3 points, an iteration within "
        "12 %."
    )
    missing = [name for name in PARTS if name not in found]
    if missing:
        head += f" Not simulated yet: {', '.join(missing)} (`--only` has the other parts)."
    times = [each.cells for rows_of_times, _ in found.values() for each in rows_of_times]
    blocks: list[Block] = [
        Heading("Layers and iterations of models against measurements", 1),
        Text(head),
        Table(("case", "measured", "ours", "error", "goal"), times),
    ]
    titles = {"gpt3": "GPT-3 layer: share of each operator", "bert_layer": "BERT-Large layer: share of each class"}
    for name, (_, share) in found.items():
        if share:
            blocks.append(Heading(titles[name], 2))
            blocks.append(Table(("operator", "measured", "ours", "points", "goal"), share))
    return to_markdown([*blocks, notes(NOTES)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare models with measurements.")
    parser.add_argument("--only", nargs="*", choices=[*PARTS], default=[*PARTS], help="parts of the page")
    store = Store()
    write_page(TABLE, table({name: PARTS[name](store) for name in parser.parse_args().only}))


if __name__ == "__main__":
    main()
