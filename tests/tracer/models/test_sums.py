"""Sums of branches and of partial gradients in a layer: their kernels and exchanges, and what waits for them."""

from dataclasses import replace

import pytest

from tracer.data_type import DataType
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Optimizer, Software
from tracer.models.layer import backward_steps, forward_steps
from tracer.models.schedule import Exchange
from tracer.models.whole import make_schedule

TRAIN = Deployment(phase=ModelPhase.TRAIN, sequence=1024)
DEEPSEEK = load_model("deepseek-v3")
NARROW = replace(DEEPSEEK, latent=replace(DEEPSEEK.latent, query_rank=0)) if DEEPSEEK.latent else DEEPSEEK
"""Its queries are made from the hidden state, as those of DeepSeek-V2-Lite."""


def found(steps, *names):
    return {step.name: step for step in steps if step.name in names}


def order(steps, *names):
    return [step.name for step in steps if step.name in names]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, 1024),
        ({"tp": 8}, 1024),
        ({"tp": 8, "ep": 8}, 1024),
        ({"tp": 8, "sequence_parallel": True}, 1024),
        ({"tp": 8, "ep": 8, "sequence_parallel": True}, 128),
    ],
)
def test_shared_and_routed_experts_are_added(options, rows):
    """Before one exchange adds up both (no ep), else behind their own exchanges: of the rows that a GPU has then."""
    how = replace(TRAIN, **options)
    for steps, name, reduce in (
        (forward_steps(DEEPSEEK, how, False), "shared_sum", "shared_reduce"),
        (backward_steps(DEEPSEEK, how, False), "shared_input_sum", "shared_reduce_back"),
    ):
        assert found(steps, name)[name].work == f"residual:rows={rows},cols=7168,dtype=bf16"
        if how.tp > 1:
            assert order(steps, name, reduce) == ([name, reduce] if how.ep == 1 else [reduce, name])
        if how.tp > 1 and how.ep == 1:
            assert (found(steps, reduce)[reduce].after, found(steps, reduce)[reduce].reduces) == ((name,), "")
    if how.ep > 1:
        assert found(steps, name)[name].after == ("shared_up_weight", "shared_reduce_back")
    plain = load_model("mixtral-8x7b")
    assert not found(forward_steps(plain, how, False), "shared_sum")


@pytest.mark.parametrize(("options", "rows"), [({}, 1024), ({"tp": 8}, 1024), ({"tp": 8, "ep": 8}, 128)])
def test_gradients_of_router_and_experts_are_added(options, rows):
    """Of the tokens that a GPU routes."""
    steps = backward_steps(load_model("mixtral-8x7b"), replace(TRAIN, **options), False)
    assert found(steps, "router_input_sum")["router_input_sum"].work == f"residual:rows={rows},cols=4096,dtype=bf16"
    assert order(steps, "permute_back", "router_input", "router_input_sum") == [
        *("permute_back", "router_input", "router_input_sum")
    ]


@pytest.mark.parametrize("tp", [1, 8])
def test_partial_gradients_of_latent_ranks_are_added_over_the_gpus(tp):
    """DeepSeek-V3: 1536 elements of queries, 512 of keys and values. The input's gradient is whole on all GPUs then."""
    steps = backward_steps(DEEPSEEK, replace(TRAIN, tp=tp), True)
    reduced = {name: step.work for name, step in found(steps, "q_up_reduce_back", "kv_up_reduce_back").items()}
    sizes = {"kv_up_reduce_back": 1024 * 512 * 2, "q_up_reduce_back": 1024 * 1536 * 2}
    assert reduced == ({name: Exchange("all_reduce", size, 8) for name, size in sizes.items()} if tp > 1 else {})
    assert not found(steps, "attention_reduce_back")
    for rank in ("q", "kv"):
        norm = found(steps, f"{rank}_down_norm_back")[f"{rank}_down_norm_back"]
        assert norm.after == ((f"{rank}_up_weight", f"{rank}_up_reduce_back") if tp > 1 else ())


