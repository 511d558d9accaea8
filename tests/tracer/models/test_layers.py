"""Steps of a layer: the matrix work of its passes, what a step waits for, sizes of exchanges and of memory."""

import re
from dataclasses import replace

import pytest

from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase
from tracer.models.memory import memory_need
from tracer.models.schedule import Exchange, OperatorClass
from tracer.models.whole import make_schedule

TRAIN = Deployment(phase=ModelPhase.TRAIN, sequence=1024)
SPLIT = replace(TRAIN, tp=8, sequence_parallel=True)


ADDED = "(?:,out_dtype=fp32,with_c=true)?"
"""Of the GEMM of a weight's gradient, which adds it to earlier ones."""


def blocks(model, how):
    return {block.name: block.steps for block in make_schedule(load_model(model), how).blocks()}


def macs(steps):
    """Multiply-accumulates of the linear layers, as the texts of their kernels give them."""
    texts = [step.work for step in steps if step.operator_class == OperatorClass.MATRIX]
    found = [re.fullmatch(rf"gemm:m=(\d+),n=(\d+),k=(\d+)(?:,batch=(\d+))?{ADDED},dtype=\w+", text) for text in texts]
    assert found and all(found)
    sizes = [[int(size or 1) for size in match.groups()] for match in found if match]
    return sum(m * n * k * batch for m, n, k, batch in sizes)


@pytest.mark.parametrize(
    ("model", "tp"),
    [("gpt-22b", 1), ("gpt-22b", 4), ("bert-large", 2), ("llama-3-8b", 8), ("deepseek-v3", 1), ("mixtral-8x7b", 2)],
)
def test_a_token_meets_each_weight_once_forward_and_twice_backward(model, tp):
    shape, how = load_model(model), replace(TRAIN, tp=tp, sequence=512)
    found, attention = blocks(model, how), shape.attention_weights
    if "layer" in found:
        weights = attention + shape.mlp_weights(shape.intermediate)
        assert macs(found["layer"]) * tp == 512 * weights and macs(found["backward"]) * tp == 2 * 512 * weights
    if shape.experts:
        each = (shape.experts.per_token + shape.experts.shared) * shape.expert_weights
        router = tp * shape.hidden * shape.experts.count  # every GPU routes all tokens
        forward, backward = macs(found["expert layer"]), macs(found["expert backward"])
        assert backward == 2 * forward
        assert forward * tp == 512 * (attention + each + router)


def waits(steps):
    """Step -> what it waits for, if that is not only the step before it."""
    return {step.name: step.after for step in steps if step.after}


def test_a_backward_pass_waits_for_its_exchanges_where_it_needs_them():
    """The exchange of an input's gradient runs beside the GEMM of the weights' gradient, which waits for its input; the
    gradient of a norm waits for both."""
    assert waits(blocks("llama-3-8b", SPLIT)["backward"]) == {
        "mlp_up_input": ("mlp_activation_back",),
        "mlp_reduce_back": ("mlp_up_input",),
        "mlp_up_weight": ("mlp_up_input", "mlp_gather_again"),
        "attention_residual_norm_back_0": ("mlp_up_weight", "mlp_reduce_back"),
        "qkv_input": ("rotary_back",),
        "attention_reduce_back": ("qkv_input",),
        "qkv_weight": ("qkv_input", "attention_gather_again"),
        "attention_norm_back": ("qkv_weight", "attention_reduce_back"),
    }
    assert waits(blocks("bert-large", replace(SPLIT, sequence=512))["output backward"]) == {
        "logits_input": ("loss_back",),
        "logits_reduce_back": ("logits_input",),
        "logits_weight": ("logits_input", "logits_gather_again"),
        "head_norm_back_0": ("logits_reduce_back", "logits_weight"),
    }


def test_divided_rows_are_gathered_before_every_gemm_that_needs_them_whole():
    """Sequence parallelism: twice forward; backward also the inputs of both GEMMs of weights' gradients again."""
    found = blocks("llama-3-8b", SPLIT)
    gathered = [
        [step.name for step in found[name] if isinstance(step.work, Exchange) and step.work.kind == "all_gather"]
        for name in ("layer", "backward")
    ]
    assert gathered == [
        ["attention_gather", "mlp_gather"],
        ["mlp_gather_back", "mlp_gather_again", "attention_gather_back", "attention_gather_again"],
    ]


@pytest.mark.parametrize(("divided", "rows"), [(False, 1024), (True, 128)])
def test_a_stage_hands_over_the_rows_that_its_gpu_has(divided, rows):
    how = replace(SPLIT, pp=2, sequence_parallel=divided)
    schedule = make_schedule(load_model("llama-3-8b"), how)
    assert [step.work for step in schedule.handover] == [Exchange("send_recv", rows * 4096 * 2, 2, 8)] * 2


def test_a_loss_exchanges_two_sums_of_each_token():
    (reduce,) = [step.work for step in blocks("llama-3-8b", SPLIT)["output"] if step.name == "loss_reduce"]
    assert reduce == Exchange("all_reduce", 2 * 1024 * 4, 8)


@pytest.mark.parametrize(("zero", "gathered"), [(0, False), (1, True), (2, True), (3, False)])
def test_new_weights_are_gathered_once(zero, gathered):
    """With stage 3 each layer gathers them before its use."""
    found = blocks("llama-3-8b", replace(TRAIN, dp=4, zero=zero))
    assert ("new weights" in found) == gathered


@pytest.mark.parametrize(("pp", "micro_batches", "held"), [(1, 8, 1), (4, 8, 4), (4, 2, 2)])
def test_a_stage_holds_micro_batches_until_their_backward_pass(pp, micro_batches, held):
    """1F1B: the first stage begins as many as there are stages, if there are so many (32 layers)."""
    model = load_model("llama-3-8b")
    one = memory_need(model, TRAIN).activations
    how = replace(TRAIN, pp=pp, micro_batches=micro_batches)
    assert memory_need(model, how).activations * pp == one * held


def test_every_gpu_has_the_whole_latent_cache():
    """DeepSeek-V3: 61 layers keep 512 + 64 values of a token, in two bytes, for all heads."""
    how = Deployment(phase=ModelPhase.GENERATE, tp=8, kv_length=999, micro_batch=3)
    assert memory_need(load_model("deepseek-v3"), how).kv_cache == 3 * 1000 * 576 * 2 * 61
