"""Shapes read from config.json, and what is refused."""

import json

import pytest

from tracer.models.catalogue import load_model, models
from tracer.models.config_json import read_config, shape_of
from tracer.models.shape import Norm
from traces.errors import UserError

LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
}
DEEPSEEK = LLAMA | {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
}
BERT = {
    "model_type": "bert",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "vocab_size": 30522,
}


@pytest.mark.parametrize(
    ("raw", "name"),
    [(LLAMA, "llama-3-70b"), (MIXTRAL, "mixtral-8x7b"), (DEEPSEEK, "deepseek-v3"), (BERT, "bert-large")],
)
def test_a_config_gives_the_shape_of_the_table(raw, name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(raw))
    found = load_model(str(tmp_path / "config.json"))
    assert found.weights == pytest.approx(models()[name].weights, rel=1e-3)
    for field in ("gated", "causal", "norm", "rotary", "kv_heads", "head_dim", "latent"):
        assert getattr(found, field) == getattr(models()[name], field), field


def test_gpt2_has_other_names_for_its_fields():
    model = shape_of(GPT2, "gpt2", "config")
    assert (model.hidden, model.layers, model.intermediate, model.max_positions) == (768, 12, 3072, 1024)
    assert (model.gated, model.norm, model.rotary, model.tied) == (False, Norm.LAYERNORM, False, True)
    assert model.weights / 1e6 == pytest.approx(124, rel=0.01)  # GPT-2 small has 124 million parameters


def test_a_nested_text_config_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vl", "text_config": LLAMA}))
    assert read_config(tmp_path / "config.json").layers == 80


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing; also allowed: n_embd"),
        ({"vocab_size": "many"}, "vocab_size: found 'many', allowed is a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers: found True"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: found -1"),
        ({"num_attention_heads": 60}, "heads = 60: must divide hidden = 8192, or give head_dim"),
        ({"num_attention_heads": 0}, "heads"),
        ({"num_attention_heads": 0, "head_dim": 0}, "heads = 0: must be at least 1"),
        ({"head_dim": 0}, "head_dim = 0: must be at least 1"),
        ({"num_key_value_heads": 0}, "kv_heads = 0: must be at least 1"),
        ({"intermediate_size": 0}, "intermediate = 0: must be at least 1"),
        ({"max_position_embeddings": 0}, "max_positions = 0: must be at least 1"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings: found 'false', allowed is true or false"),
        ({"alibi": 1}, "alibi: found 1, allowed is true or false"),
        ({"multi_query": "true"}, "multi_query: found 'true', allowed is true or false"),
        ({"multi_query": True, "new_decoder_architecture": 1}, "new_decoder_architecture: found 1"),
        ({"use_qk_norm": "no"}, "use_qk_norm: found 'no'"),
        ({"qk_layernorm": []}, r"qk_layernorm: found \[\]"),
        ({"model_type": "falcon", "bias": 0}, "bias: found 0, allowed is true or false"),
        ({"model_type": "mpt", "no_bias": "true"}, "no_bias: found 'true', allowed is true or false"),
        ({"num_key_value_heads": 7}, "kv_heads = 7: must divide heads = 64"),
        ({"num_local_experts": 8}, "num_experts_per_tok is missing"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "experts_per_token = 9: must be 1 to 8"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
        ({"kv_lora_rank": 0}, "kv_lora_rank is 0; a model with latent attention"),
        ({"kv_lora_rank": 1, "qk_rope_head_dim": 1, "qk_nope_head_dim": 1, "v_head_dim": 0}, "v_head_dim is 0"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layer_types: found layers of another kind"),
        ({"index_topk": 2048}, "index_topk: found layers of another kind"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder: found layers of another kind"),
        ({"model_type": "mamba"}, "model_type: found 'mamba'; allowed are Transformers"),
        ({"hidden_act": "foo"}, "hidden_act: found 'foo'; allowed are silu"),
        ({"vocab_size": 1 << 40}, r"vocab_size: found 1099511627776, allowed is a whole number below 2\^40"),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 1000},
            "shared_expert_intermediate_size: found 1000, allowed is a multiple of the width of an expert, 28672",
        ),
    ],
)
def test_wrong_fields_are_refused_with_their_names(change, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | change))
    with pytest.raises(UserError, match=message):
        read_config(path)


FALCON_40B = {
    "model_type": "falcon",
    "hidden_size": 8192,
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_kv_heads": 8,
    "multi_query": True,
    "new_decoder_architecture": True,
    "vocab_size": 65024,
}
STARCODER2 = {
    "model_type": "starcoder2",
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 4608,
    "intermediate_size": 18432,
    "num_hidden_layers": 32,
    "num_attention_heads": 36,
    "num_key_value_heads": 4,
    "vocab_size": 49152,
}
SANTACODER = {
    "model_type": "gpt_bigcode",
    "activation_function": "gelu_pytorch_tanh",
    "n_embd": 2048,
    "n_head": 16,
    "n_layer": 24,
    "n_positions": 2048,
    "multi_query": True,
    "vocab_size": 49280,
}
CHATGLM = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "ffn_hidden_size": 13696,
    "num_layers": 28,
    "num_attention_heads": 32,
    "multi_query_group_num": 2,
    "padded_vocab_size": 65024,
    "seq_length": 32768,
}
QWEN_MOE = {
    "model_type": "qwen2_moe",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 151936,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
}


