"""Reads a Hugging Face config.json: the shape of a model from the field names that its families use."""

import json
from pathlib import Path
from typing import Any

from tracer.models.shape import Experts, Latent, ModelShape, Norm
from traces.errors import UserError

NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "max_positions": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "activation": ("hidden_act", "activation_function", "hidden_activation"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk"),
    "shared_experts": ("n_shared_experts", "moe_num_shared_experts", "num_shared_experts", "num_shared_expert"),
    "shared_width": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "dense_layers": ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"),
}
"""Our field -> its names in a config.json, the most common one first."""
REQUIRED = ("layers", "hidden", "heads", "vocab")
GATED = ("silu", "swiglu", "swigluoai", "swish", "geglu")
"""Activations whose MLP has a second projection, in families that do not say otherwise."""
GATED_FAMILIES = ("gemma", "chatglm")
"""Beginnings of families whose MLP has it with any activation."""
FIRST_QWEN = "qwen"
"""Qwen-1.8B to Qwen-72B. The MLP is gated (SiLU, no field says so), each projection has half of intermediate_size, and
the norms are RMSNorm although their field is layer_norm_epsilon (QWenMLP and QWenBlock of Alibaba's modeling_qwen.py;
alibaba/MNN has copies in transformers/llm/export/llm_models, commit 7cad2ee8)."""
ACTIVATIONS = (
    *GATED, "gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "gelu_accurate", "quick_gelu", "relu",
    "relu2", "relu6", "tanh",
)  # fmt: skip
LAYER_NORM_FIELDS = ("layer_norm_epsilon", "layer_norm_eps")
LAYER_NORM_FAMILIES = ("nemotron", "olmo", "phimoe")
"""Families with LayerNorm whose files have neither field."""
RMS_NORM_FAMILIES = (FIRST_QWEN, "exaone")
"""Families with RMSNorm whose files have one of the fields."""
PLAIN_MLP = (
    "gpt2", "gpt_neo", "gpt_neox", "gpt_bigcode", "opt", "bloom", "phi", "gptj", "falcon", "starcoder2", "mpt",
    "codegen",
)  # fmt: skip
"""Families with a plain MLP, LayerNorm and biases."""
CHOSEN_BIAS = ("falcon", "mpt")
"""Those of them that have biases only if their file says so: `bias`, `no_bias`."""
GATED_BIAS = ("gpt_oss",)
"""Families with a gated MLP and biases."""
ENCODERS = (
    "bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "electra", "deberta", "deberta-v2", "albert",
    "distilbert",
)  # fmt: skip
ADDED_POSITIONS = (
    "bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "gpt2", "gpt_neo", "gpt_bigcode", "opt", "electra",
    "albert", "distilbert",
)  # fmt: skip
"""Families whose positions are added to the embedding."""
SCORED_POSITIONS = ("bloom", "mpt", "deberta", "deberta-v2")
"""Families whose positions change the scores of the attention: ALiBi, relative positions. Falcon-RW says `alibi`."""
TIED = (
    "biogpt", "bloom", "cohere", "cohere2", "cohere2_moe", "cpmant", "ctrl", "ernie4_5", "ernie4_5_moe", "falcon",
    "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gpt2",
    "gpt_bigcode", "gpt_neo", "gpt_neox_japanese", "granite_swa", "jetmoe", "lfm2", "lfm2_moe", "lfm3", "minicpm3",
    "modernbert-decoder", "mpt", "openai-gpt", "opt", "smollm3", "starcoder2", "vaultgemma", "xglm", "youtu",
    *ENCODERS,
)  # fmt: skip
"""Families whose embeddings are tied if their file does not say: a file leaves out what is the default of its
configuration class in Transformers. Read in huggingface/transformers v5.23.0, models/*/configuration_*.py. v4.57.1 has
the same defaults for the families that it knows: there a class that names none has the True of PretrainedConfig. All
other families are untied, as Llama, Mistral, Qwen, Phi and GPT-NeoX, which name False. Of a nested text_config the
family is that of the text."""
OTHER_LAYERS = (
    "layer_types", "linear_num_key_heads", "ssm_cfg", "mamba_d_state", "attn_layer_period", "index_topk",
    "attention_chunk_size", "state_size", "is_encoder_decoder", "encoder_layers", "hybrid_override_pattern",
    "layers_block_type", "block_types", "attn_type_list", "linear_attn_config", "lru_width", "layer_group_size",
    "block_configs", "global_head_dim", "use_cla", "num_kv_shared_layers", "parallel_attn_mlp_res", "residual_moe",
)  # fmt: skip
"""Fields of models that have layers of another kind: linear, sparse and chunked attention, state spaces, an encoder
and a decoder, sizes for each layer (Nemotron Super and Ultra of 2025), wider heads in some layers (Gemma 4), keys and
values of other layers (Hunyuan-Large, Gemma 3n), an MLP beside the experts (Arctic, Grok-2)."""
HEAD_NORMS = ("qwen3", "gemma3", "olmo2", "olmo3", "olmoe", "exaone4", "dots1", "hunyuan_v1", "minimax_m2", "afmoe")
"""Beginnings of families whose queries and keys have norms (`q_norm` and `k_norm` of their attention in Transformers,
models/*/modeling_*.py). Others say so in a field."""
HEAD_NORM_FIELDS = ("use_qk_norm", "qk_layernorm")
"""Of GLM-4.5 and Cohere; of Phi and StableLM."""
OUTPUT_NORMS = ("gemma2", "gemma3", "gemma3_text", "glm4", "glm4v", "glm4v_text", "afmoe")
"""Families whose attention and MLP have a norm behind them, too (the same files: `post_feedforward_layernorm`,
`post_self_attn_layernorm`, `post_mlp_layernorm`)."""
FULL = ("full_attention", "sliding_attention", "attention", 1)
"""In a list with the kind of each layer: kinds that are simulated. MiniMax has 1 in `attn_type_list`, 0 is linear."""
EXPERT_STEPS = ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "moe_layer_interval")
"""Fields that say how many layers there are for each one with experts."""
EMBEDDING_WIDTHS = ("embedding_size", "word_embed_proj_dim")
"""Fields with the width of the embedding, if it can be another one than that of the layers (ELECTRA, OPT)."""
MASKED = "ForMaskedLM"
"""End of a name in `architectures` that says that a model is an encoder."""
OTHER_FAMILIES = ("mamba", "mamba2", "falcon_mamba", "rwkv", "whisper", "t5", "bart")


