"""Training of MPT models on H100 and A100: blind predictions beside the throughput that others measured.

`python -m validation.against.training` writes `tables/training.md`. With `--predict` it first simulates all cases
(results in the store are used) and writes `predictions/training.csv`, a row as soon as it is there.

Cases are rows of the benchmark table of llm-foundry (scripts/train/benchmarking/README.md @8c8dd48): MPT in PyTorch
(FSDP, FlashAttention, autocast to bf16, gradients reduced in fp32). When the predictions were committed, only the
columns that say what ran had been read. Nothing is calibrated with a row.
"""

from pathlib import Path
from typing import NamedTuple

import click

from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.model import ModelScenario
from tracer.models.deployment import Deployment, ModelPhase, Recompute, Software
from tracer.models.shape import ModelShape
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.units import PS_PER_MS, PS_PER_S
from validation.against.model_predictions import classes
from validation.against.models import ACCURACY, iteration
from validation.csv_file import read_csv, write_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
PREDICTIONS = HERE / "predictions" / "training.csv"
REFERENCE = HERE / "references" / "training.csv"
NOTES = HERE / "against" / "training_notes.md"
TABLE = HERE / "tables" / "training.md"
SHAPES = {
    "1b": (24, 2048, 16), "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56),
}  # fmt: skip
"""Layers, hidden size and heads of MPT (llm-foundry, scripts/train/yamls/pretrain)."""
VOCAB = 50368
H100, A100 = "h100_sxm", "a100_80g"


class Case(NamedTuple):
    """A row: preset, model, GPUs (all of FSDP), tokens of a sequence, sequences of a micro-batch, micro-batches, and
    whether the backward pass computes activations again."""

    machine: str
    model: str
    gpus: int
    sequence: int
    micro_batch: int
    micro_batches: int
    recompute: int

    @property
    def tokens(self) -> int:
        """Of an iteration of one GPU."""
        return self.sequence * self.micro_batch * self.micro_batches


CASES = (
    *(Case(H100, "13b", gpus, 2048, 2, 1, 0) for gpus in (8, 16, 32, 64)),
    Case(A100, "13b", 8, 2048, 2, 3, 0),
    Case(H100, "7b", 8, 2048, 6, 1, 0),
    Case(A100, "7b", 8, 2048, 6, 2, 0),
    Case(H100, "1b", 8, 2048, 14, 1, 0),
    Case(A100, "1b", 8, 2048, 14, 4, 0),
    Case(H100, "3b", 64, 2048, 6, 3, 0),
    Case(A100, "3b", 8, 2048, 10, 2, 0),
    Case(H100, "30b", 32, 2048, 14, 3, 1),
)
"""In the order in which they are simulated."""
RATE = "tokens_per_s_per_gpu"
HEADER = ("machine", "model", "GPUs", "tokens", "sequences", "micro-batches", "recomputes")


def scenario(case: Case) -> ModelScenario:
    """What the row ran."""
    layers, hidden, heads = SHAPES[case.model]
    shape = ModelShape(
        name=f"mpt-{case.model}", layers=layers, hidden=hidden, intermediate=4 * hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, vocab=VOCAB, max_positions=case.sequence, gated=False,
    )  # fmt: skip
    how = Deployment(
        phase=ModelPhase.TRAIN, dp=case.gpus, zero=3, micro_batch=case.micro_batch, micro_batches=case.micro_batches,
        sequence=case.sequence, recompute=Recompute.FULL if case.recompute else Recompute.NONE,
        software=Software.EAGER_2023,
    )  # fmt: skip
    return ModelScenario(load_preset(case.machine), shape, how, ACCURACY, overlap=False)


def read(path: Path) -> dict[Case, dict[str, str]]:
    """Case -> its row of a file."""
    found = {}
    for row in read_csv(path) if path.exists() else ():
        machine, model, *numbers = (row[name] for name in Case._fields)
        found[Case(machine, model, *map(int, numbers))] = row
    return found


def write_predictions(store: Store) -> None:
    """Simulate every case; the file has all finished ones at any time."""
    done: list[tuple[object, ...]] = []
    for case in CASES:
        times = classes(iteration(scenario(case), store), 1)
        rate = case.tokens / times.pop("iteration") * PS_PER_S / PS_PER_MS
        done.append((*case, f"{rate:.1f}", *(f"{time_ms:.1f}" for time_ms in times.values())))
        write_csv(PREDICTIONS, (*Case._fields, RATE, *(f"{name}_ms" for name in times)), done)


def table() -> str:
    """The page."""
    ours, rows = read(PREDICTIONS), []
    errors: dict[str, list[float]] = {}
    for case, row in read(REFERENCE).items():
        measured, predicted = (float(each[RATE]) for each in (row, ours[case]))
        error = predicted / measured - 1
        errors.setdefault(case.machine, []).append(error)
        rows.append([*map(str, case), f"{measured:,.0f}", f"{predicted:,.0f}", f"{error:+.1%}"])
    means = []
    for machine, found in errors.items():
        absolute, mean = mean_errors(found)
        means.append([machine, str(len(found)), f"{absolute:.1%}", f"{mean:+.1%}", f"{max(found, key=abs):+.1%}"])
    intro = (
        "Generated by `python -m validation.against.training`. Measured by others: "
        "`validation/references/training.csv`, tokens per second and GPU. Predicted blind: "
        "`validation/predictions/training.csv`. All GPUs are one group of FSDP."
    )
    return to_markdown(
        [
            Heading("Training of MPT models on H100 and A100", 1),
            Text(intro),
            Table(("machine", "rows", "mean absolute error", "mean error", "worst"), means),
            notes(NOTES),
            Heading("All cases", 2),
            Table((*HEADER, "measured", "predicted", "error"), rows),
        ]
    )


@click.command()
@click.option("--predict", is_flag=True, help="Simulate, and write the predictions.")
def main(predict: bool) -> None:
    """Write the page."""
    if predict:
        write_predictions(Store())
    write_page(TABLE, table())


if __name__ == "__main__":
    main()
