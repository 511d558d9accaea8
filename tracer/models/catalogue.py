"""Models by name: a table of published shapes, the models of the T3 paper, or the path of a config.json.

A row of the table also has the names of its shape in `validation/references/model_configs.csv` (`org/model`).
"""

import csv
from functools import cache
from pathlib import Path

from tracer.models.config_json import read_config
from tracer.models.shape import Experts, Latent, ModelShape, Norm
from tracer.workloads import MODELS as PAPER_MODELS
from traces.choices import allowed_names
from traces.errors import UserError

TABLE = Path(__file__).parent / "models.csv"
NAMES_APART = ";"
"""Between two names in the column `names`."""
PAPER_HEADS = {"mega-gpt-2": 24, "t-nlg": 28, "gpt-3": 96, "palm": 48, "mt-nlg": 128}
"""Attention heads of the models of the T3 paper: published model cards; Mega-GPT-2 as Megatron-LM's 8.3 B model."""
PAPER_VOCAB = {"palm": 256000}
"""Size of the vocabulary of the paper's models, where it is published; else GPT_VOCAB."""
GPT_VOCAB = 51200
"""GPT-2's vocabulary padded as Megatron-LM does it (assumed for the paper's models)."""


def load_model(name: str) -> ModelShape:
    """The model of a name, or of a path to a config.json.

    Raises:
        UserError: an unknown name, or a file that does not describe a model.
    """
    if name.endswith(".json") or Path(name).is_file():
        return read_config(Path(name))
    known, others = models(), other_names()
    own = others.get(name.lower(), name.lower())
    if own not in known:
        raise UserError(
            f"model: found {name!r}; {allowed_names(own, [*known, *others], 't3sim model --list')} "
            "(a path to a config.json is allowed too)"
        )
    return known[own]


@cache
def models() -> dict[str, ModelShape]:
    """All models by name, in alphabetical order."""
    shapes = [_of_row(row) for row in _rows()]
    shapes += [_of_paper(name) for name in PAPER_MODELS]
    return {shape.name: shape for shape in sorted(shapes, key=lambda shape: shape.name)}


@cache
def other_names() -> dict[str, str]:
    """A published name of a model, in small letters -> its name here."""
    return {name.lower(): row["name"] for row in _rows() for name in row["names"].split(NAMES_APART)}


def _rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _of_row(row: dict[str, str]) -> ModelShape:
    number = {key: int(value) for key, value in row.items() if value.isdigit()}
    latent = experts = None
    if row["kv_rank"]:
        latent = Latent(
            **{key: number[key] for key in ("query_rank", "kv_rank", "rotary_dim", "plain_dim", "value_dim")}
        )
    if row["experts"]:
        experts = Experts(
            count=number["experts"],
            per_token=number["experts_per_token"],
            intermediate=number["expert_intermediate"],
            shared=number["shared_experts"],
            dense_layers=number["dense_layers"],
        )
    sizes = ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "max_positions")
    flags = ("gated", "causal", "rotary", "bias", "tied", "head_norms")
    return ModelShape(
        name=row["name"],
        norm=Norm(row["norm"]),
        latent=latent,
        experts=experts,
        **{key: number[key] for key in sizes},  # type: ignore[arg-type]
        **{key: bool(number[key]) for key in flags},
    )


def _of_paper(name: str) -> ModelShape:
    """A model of the T3 paper as a plain GPT: LayerNorm, GELU, biases, positions added to the embedding."""
    paper, heads = PAPER_MODELS[name], PAPER_HEADS[name]
    return ModelShape(
        name=name,
        layers=paper.layers,
        hidden=paper.hidden,
        intermediate=4 * paper.hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=paper.hidden // heads,
        vocab=PAPER_VOCAB.get(name, GPT_VOCAB),
        max_positions=2048,
        gated=False,
    )
