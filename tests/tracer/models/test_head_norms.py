"""Norms of queries and keys, and of latent ranks."""

from dataclasses import replace

import pytest

from tracer.kernels import make_kernels
from tracer.models.catalogue import load_model
from tracer.models.config_json import shape_of
from tracer.models.deployment import Deployment, ModelPhase, Software
from tracer.models.layer import backward_steps, forward_steps

CONFIG = {
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
}
TRAIN = Deployment(phase=ModelPhase.TRAIN, sequence=128, tp=2)


def works(steps):
    """Name -> work of norms inside the attention."""
    return {step.name: step.work for step in steps if "head_norm" in step.name or "down_norm" in step.name}


@pytest.mark.parametrize("software", Software)
def test_heads_of_queries_and_keys_have_norms(software):
    """Qwen3-8B on two GPUs: 16 heads of queries and 4 of keys, of 128 elements, for 128 tokens."""
    model, how = load_model("qwen3-8b"), replace(TRAIN, software=software)
    forward, back = works(forward_steps(model, how, True)), works(backward_steps(model, how, True))
    for found, name in ((forward, "head_norm"), (back, "head_norm_back")):
        assert [*found] == [f"{name}_0", f"{name}_1"]
        for work, rows in zip(found.values(), (128 * 16, 128 * 4), strict=True):
            assert work.startswith(f"rmsnorm:rows={rows},cols=128,") and make_kernels(work)
    names = [step.name for step in forward_steps(model, how, True)]
    assert names.index("head_norm_1") + 1 == names.index("rotary")
    assert not works(forward_steps(load_model("llama-3-8b"), how, True))


def test_latent_ranks_have_norms_before_they_are_widened():
    """DeepSeek-V3: 1536 elements of queries and 512 of keys and values, all on each GPU; without the 64 that rotate."""
    model = load_model("deepseek-v3")
    forward, back = forward_steps(model, TRAIN, True), backward_steps(model, TRAIN, True)
    for steps, end in ((forward, "stats=true"), (back, "backward=true")):
        found = {work.removesuffix(f",{end},dtype=bf16") for work in works(steps).values()}
        assert found == {"rmsnorm:rows=128,cols=1536", "rmsnorm:rows=128,cols=512"}
    order = [step.name for step in forward if step.name.startswith(("q_", "kv_"))]
    assert order == ["q_down", "q_down_norm", "q_up", "kv_down", "kv_down_norm", "kv_up"]
    order = [step.name for step in back if step.name.startswith("kv_")]
    assert order == [
        *("kv_up_input", "kv_up_reduce_back", "kv_up_weight"),
        *("kv_down_norm_back", "kv_down_input", "kv_down_weight"),
    ]


@pytest.mark.parametrize(
    ("fields", "norms"),
    [
        *(({"model_type": family}, True) for family in ("qwen3", "qwen3_moe", "gemma3_text", "olmo2")),
        *(({"model_type": family}, False) for family in ("qwen2", "llama", "gemma2", "olmo")),
        *(({"model_type": "glm4_moe", "use_qk_norm": value}, value) for value in (True, False)),
        ({"model_type": "phi", "qk_layernorm": True}, True),
    ],
)
def test_a_config_says_whether_heads_have_norms(fields, norms):
    assert shape_of(CONFIG | fields, "own", "config").head_norms == norms


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "gemma3_text", "glm4", "afmoe"])
@pytest.mark.parametrize("software", Software)
def test_outputs_of_attention_and_mlp_have_norms(family, software):
    """They follow the exchange of the output, and come before it is added."""
    model, how = shape_of(CONFIG | {"model_type": family}, "own", "config"), replace(TRAIN, software=software)
    plain = replace(model, output_norms=False)
    for steps, others, end in (
        (forward_steps(model, how, True), forward_steps(plain, how, True), ""),
        (backward_steps(model, how, True), backward_steps(plain, how, True), "_back"),
    ):
        more = [step for step in steps if "output_norm" in step.name]
        assert {step.name for step in more} == {f"attention_output_norm{end}", f"mlp_output_norm{end}"}
        assert [step.name for step in steps if step not in more] == [step.name for step in others]
        for step in more:
            assert step.work.startswith("rmsnorm:rows=128,cols=256,") and make_kernels(step.work)
    names = [step.name for step in forward_steps(model, how, True)]
    for part in ("attention", "mlp"):
        assert names.index(f"{part}_reduce") + 1 == names.index(f"{part}_output_norm")


@pytest.mark.parametrize("family", ["qwen3", "glm4_moe", "gemma", "olmo2", "llama"])
def test_other_families_have_no_norms_of_outputs(family):
    assert not shape_of(CONFIG | {"model_type": family}, "own", "config").output_norms
