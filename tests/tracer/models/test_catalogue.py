"""Models by name have the number of parameters that their authors state."""

import csv

import pytest

from tests.support.paths import ROOT
from tracer.models.catalogue import load_model, models, other_names
from tracer.workloads import MODELS
from traces.errors import UserError

PUBLISHED_BILLIONS = {
    "bert-large": 0.34,
    "gpt-22b": 22,  # arXiv 2205.05198, table 3, as the next three
    "gpt-175b": 175,
    "gpt-530b": 530,
    "gpt-1t": 1000,
    "gpt-neox-20b": 20.6,
    "llama-2-7b": 6.74,
    "llama-2-70b": 69,
    "llama-3-8b": 8.03,
    "llama-3-70b": 70.6,
    "llama-3-405b": 405,
    "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 141,
    "deepseek-v3": 671,
    "kimi-k2": 1026,
    "qwen-72b": 72.3,
    "kimi-k2.5": 1026,
    "minimax-m2.5": 229,
    "minimax-m2.7": 229,
    "gpt-oss-20b": 20.9,
    "gpt-oss-120b": 116.8,
    "phi-2": 2.78,
    "qwen3-0.6b": 0.6,
    "qwen3-1.7b": 1.7,
    "qwen3-coder-480b-a35b": 480,
    "qwen3-8b": 8.2,
    "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235,
    "mega-gpt-2": 8.3,
    "t-nlg": 17.2,
    "mt-nlg": 530,
}


@pytest.mark.parametrize(("name", "billions"), PUBLISHED_BILLIONS.items())
def test_the_number_of_parameters_is_the_published_one(name, billions):
    assert load_model(name).weights / 1e9 == pytest.approx(billions, rel=0.03)


REFERENCES = ROOT / "validation" / "references" / "model_configs.csv"
OTHER_ATTENTION = {
    "MiniMaxAI/MiniMax-M3",  # what its layers are is not in the file
    *(f"Qwen/Qwen3.5-{size}" for size in ("27B", "35B-A3B", "122B-A10B", "397B-A17B")),  # linear, mostly
    "XiaomiMiMo/MiMo-V2-Flash",  # windows of 128 tokens, keys and values of different width
    "deepseek-ai/DeepSeek-V3.2",  # sparse, as the next two and GLM-5
    "deepseek-ai/DeepSeek-V4-Flash",
    "deepseek-ai/DeepSeek-V4-Pro",
    "google/gemma-4-26B-A4B",  # heads of two sizes
    *(f"meta-llama/Llama-4-{name}-Instruct" for name in ("Maverick-17B-128E", "Scout-17B-16E")),  # chunks
    "moonshotai/Kimi-K3",  # linear
    "stepfun-ai/Step-3.7-Flash",  # what its layers are is not in the file
    *(f"zai-org/GLM-{version}" for version in ("5", "5.1", "5.2")),
}
"""Models of `model_configs.csv` with layers that are not simulated."""


def test_the_models_of_the_references_have_their_shape_under_their_name():
    with REFERENCES.open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    assert {name.lower() for name in rows.keys() - OTHER_ATTENTION} == other_names().keys()
    for name in rows.keys() - OTHER_ATTENTION:
        model, row = load_model(name), rows[name]
        given = {key: int(float(row[key])) for key in ("layers", "hidden", "heads", "kv_heads", "vocab")}
        assert {key: getattr(model, key) for key in given} == given
        assert model.max_positions == int(row["max_positions"])
        assert model.head_dim == int(float(row["head_dim"] or model.hidden // model.heads)) or model.latent
        assert model.gated == (row["activation"] == "silu") and (row["tied_embeddings"] == "True") <= model.tied
        experts = {key: int(float(row[key] or 0)) for key in ("experts", "experts_per_token", "shared_experts")}
        own = model.experts
        assert list(experts.values()) == ([own.count, own.per_token, own.shared] if own else [0] * 3)
        inner = int(float(row["moe_intermediate"] or row["intermediate"]))
        assert inner == (own.intermediate if own else model.intermediate)


@pytest.mark.parametrize("size", ["8b", "32b", "30b-a3b", "235b-a22b"])
def test_the_language_model_of_qwen3_vl_is_qwen3(size):
    assert load_model(f"qwen3-vl-{size}").weights == load_model(f"qwen3-{size}").weights


def test_names_ignore_case_and_are_sorted():
    assert load_model("BERT-Large") is models()["bert-large"]
    assert load_model("Meta-Llama/meta-llama-3.1-70B") is models()["llama-3-70b"]
    assert list(models()) == sorted(models())


@pytest.mark.parametrize("name", MODELS)
def test_the_papers_models_keep_the_papers_sizes(name):
    model = load_model(name)
    assert (model.hidden, model.layers) == (MODELS[name].hidden, MODELS[name].layers)
    assert model.hidden == model.heads * model.head_dim


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"found 'llama-3-7b'; did you mean .*llama-"):
        load_model("llama-3-7b")
