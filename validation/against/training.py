"""Training on H100, A100 and MI300X: blind predictions beside the throughput that others measured.

`python -m validation.against.training` writes `tables/training.md`. With `--predict` it first simulates the cases that
have no prediction yet (results in the store are used) and adds them to `predictions/training.csv`.

Cases are rows of the benchmark table of llm-foundry (scripts/train/benchmarking/README.md @8c8dd48: MPT with FSDP),
of torchtitan (docs/performance.md @395a526: Llama 2 with FSDP2) and of nanoGPT-amd (README.md @ccaddd8: GPT-2 on one
GPU): bf16, fused attention, gradients reduced in fp32, no compiler; one by the author of nanoGPT-amd with
torch.compile on MI300X (ROCm/TransformerEngine, issue 79), with gradients reduced in bf16; of NVIDIA's
dgxc-benchmarking (@5f23b67b, NeMo 24.12: Megatron-LM with Transformer Engine, context parallelism in a ring); and of
fms-fsdp (@5a296af, README.md: HSDP in nodes, torch.compile). When the predictions were committed, only what says what
ran had been read: of llm-foundry by a script, of the others by somebody else. Nothing is calibrated with a row.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from sim.presets import load_preset
from sim.run.store import Store
from sim.scenario.model import ModelScenario
from sim.scenario.power import loaded_clock
from sim.scenario.result import SEQUENTIAL
from tracer.models.catalogue import load_model, models
from tracer.models.deployment import Deployment, ModelPhase, Recompute, Software
from tracer.models.schedule import OperatorClass
from tracer.models.shape import ModelShape
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.units import PS_PER_MS, PS_PER_S
from validation.against.model_predictions import classes
from validation.against.models import ACCURACY, whole
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
    """A row: preset, model, GPUs, tokens of a sequence, sequences of a micro-batch, micro-batches, whether the backward
    pass computes activations again, software, and whether the time has the optimizer in it; then fields of
    `Deployment`. All other GPUs are of data parallelism. Tensor-parallel ones divide norms and residuals."""

    machine: str
    model: str
    gpus: int
    sequence: int
    micro_batch: int
    micro_batches: int
    recompute: int
    software: str
    optimizer: int
    zero: int = 3
    replicas: int = 1
    tp: int = 1
    cp: int = 1
    pp: int = 1
    interleave: int = 1

    @property
    def how(self) -> Deployment:
        return Deployment(
            phase=ModelPhase.TRAIN, tp=self.tp, cp=self.cp, pp=self.pp, dp=self.gpus // (self.tp * self.cp * self.pp),
            interleave=self.interleave, sequence_parallel=self.tp > 1, zero=self.zero,
            replicas=self.replicas, micro_batch=self.micro_batch, micro_batches=self.micro_batches,
            sequence=self.sequence, recompute=Recompute.FULL if self.recompute else Recompute.NONE,
            software=Software(self.software),
        )  # fmt: skip

    @property
    def shared(self) -> str:
        """How the GPUs share the work out."""
        degrees = {"tp": self.tp, "cp": self.cp, "pp": self.pp}
        found = [f"{name} {value}" for name, value in degrees.items() if value > 1]
        found += [f"{self.interleave} parts a stage"] if self.interleave > 1 else []
        found += [f"ZeRO {self.zero}"] if self.zero else []
        return ", ".join(found + ([f"{self.replicas} replicas"] if self.replicas > 1 else [])) or "-"

    @property
    def tokens(self) -> float:
        """Of an iteration, divided by the GPUs."""
        return self.sequence * self.micro_batch * self.micro_batches * self.how.dp / self.gpus


FSDP1, FSDP2, COMPILED, FUSED = Software.EAGER_2023, Software.EAGER, Software.COMPILE, Software.FUSED
CASES = (
    *(Case(H100, "mpt-13b", gpus, 2048, 2, 1, 0, FSDP1, 1) for gpus in (8, 16, 32, 64)),
    Case(A100, "mpt-13b", 8, 2048, 2, 3, 0, FSDP1, 1),
    Case(H100, "mpt-7b", 8, 2048, 6, 1, 0, FSDP1, 1),
    Case(H100, "gpt2-1.5b", 1, 1024, 8, 1, 0, FSDP1, 0, zero=0),
    Case(A100, "llama-2-13b", 64, 4096, 2, 1, 0, FSDP2, 1),
    Case(A100, "mpt-7b", 8, 2048, 6, 2, 0, FSDP1, 1),
    Case(MI300X, "llama-3-8b", 8, 4096, 4, 1, 0, COMPILED, 0),
    *(Case(H100, "llama-3-8b", gpus, 8192, 1, 32, 0, FUSED, 1, zero=1, cp=2) for gpus in (8, 128)),
    *(
        Case(H100, "llama-3-70b", gpus, 8192, 1, 64, 0, FUSED, 1, zero=1, tp=4, cp=2, pp=4, interleave=5)
        for gpus in (64, 2048)
    ),
    *(Case(H100, "gpt-175b", gpus, 2048, 1, 64, 0, FUSED, 1, zero=1, tp=4, pp=8, interleave=6) for gpus in (128, 2048)),
    Case(H100, "llama-2-7b", 96, 4096, 2, 1, 0, COMPILED, 1, replicas=12),
)
"""In the order in which they are simulated."""
IN_VIEW = "mpt-13b"
"""The model whose measured rows were known when the copies of FSDP were added. Predictions of all others are blind."""
RATE, CLOCK, LOADED = "tokens_per_s_per_gpu", "loaded_clock_MHz", "loaded_tokens_per_s_per_gpu"
"""Columns: as simulated; the clock of a board that repeats the step, and the rate there (`sim.scenario.power`). The two
are empty in older rows, and of machines whose power is not known."""
HEADER = ("machine", "model", "GPUs", "tokens", "sequences", "micro-batches", "recomputes", "software", "shared out")


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
    return ModelScenario(load_preset(case.machine), shape(case), case.how, ACCURACY, overlap=False)


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
        result = whole(scenario(case), store)
        times = classes(result.configurations[SEQUENTIAL], 1)
        left_out_ms = 0 if case.optimizer else times[OperatorClass.OPTIMIZER]
        rate = _rate(case, times.pop("iteration") - left_out_ms)
        loaded = loaded_clock(result)
        under_load = (loaded.clock_MHz, _rate(case, loaded.time_ps / PS_PER_MS - left_out_ms)) if loaded else ("", "")
        done.append((*case, rate, *(f"{time_ms:.1f}" for time_ms in times.values()), *under_load))
        write_csv(PREDICTIONS, (*Case._fields, RATE, *(f"{name}_ms" for name in times), CLOCK, LOADED), done)


def _rate(case: Case, time_ms: float) -> str:
    """Tokens per second and GPU."""
    return f"{case.tokens / time_ms * PS_PER_S / PS_PER_MS:.1f}"


def table() -> str:
    """The page."""
    ours, rows = read(PREDICTIONS), []
    errors: dict[tuple[str, str, str], list[tuple[float, float | None]]] = {}
    for case, row in read(REFERENCE).items():
        measured, mine = float(row[RATE]), ours[case]
        kind = "in view" if case.model == IN_VIEW else "blind"
        cells, found = [f"{measured:,.0f}"], []
        for column in (RATE, LOADED):
            error = float(mine[column]) / measured - 1 if mine[column] else None
            found.append(error)
            cells += ["-", "-"] if error is None else [f"{float(mine[column]):,.0f}", f"{error:+.1%}"]
        cells.insert(3, f"{float(mine[CLOCK]):,.0f}" if mine[CLOCK] else "-")
        errors.setdefault((case.machine, case.software, kind), []).append((found[0] or 0.0, found[1]))
        sizes = (case.gpus, case.sequence, case.micro_batch, case.micro_batches, case.recompute)
        rows.append([case.machine, case.model, *map(str, sizes), case.software, case.shared, *cells, kind])
    means = []
    for key, of_rows in errors.items():
        plain, loaded = [one for one, _ in of_rows], [one for _, one in of_rows if one is not None]
        absolute, mean = mean_errors(plain)
        under_load = f"{mean_errors(loaded)[1]:+.1%}" if loaded else "-"
        means.append(
            [*key, str(len(plain)), f"{absolute:.1%}", f"{mean:+.1%}", f"{max(plain, key=abs):+.1%}", under_load]
        )
    intro = (
        "Generated by `python -m validation.against.training`. Measured by others: "
        "`validation/references/training.csv`, tokens per second and GPU. Predicted: "
        "`validation/predictions/training.csv`."
    )
    errors_of = ("rows", "mean absolute error", "mean error", "worst", "mean error under load")
    return to_markdown(
        [
            Heading("Training on H100, A100 and MI300X", 1),
            Text(intro),
            Table(("machine", "software", "kind", *errors_of), means),
            notes(NOTES),
            Heading("All cases", 2),
            Table((*HEADER, "measured", "predicted", "error", "MHz under load", "predicted", "error", "kind"), rows),
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