@pytest.mark.parametrize(("divided", "kind", "rows"), [(False, "all_reduce", 1024), (True, "reduce_scatter", 128)])
def test_queries_without_a_rank_have_a_partial_gradient_of_the_input(divided, kind, rows):
    """It is added up over the GPUs, then added to that of keys and values."""
    steps = backward_steps(NARROW, replace(TRAIN, tp=8, sequence_parallel=divided), True)
    assert order(steps, "kv_up_reduce_back", "kv_down_input", "q_up_input", "attention_reduce_back") == [
        *("kv_up_reduce_back", "kv_down_input", "q_up_input", "attention_reduce_back")
    ]
    reduce = found(steps, "attention_reduce_back")["attention_reduce_back"]
    assert (reduce.work, reduce.reduces) == (Exchange(kind, 1024 * 7168 * 2, 8), "q_up_input")
    total = found(steps, "q_up_input_sum")["q_up_input_sum"]
    assert total.work == f"residual:rows={rows},cols=7168,dtype=bf16"
    assert total.after == ("q_up_weight", "attention_reduce_back")
    assert not [step for step in steps if step.name == "kv_down_input_sum"]


@pytest.mark.parametrize(("tp", "gpus"), [(8, 1), (16, 2), (64, 8)])
def test_gpus_with_the_same_keys_add_their_gradients(tp, gpus):
    """Llama-3-70B has 8 heads of keys and values: with 16 GPUs two have the same one, 2 x 128 elements of a token."""
    steps = backward_steps(load_model("llama-3-70b"), replace(TRAIN, tp=tp), True)
    reduced = [step.work for step in steps if step.name == "kv_reduce_back"]
    assert reduced == ([Exchange("all_reduce", 1024 * 2 * 128 * 2, gpus)] if gpus > 1 else [])


@pytest.mark.parametrize(
    ("software", "dtype", "kind"),
    [
        ("megatron", DataType.FP16, DataType.FP16),
        ("megatron", DataType.BF16, DataType.FP32),
        ("eager", DataType.FP16, DataType.FP32),
        ("fused", DataType.FP16, DataType.FP32),
        ("fused", DataType.TF32, DataType.FP32),
    ],
)
def test_gradients_have_one_type(software, dtype, kind):
    """In their sum over micro-batches, on the links, and where a tied embedding has two copies (Qwen3-0.6B)."""
    how = replace(TRAIN, software=Software(software), dtype=dtype, dp=2, pp=2, micro_batches=2)
    model = load_model("qwen3-0.6b")
    schedule = make_schedule(model, how)
    (layer,) = [block for block in schedule.backward if block.name == "backward"]
    where, what = ("qkv_weight", "out_dtype") if software == "fused" else ("gradient_sum", "dtype")
    assert f"{what}={kind}" in str(found(layer.steps, where)[where].work)
    weights = model.attention_weights + model.mlp_weights(model.intermediate)
    assert found(layer.steps, "gradients")["gradients"].work == Exchange("all_reduce", weights * kind.bytes, 2)
    tied = [step.work.bytes for block in schedule.finish for step in block.steps if step.name == "tied_gradients"]
    assert tied == [151_936 * 1024 * kind.bytes]


@pytest.mark.parametrize(
    ("software", "dtype", "adam", "lamb"),
    [
        ("fused", DataType.BF16, "dtype=fp32,out=bf16", "dtype=fp32,out=bf16"),
        ("megatron", DataType.BF16, "dtype=fp32,out=bf16", "dtype=fp32,out=bf16"),
        ("megatron", DataType.FP16, "dtype=fp16,scaled=true", "dtype=fp16"),
        ("eager-2019", DataType.FP16, "dtype=fp32,out=fp16", "dtype=fp32,out=fp16"),
        ("eager", DataType.BF16, "dtype=fp32,fused=false", "dtype=fp32"),
        ("eager-2023", DataType.FP32, "dtype=fp32,fused=false", "dtype=fp32"),
        ("fused", DataType.TF32, "dtype=fp32", "dtype=fp32"),
    ],
)
def test_an_optimizer_reads_gradients_of_that_type(software, dtype, adam, lamb):
    """Eager software computes with casts of the fp32 weights, the others with a copy."""
    for optimizer, fields in ((Optimizer.ADAM, adam), (Optimizer.LAMB, lamb)):
        how = replace(TRAIN, software=Software(software), dtype=dtype, optimizer=optimizer)
        *_, last = make_schedule(load_model("qwen3-0.6b"), how).finish
        text = str(last.steps[-1].work)
        fields_of = dict(field.split("=") for field in text.partition(":")[2].split(","))
        fields_of.pop("parameters")
        assert fields_of == dict(field.split("=") for field in fields.split(","))
