"""Training in PyTorch on H100, A100 and MI300X: blind predictions beside the throughput that others measured.

`python -m validation.against.training` writes `tables/training.md`. With `--predict` it first simulates the cases that
have no prediction yet (results in the store are used) and adds them to `predictions/training.csv`.

Cases are rows of the benchmark table of llm-foundry (scripts/train/benchmarking/README.md @8c8dd48: MPT with FSDP),
of torchtitan (docs/performance.md @395a526: Llama 2 with FSDP2) and of nanoGPT-amd (README.md @ccaddd8: GPT-2 on one
GPU): bf16, fused attention, gradients reduced in fp32, no compiler; and one by the author of nanoGPT-amd with
torch.compile on MI300X (ROCm/TransformerEngine, issue 79), with gradients reduced in bf16. When the predictions were
committed, only what says what ran had been read: of llm-foundry by a script, of the others by somebody else. Nothing
is calibrated with a row.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.model import ModelScenario
from tracer.models.catalogue import load_model, models
from tracer.models.deployment import Deployment, ModelPhase, Recompute, Software
from tracer.models.schedule import OperatorClass
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
WIDTHS = {"mpt-7b": (32, 4096, 32), "mpt-13b": (40, 5120, 40), "gpt2-1.5b": (48, 1600, 25)}
"""Layers, hidden size and heads of models with a plain MLP (llm-foundry, scripts/train/yamls/pretrain; nanoGPT-amd,
configs/gpt2-1.5b.json)."""
VOCAB = {"mpt": 50368, "gpt2": 50304}
H100, A100, MI300X = "h100_sxm", "a100_80g", "mi300x"


class Case(NamedTuple):
    """A row: preset, model, GPUs (all of one group that shares out weights), tokens of a sequence, sequences of a
    micro-batch, micro-batches, whether the backward pass computes activations again, software, and whether the time
    has the optimizer in it."""

    machine: str
    model: str
    gpus: int
    sequence: int
    micro_batch: int
    micro_batches: int
    recompute: int
    software: str
    optimizer: int

    @property
    def tokens(self) -> int:
        """Of an iteration of one GPU."""
        return self.sequence * self.micro_batch * self.micro_batches


FSDP1, FSDP2, COMPILED = Software.EAGER_2023, Software.EAGER, Software.COMPILE
CASES = (
    *(Case(H100, "mpt-13b", gpus, 2048, 2, 1, 0, FSDP1, 1) for gpus in (8, 16, 32, 64)),
    Case(A100, "mpt-13b", 8, 2048, 2, 3, 0, FSDP1, 1),
    Case(H100, "mpt-7b", 8, 2048, 6, 1, 0, FSDP1, 1),
    Case(H100, "gpt2-1.5b", 1, 1024, 8, 1, 0, FSDP1, 0),
    Case(A100, "llama-2-13b", 64, 4096, 2, 1, 0, FSDP2, 1),
    Case(A100, "mpt-7b", 8, 2048, 6, 2, 0, FSDP1, 1),
    Case(MI300X, "llama-3-8b", 8, 4096, 4, 1, 0, COMPILED, 0),
)
"""In the order in which they are simulated."""
IN_VIEW = "mpt-13b"
"""The model whose measured rows were known when the copies of FSDP were added. Predictions of all others are blind."""
RATE = "tokens_per_s_per_gpu"
HEADER = ("machine", "model", "GPUs", "tokens", "sequences", "micro-batches", "recomputes", "software", "optimizer")


def shape(case: Case) -> ModelShape:
    """The model."""
    if case.model in models():
        return load_model(case.model)
    if case.model not in WIDTHS:  # torchtitan, torchtitan/models/llama/__init__.py
        sizes = {"layers": 40, "hidden": 5120, "intermediate": 13824, "heads": 40, "kv_heads": 40}
        return replace(load_model("llama-2-7b"), name=case.model, **sizes)  # type: ignore[arg-type]
    layers, hidden, heads = WIDTHS[case.model]
    return ModelShape(
        name=case.model, layers=layers, hidden=hidden, intermediate=4 * hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, vocab=VOCAB[case.model.partition("-")[0]], max_positions=case.sequence, gated=False,
    )  # fmt: skip


def scenario(case: Case) -> ModelScenario:
    """What the row ran."""
    how = Deployment(
        phase=ModelPhase.TRAIN, dp=case.gpus, zero=3 if case.gpus > 1 else 0, micro_batch=case.micro_batch,
        micro_batches=case.micro_batches, sequence=case.sequence,
        recompute=Recompute.FULL if case.recompute else Recompute.NONE, software=Software(case.software),
    )  # fmt: skip
    return ModelScenario(load_preset(case.machine), shape(case), how, ACCURACY, overlap=False)


def read(path: Path) -> dict[Case, dict[str, str]]:
    """Case -> its row of a file."""
    found = {}
    for row in read_csv(path) if path.exists() else ():
        values = (row[name] for name in Case._fields)
        found[Case._make(int(value) if value.isdigit() else value for value in values)] = row
    return found


def write_predictions(store: Store) -> None:
    """Simulate the cases that have no prediction: one that is there was made before its value was known."""
    done: list[tuple[object, ...]] = [tuple(row.values()) for row in read_csv(PREDICTIONS)]
    for case in [case for case in CASES if case not in read(PREDICTIONS)]:
        times = classes(iteration(scenario(case), store), 1)
        if not case.optimizer:
            times["iteration"] -= times[OperatorClass.OPTIMIZER]
        rate = case.tokens / times.pop("iteration") * PS_PER_S / PS_PER_MS
        done.append((*case, f"{rate:.1f}", *(f"{time_ms:.1f}" for time_ms in times.values())))
        write_csv(PREDICTIONS, (*Case._fields, RATE, *(f"{name}_ms" for name in times)), done)


def table() -> str:
    """The page."""
    ours, rows = read(PREDICTIONS), []
    errors: dict[tuple[str, str], list[float]] = {}
    for case, row in read(REFERENCE).items():
        measured, predicted = (float(each[RATE]) for each in (row, ours[case]))
        error = predicted / measured - 1
        kind = "in view" if case.model == IN_VIEW else "blind"
        errors.setdefault((case.machine, kind), []).append(error)
        rows.append([*(str(value) for value in case), f"{measured:,.0f}", f"{predicted:,.0f}", f"{error:+.1%}", kind])
    means = []
    for (machine, kind), found in errors.items():
        absolute, mean = mean_errors(found)
        means.append([machine, kind, str(len(found)), f"{absolute:.1%}", f"{mean:+.1%}", f"{max(found, key=abs):+.1%}"])
    intro = (
        "Generated by `python -m validation.against.training`. Measured by others: "
        "`validation/references/training.csv`, tokens per second and GPU. Predicted: "
        "`validation/predictions/training.csv`. All GPUs of a row are one group that shares out the weights."
    )
    return to_markdown(
        [
            Heading("Training in PyTorch on H100, A100 and MI300X", 1),
            Text(intro),
            Table(("machine", "kind", "rows", "mean absolute error", "mean error", "worst"), means),
            notes(NOTES),
            Heading("All cases", 2),
            Table((*HEADER, "measured", "predicted", "error", "kind"), rows),
        ]
    )


@click.command()
@click.option("--predict", is_flag=True, help="Simulate the cases without a prediction.")
def main(predict: bool) -> None:
    """Write the page."""
    if predict:
        write_predictions(Store())
    write_page(TABLE, table())


if __name__ == "__main__":
    main()