def read_config(path: Path) -> ModelShape:
    """The shape that a config.json describes.

    Raises:
        UserError: names the file and the field, what was found and what is allowed.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: found {type(raw).__name__}, allowed is an object with the fields of a model")
    inner = raw.get("text_config")
    return shape_of(raw | inner if isinstance(inner, dict) else raw, path.parent.name or path.stem, str(path))


def shape_of(raw: dict[str, Any], name: str, where: str) -> ModelShape:
    """The shape that the fields of a config.json describe. where: begins each message.

    Raises:
        UserError: as `read_config`.
    """
    _refuse_other_layers(raw, where)
    given = {field: _number(raw, field, where) for field in NAMES if field != "activation"}
    for field in REQUIRED:
        if given[field] is None:
            raise UserError(
                f"{where}: {NAMES[field][0]} is missing; also allowed: {', '.join(NAMES[field][1:]) or '-'}"
            )
    for field in EMBEDDING_WIDTHS:
        width = _plain_number(raw, field, where)
        if width not in (None, given["hidden"]):
            raise UserError(f"{where}: {field}: found {width}, allowed is hidden_size = {given['hidden']}")
    family = str(raw.get("model_type", "")).lower()
    _refuse_other_encoders(raw, family, where)
    plain = family in PLAIN_MLP or family in ENCODERS
    first_qwen = family == FIRST_QWEN
    if first_qwen and given["intermediate"]:
        given["intermediate"] //= 2
    sizes = {field: value or 0 for field, value in given.items()}
    hidden, heads, latent = sizes["hidden"], sizes["heads"], _latent(raw, where)
    scored = family in SCORED_POSITIONS or _flag(raw, "alibi", where)
    known = plain or first_qwen or family.startswith(GATED_FAMILIES)
    activation = _activation(raw, where, known)
    return ModelShape(
        name=name,
        layers=sizes["layers"],
        hidden=hidden,
        intermediate=4 * hidden if given["intermediate"] is None else sizes["intermediate"],
        heads=heads,
        kv_heads=1 if _one_kv_head(raw, where) else heads if given["kv_heads"] is None else sizes["kv_heads"],
        head_dim=latent.value_dim if latent else _head_dim(raw, hidden, heads, where),
        vocab=sizes["vocab"],
        max_positions=2048 if given["max_positions"] is None else sizes["max_positions"],
        gated=not plain and (activation in GATED or known),
        causal=family not in ENCODERS,
        norm=Norm.LAYERNORM if plain or _layer_norm(raw, family) else Norm.RMSNORM,
        rotary=family not in ADDED_POSITIONS and not scored,
        scored=scored,
        bias=_bias(raw, family, plain, where),
        tied=_flag(raw, "tie_word_embeddings", where, family in TIED),
        output_norms=family in OUTPUT_NORMS,
        head_norms=any([family.startswith(HEAD_NORMS), *(_flag(raw, name, where) for name in HEAD_NORM_FIELDS)]),
        latent=latent,
        experts=_experts(raw, given, where),
    )


def _refuse_other_layers(raw: dict[str, Any], where: str) -> None:
    for field in OTHER_LAYERS:
        kinds = raw.get(field)
        if isinstance(kinds, list):
            kinds = [kind for kind in kinds if kind not in FULL]
        if kinds:
            raise UserError(
                f"{where}: {field}: found layers of another kind; allowed are equal layers with full attention and "
                "an MLP or experts"
            )
    for field in (*EXPERT_STEPS, "mlp_only_layers"):
        if raw.get(field) not in (None, 1, []):
            raise UserError(
                f"{where}: {field}: found layers with and without experts in turn; allowed are experts in all layers, "
                f"or in all but the first ({NAMES['dense_layers'][0]})"
            )
    if raw.get("num_hidden_groups"):
        raise UserError(f"{where}: num_hidden_groups: found layers that share weights; allowed are own weights")
    if str(raw.get("model_type", "")).lower() in OTHER_FAMILIES:
        raise UserError(
            f"{where}: model_type: found {raw['model_type']!r}; allowed are Transformers of one stack of layers"
        )


def _refuse_other_encoders(raw: dict[str, Any], family: str, where: str) -> None:
    names = raw.get("architectures")
    masked = [name for name in names if str(name).endswith(MASKED)] if isinstance(names, list) else []
    if masked and family not in ENCODERS:
        raise UserError(
            f"{where}: model_type: found {family!r} with {masked[0]}; allowed are decoders, and {', '.join(ENCODERS)}"
        )


def _activation(raw: dict[str, Any], where: str, known: bool) -> str:
    """known: the family says whether the MLP is gated. In others a file without the field could be either."""
    found = next((str(raw[key]).lower() for key in NAMES["activation"] if raw.get(key)), "gelu" if known else "")
    if not found:
        first, *others = NAMES["activation"]
        raise UserError(f"{where}: {first} is missing; also allowed: {', '.join(others)}")
    if found not in ACTIVATIONS:
        raise UserError(f"{where}: hidden_act: found {found!r}; allowed are {', '.join(ACTIVATIONS)}")
    return found


def _layer_norm(raw: dict[str, Any], family: str) -> bool:
    if family in (*LAYER_NORM_FAMILIES, *RMS_NORM_FAMILIES):
        return family in LAYER_NORM_FAMILIES
    return "rms_norm_eps" not in raw and any(field in raw for field in LAYER_NORM_FIELDS)


def _bias(raw: dict[str, Any], family: str, plain: bool, where: str) -> bool:
    if family in CHOSEN_BIAS:
        return _flag(raw, "bias", where) or not _flag(raw, "no_bias", where, True)
    return plain or family in GATED_BIAS


def _one_kv_head(raw: dict[str, Any], where: str) -> bool:
    """Have all heads one key and value? Falcon's new architecture has its `num_kv_heads`, whatever multi_query says."""
    return _flag(raw, "multi_query", where) and not _flag(raw, "new_decoder_architecture", where)


