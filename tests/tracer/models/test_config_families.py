"""Families whose config.json has names of its own, and families whose layers are of several kinds."""

import pytest

from tracer.models.config_json import shape_of
from tracer.models.deployment import Deployment
from tracer.models.shape import Norm
from tracer.models.whole import make_schedule
from traces.errors import UserError

GPT_NEO = {
    "model_type": "gpt_neo",
    "hidden_size": 2048,
    "num_layers": 24,
    "num_heads": 16,
    "intermediate_size": None,
    "vocab_size": 50257,
    "max_position_embeddings": 2048,
    "activation_function": "gelu_new",
}
MPT_7B = {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432, "max_seq_len": 2048}
DISTILBERT = {
    "model_type": "distilbert",
    "dim": 768,
    "n_layers": 6,
    "n_heads": 12,
    "hidden_dim": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize(
    ("raw", "million"), [(GPT_NEO, 1316), (MPT_7B, 6649), (DISTILBERT, 66.4)], ids=lambda value: str(value)[:30]
)
def test_every_family_with_a_rule_can_be_read(raw, million):
    """Numbers of weights of the published checkpoints."""
    assert shape_of(raw, "own", "config").weights / 1e6 == pytest.approx(million, rel=0.003)


@pytest.mark.parametrize("field", ["num_shared_experts", "num_shared_expert"])
def test_shared_experts_of_kimi_linear_and_hunyuan_are_counted(field):
    raw = {
        "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1024, "hidden_act": "silu",
        "num_experts": 8, "num_experts_per_token": 2, "moe_intermediate_size": 64, field: 1,
    }  # fmt: skip
    assert shape_of(raw, "own", "config").mixture.shared == 1


TRINITY_MINI = {
    "model_type": "afmoe",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 1024,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "num_dense_layers": 2,
    "vocab_size": 200192,
}


def test_plain_layers_of_trinity_are_counted():
    """26 billion weights; those of the gates of the attention (0.27 billion) are left out."""
    model = shape_of(TRINITY_MINI, "own", "config")
    assert (model.dense_layers, model.head_norms) == (2, True)
    assert model.weights / 1e9 == pytest.approx(25.86, abs=0.01)


@pytest.mark.parametrize("field", ["shared_intermediate_size", "shared_expert_intermediate_size"])
def test_the_width_of_a_shared_expert_has_several_names(field):
    """Granite's shared MLP beside its experts, and that of Qwen2-MoE."""
    assert shape_of(EXPERTS | {field: 128}, "own", "config").mixture.shared == 2


PLAIN = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 1024, "hidden_act": "silu"}
EXPERTS = PLAIN | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (PLAIN | {"hybrid_override_pattern": "M-M*"}, "hybrid_override_pattern: found layers of another kind"),
        (PLAIN | {"block_types": ["recurrent", "attention"]}, "block_types: found layers of another kind"),
        (PLAIN | {"layers_block_type": ["mamba", "attention"]}, "layers_block_type: found layers of another kind"),
        (PLAIN | {"attn_type_list": [0, 0, 0, 1]}, "attn_type_list: found layers of another kind"),
        (PLAIN | {"linear_attn_config": {"kda_layers": [1]}}, "linear_attn_config: found layers of another kind"),
        (EXPERTS | {"decoder_sparse_step": 2}, "decoder_sparse_step: found layers with and without experts in turn"),
        (EXPERTS | {"interleave_moe_layer_step": 2}, "interleave_moe_layer_step: found layers with and"),
        (EXPERTS | {"mlp_only_layers": [3]}, "mlp_only_layers: found layers with and without experts in turn"),
        (PLAIN | {"model_type": "albert", "num_hidden_groups": 1}, "num_hidden_groups: found layers that share"),
        (PLAIN | {"block_configs": [{"ffn": {"ffn_mult": 2.6}}]}, "block_configs: found layers of another kind"),
        (PLAIN | {"layer_types": ["sliding_attention"], "global_head_dim": 512}, "global_head_dim: found layers of"),
        (PLAIN | {"use_cla": True, "cla_share_factor": 2}, "use_cla: found layers of another kind"),
        (PLAIN | {"num_kv_shared_layers": 2}, "num_kv_shared_layers: found layers of another kind"),
        (EXPERTS | {"layer_group_size": 5}, "layer_group_size: found layers of another kind"),
        (EXPERTS | {"parallel_attn_mlp_res": True}, "parallel_attn_mlp_res: found .*; allowed are equal layers"),
        (EXPERTS | {"residual_moe": True}, "residual_moe: found layers of another kind"),
    ],
)
def test_layers_of_several_kinds_are_refused(raw, message):
    with pytest.raises(UserError, match=message):
        shape_of(raw, "own", "config")


