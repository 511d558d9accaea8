"""Models by name have the number of parameters that their authors state."""

import pytest

from tracer.models.catalogue import load_model, models
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


def test_names_ignore_case_and_are_sorted():
    assert load_model("BERT-Large") is models()["bert-large"]
    assert list(models()) == sorted(models())


@pytest.mark.parametrize("name", MODELS)
def test_the_papers_models_keep_the_papers_sizes(name):
    model = load_model(name)
    assert (model.hidden, model.layers) == (MODELS[name].hidden, MODELS[name].layers)
    assert model.hidden == model.heads * model.head_dim


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"found 'llama-3-7b'; did you mean .*llama-"):
        load_model("llama-3-7b")