def _head_dim(raw: dict[str, Any], hidden: int, heads: int, where: str) -> int:
    head_dim = _plain_number(raw, "head_dim", where)
    if head_dim is not None:
        return head_dim
    if heads == 0 or hidden % heads:
        raise UserError(f"{where}: heads = {heads}: must divide hidden = {hidden}, or give head_dim")
    return hidden // heads


def _latent(raw: dict[str, Any], where: str) -> Latent | None:
    """The ranks of low-rank attention, None if the model has ordinary attention."""
    if _plain_number(raw, "kv_lora_rank", where) is None:
        return None
    fields = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    values = [_plain_number(raw, field, where) for field in fields]
    for field, found in zip(fields, values, strict=True):
        if not found:
            state = "is missing" if found is None else "is 0"
            raise UserError(f"{where}: {field} {state}; a model with latent attention (kv_lora_rank) needs it")
    rank, rotary, plain, value = (int(number or 0) for number in values)
    query_rank = _plain_number(raw, "q_lora_rank", where) or 0
    return Latent(query_rank=query_rank, kv_rank=rank, rotary_dim=rotary, plain_dim=plain, value_dim=value)


def _experts(raw: dict[str, Any], given: dict[str, Any], where: str) -> Experts | None:
    if not given["experts"] or given["experts"] == 1:
        return None
    if given["experts_per_token"] is None:
        raise UserError(f"{where}: num_experts_per_tok is missing; a model with experts needs it")
    inner = _plain_number(raw, "moe_intermediate_size", where) or given["intermediate"]
    if not inner:
        raise UserError(f"{where}: moe_intermediate_size is missing or 0; a model with experts needs it")
    shared_width = given["shared_width"] or 0
    if shared_width % inner:
        field = next(name for name in NAMES["shared_width"] if raw.get(name) is not None)
        raise UserError(
            f"{where}: {field}: found {shared_width}, allowed is a multiple of the width of an expert, {inner}"
        )
    return Experts(
        count=given["experts"],
        per_token=given["experts_per_token"],
        intermediate=inner,
        shared=given["shared_experts"] or shared_width // inner,
        dense_layers=min(given["dense_layers"] or 0, given["layers"]),
    )


def _number(raw: dict[str, Any], field: str, where: str) -> int | None:
    """The value of a field under the first of its names that is present; None if none is."""
    values = (_plain_number(raw, name, where) for name in NAMES[field])
    return next((value for value in values if value is not None), None)


def _plain_number(raw: dict[str, Any], name: str, where: str) -> int | None:
    value = raw.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 40:
        raise UserError(f"{where}: {name}: found {value!r}, allowed is a whole number below 2^40")
    return value


def _flag(raw: dict[str, Any], name: str, where: str, default: bool = False) -> bool:
    value = raw.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UserError(f"{where}: {name}: found {value!r}, allowed is true or false")
    return value
