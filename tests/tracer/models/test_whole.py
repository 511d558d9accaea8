"""Schedules of whole models: which kernels each software runs, heads, sums of gradients, what is exchanged."""

from dataclasses import replace

import pytest

from tracer.data_type import DataType
from tracer.kernels import make_kernels
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Optimizer, Software
from tracer.models.schedule import Exchange, Lane
from tracer.models.whole import make_schedule

HOW = Deployment(
    phase=ModelPhase.TRAIN,
    micro_batch=2,
    sequence=128,
    dtype=DataType.FP16,
    optimizer=Optimizer.LAMB,
    flash=False,
    dropout=True,
)
BERT = load_model("bert-large")


def steps(how, model=BERT):
    return {block.name: {step.name: step.work for step in block.steps} for block in make_schedule(model, how).blocks()}


@pytest.mark.parametrize(("software", "kernels"), [("eager", 28), ("eager-2019", 28), ("megatron", 15), ("fused", 11)])
def test_a_layer_has_the_kernels_of_its_software(software, kernels):
    """As in the table of `tracer.models.texts`, counted by hand."""
    layer = steps(replace(HOW, software=Software(software)))["layer"]
    assert len(layer) == kernels
    assert [name for name, work in layer.items() if work.startswith("gemm")][-3:] == ["output", "mlp_up", "mlp_down"]


def test_every_kernel_of_a_step_can_be_made():
    for software in Software:
        for dtype in (DataType.FP16, DataType.FP32):
            for block in steps(replace(HOW, software=software, dtype=dtype, micro_batches=2)).values():
                for work in block.values():
                    assert make_kernels(work)


@pytest.mark.parametrize("software", Software)
def test_pytorch_multiplies_before_the_gradient_of_softmax(software):
    """2 sequences, 16 heads, 128 x 128 scores."""
    backward = steps(replace(HOW, software=software))["backward"]
    product = {name: work for name, work in backward.items() if name == "softmax_back_product"}
    expected = {
        Software.EAGER: {"softmax_back_product": "residual:rows=4096,cols=128,dtype=fp16"},
        Software.EAGER_2019: {"softmax_back_product": "residual:rows=4096,cols=128,scalar=true,dtype=fp16"},
    }
    assert product == expected.get(software, {})


def test_an_encoder_predicts_the_chosen_words():
    output = steps(replace(HOW, predictions=20))["output"]
    assert output["head"] == "gemm:m=40,n=1024,k=1024,dtype=fp16"
    assert output["logits"] == "gemm:m=40,n=30522,k=1024,dtype=fp16"
    assert steps(HOW)["output"]["logits"] == "gemm:m=256,n=30522,k=1024,dtype=fp16"


def test_gradients_are_added_up_over_micro_batches():
    several = steps(replace(HOW, micro_batches=2))
    assert several["backward"]["gradient_sum"] == "residual:rows=1,cols=12582912,dtype=fp32"
    assert "gradient_sum" not in steps(HOW)["backward"]
    for dtype in (DataType.FP16, DataType.FP32):  # Megatron-LM: also with one micro-batch, in the type of the weights
        one = steps(replace(HOW, software=Software.MEGATRON, dtype=dtype))
        assert one["backward"]["gradient_sum"] == f"residual:rows=1,cols=12582912,dtype={dtype}"


def test_kernels_of_megatron_lm():
    """2 sequences of 128 tokens, 16 heads of 64: what its sources run beside GEMMs (`tracer.models.texts`)."""
    found = steps(replace(HOW, software=Software.MEGATRON, optimizer=Optimizer.ADAM))
    assert found["layer"]["qkv_bias"] == "bias:rows=256,cols=3072,dtype=fp16"
    for name in ("query_scale", "key_scale"):
        assert found["backward"][name] == "bias:rows=4096,cols=64,dtype=fp16"
    assert "context_copy" in found["layer"] and "context_copy_back" not in found["backward"]
    (update,) = found["optimizer"].values()
    assert len(make_kernels(update)) == 8
    other = steps(replace(HOW, software=Software.MEGATRON, optimizer=Optimizer.ADAM, dtype=DataType.BF16))
    assert [*other["optimizer"]] == ["gradient_clip", "adam"]


def test_all_weights_are_exchanged_once():
    """In bytes of fp32; norms and biases are left out."""
    schedule = make_schedule(BERT, replace(HOW, dp=4))
    moved = sum(
        block.repeats * step.work.bytes
        for block in schedule.blocks()
        for step in block.steps
        if isinstance(step.work, Exchange) and step.lane == Lane.DATA
    )
    assert moved == 4 * (BERT.weights + BERT.hidden**2)