def test_lists_and_steps_of_equal_layers_are_read():
    full = {"attn_type_list": [1] * 4, "layer_types": ["full_attention"] * 4, "decoder_sparse_step": 1}
    full |= {"use_cla": False, "num_kv_shared_layers": 0, "global_head_dim": None}
    assert shape_of(EXPERTS | full | {"mlp_only_layers": [], "moe_layer_freq": 1}, "own", "config").layers == 4


def test_a_family_that_may_have_a_gate_says_so():
    """Llama's default in Transformers is silu, a gate; read as GELU, Llama-2-7B had 5.3 billion weights."""
    raw = {name: value for name, value in PLAIN.items() if name != "hidden_act"} | {"model_type": "llama"}
    with pytest.raises(UserError, match="hidden_act is missing; also allowed: activation_function, hidden_activation"):
        shape_of(raw, "own", "config")
    assert shape_of(raw | {"hidden_act": "silu"}, "own", "config").gated
    assert not shape_of(raw | {"model_type": "falcon"}, "own", "config").gated


BLOOM = {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250880}


@pytest.mark.parametrize("raw", [BLOOM, MPT_7B, BLOOM | {"model_type": "falcon", "alibi": True}])
def test_positions_in_the_scores_rotate_nothing_and_have_no_weights(raw):
    model = shape_of(raw, "own", "config")
    assert (model.rotary, model.added) == (False, False)
    assert "scored positions" in model.text
    assert model.embedding_weights == model.vocab * model.hidden
    schedule = make_schedule(model, Deployment(sequence=4096))
    assert "rotary" not in [step.name for block in schedule.forward for step in block.steps]


@pytest.mark.parametrize(("family", "name"), [("modernbert", "ModernBertForMaskedLM"), ("esm", "EsmForMaskedLM")])
def test_an_encoder_of_another_family_is_refused(family, name):
    """Read as a decoder it had a KV cache, and attention of half the work."""
    raw = PLAIN | {"model_type": family, "architectures": [name]}
    with pytest.raises(UserError, match=f"model_type: found '{family}' with {name}; allowed are decoders, and bert"):
        shape_of(raw, "own", "config")
    assert not shape_of(raw | {"model_type": "roberta"}, "own", "config").causal


@pytest.mark.parametrize(("family", "field"), [("opt", "word_embed_proj_dim"), ("electra", "embedding_size")])
def test_an_embedding_has_the_width_of_the_layers(family, field):
    """OPT-350m and ELECTRA-small project a narrower one: read as one of the hidden size, they had 7 and 29 % more."""
    raw = PLAIN | {"model_type": family}
    with pytest.raises(UserError, match=f"{field}: found 128, allowed is hidden_size = 256"):
        shape_of(raw | {field: 128}, "own", "config")
    assert shape_of(raw | {field: 256}, "own", "config") == shape_of(raw, "own", "config")


@pytest.mark.parametrize(
    ("fields", "norm"),
    [
        ({"model_type": "cohere", "layer_norm_eps": 1e-5}, Norm.LAYERNORM),
        ({"model_type": "stablelm", "layer_norm_eps": 1e-5}, Norm.LAYERNORM),
        ({"model_type": "jais", "layer_norm_epsilon": 1e-5}, Norm.LAYERNORM),
        ({"model_type": "nemotron", "norm_eps": 1e-5}, Norm.LAYERNORM),
        ({"model_type": "olmo"}, Norm.LAYERNORM),
        ({"model_type": "phimoe", "rms_norm_eps": 1e-5}, Norm.LAYERNORM),
        ({"model_type": "exaone", "layer_norm_epsilon": 1e-5}, Norm.RMSNORM),
        ({"model_type": "qwen", "layer_norm_epsilon": 1e-6}, Norm.RMSNORM),
        ({"model_type": "llama", "rms_norm_eps": 1e-5, "layer_norm_eps": 1e-5}, Norm.RMSNORM),
        ({"model_type": "olmo2"}, Norm.RMSNORM),
    ],
)
def test_a_family_has_its_norm(fields, norm):
    assert shape_of(PLAIN | fields, "own", "config").norm == norm


@pytest.mark.parametrize("width", [0, None])
def test_experts_have_a_width(width):
    raw = EXPERTS | {"moe_intermediate_size": width, "intermediate_size": width}
    with pytest.raises(UserError, match="moe_intermediate_size is missing or 0; a model with experts needs it"):
        shape_of(raw, "own", "config")


@pytest.mark.parametrize(
    ("fields", "bias"),
    [
        ({"model_type": "falcon", "bias": False}, False),
        ({"model_type": "falcon"}, False),
        ({"model_type": "falcon", "bias": True}, True),  # Falcon-RW
        ({"model_type": "mpt", "no_bias": True}, False),
        ({"model_type": "mpt", "no_bias": False}, True),
        ({"model_type": "gpt_oss"}, True),  # as gpt-oss-20b by name
        ({"model_type": "phi"}, True),
        ({"model_type": "llama"}, False),
    ],
)
def test_a_family_has_its_biases(fields, bias):
    assert shape_of(PLAIN | fields, "own", "config").bias == bias