ERNIE_MOE = {
    "model_type": "ernie4_5_moe",
    "hidden_act": "silu",
    "hidden_size": 2560,
    "intermediate_size": 12288,
    "num_hidden_layers": 28,
    "num_attention_heads": 20,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "moe_num_experts": 64,
    "moe_k": 6,
    "moe_intermediate_size": 1536,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
    "vocab_size": 103424,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("raw", "billion", "kv_heads", "gated", "norm", "rotary"),
    [
        (ERNIE_MOE, 21.5, 4, True, Norm.RMSNORM, True),
        (FALCON_40B, 41.3, 8, False, Norm.LAYERNORM, True),
        (STARCODER2, 7.17, 4, False, Norm.LAYERNORM, True),
        (SANTACODER, 1.1, 1, False, Norm.LAYERNORM, False),
        (CHATGLM, 6.2, 2, True, Norm.RMSNORM, True),
        (QWEN_MOE, 14.3, 16, True, Norm.RMSNORM, True),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_families_with_fields_of_their_own(raw, billion, kv_heads, gated, norm, rotary):
    """Numbers of weights as their authors give them: the name of the model, or its paper."""
    model = shape_of(raw, "own", "config")
    assert model.weights / 1e9 == pytest.approx(billion, rel=0.03)
    assert (model.kv_heads, model.gated, model.norm, model.rotary) == (kv_heads, gated, norm, rotary)


GEMMA_2B = {
    "model_type": "gemma",
    "hidden_act": "gelu",
    "head_dim": 256,
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_attention_heads": 8,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "vocab_size": 256000,
}
BLOOM = {"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880}
FALCON_7B = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "multi_query": True,
    "new_decoder_architecture": False,
    "vocab_size": 65024,
}
COMMAND_R = {
    "model_type": "cohere",
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_attention_heads": 64,
    "num_hidden_layers": 40,
    "num_key_value_heads": 64,
    "vocab_size": 256000,
}
SMOLLM3 = {
    "model_type": "smollm3",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 4,
    "vocab_size": 128256,
}
QWEN_7B = {
    "model_type": "qwen",
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "kv_channels": 128,
    "layer_norm_epsilon": 1e-6,
    "max_position_embeddings": 8192,
    "no_bias": True,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "seq_length": 2048,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}


@pytest.mark.parametrize(
    ("raw", "billion"),
    [
        (GEMMA_2B, 2.51),
        (BLOOM, 176.2),
        (FALCON_7B, 6.92),
        (FALCON_40B, 41.3),
        (STARCODER2, 7.17),
        (COMMAND_R, 35.0),
        (SMOLLM3, 3.08),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else None,
)
def test_a_family_that_ties_by_default_is_tied_if_the_file_does_not_say(raw, billion):
    """Numbers of weights of the published checkpoints. Untied, each has vocab x hidden more."""
    model = shape_of(raw, "own", "config")
    assert model.tied
    assert model.weights / 1e9 == pytest.approx(billion, rel=0.003)
    untied = shape_of(raw | {"tie_word_embeddings": False}, "own", "config")
    assert untied.weights - model.weights == model.vocab * model.hidden


@pytest.mark.parametrize(
    "family",
    ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "phi", "phi3", "gpt_neox", "gptj", "codegen"],
)
def test_a_family_that_does_not_tie_by_default_is_untied_if_the_file_does_not_say(family):
    raw = {name: value for name, value in LLAMA.items() if name != "tie_word_embeddings"} | {"model_type": family}
    assert not shape_of(raw, "own", "config").tied
    assert shape_of(raw | {"tie_word_embeddings": True}, "own", "config").tied


def test_the_family_of_a_nested_text_config_says_whether_it_is_tied(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "paligemma", "text_config": GEMMA_2B}))
    assert read_config(tmp_path / "config.json").tied


@pytest.mark.parametrize(("missing", "instead"), [((), {}), (("intermediate_size",), {"ffn_hidden_size": 22016})])
def test_the_first_qwen_has_a_gated_mlp_of_half_the_width(missing, instead):
    raw = {name: value for name, value in QWEN_7B.items() if name not in missing} | instead
    model = shape_of(raw, "own", "config")
    assert (model.gated, model.intermediate, model.norm, model.rotary) == (True, 11008, Norm.RMSNORM, True)
    assert (model.bias, model.tied, model.kv_heads, model.head_dim) == (False, False, 32, 128)
    assert model.weights / 1e9 == pytest.approx(7.72, rel=0.001)  # Qwen-7B has 7,721 million parameters


def test_later_qwens_have_the_width_of_their_file():
    model = shape_of(LLAMA | {"model_type": "qwen2"}, "own", "config")
    assert (model.gated, model.intermediate) == (True, 28672)


def test_a_shared_expert_counts_as_experts():
    assert shape_of(QWEN_MOE, "own", "config").mixture.shared == 4


def test_the_encoder_of_other_names_is_an_encoder():
    model = shape_of(BERT | {"model_type": "xlm-roberta"}, "own", "config")
    assert (model.causal, model.norm, model.rotary) == (False, Norm.LAYERNORM, False)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"hidden_size": 1e400}', "[" * 100_000])
def test_a_file_without_an_object_is_refused(text, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"config\.json: "):
        read_config(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_model(str(tmp_path / "none.json"))


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert read_config(path).layers == 80
