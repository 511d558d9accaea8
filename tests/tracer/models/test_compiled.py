"""Software `compile`: what torch.compile makes of a layer, of the loss, and what stays as in eager software."""

from dataclasses import replace

import pytest

from tracer.kernels import make_kernels
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Software
from tracer.models.layer import backward_steps, forward_steps
from tracer.models.memory import memory_need
from tracer.models.schedule import OperatorClass
from tracer.models.texts import KernelTexts

TRAIN = Deployment(phase=ModelPhase.TRAIN, sequence=512, software=Software.COMPILE)


def works(model, how):
    """(forward, backward) kernels of a layer that are no matrix products of weights: name -> text."""
    shape = load_model(model)
    return tuple(
        {
            step.name: step.work
            for step in steps
            if step.operator_class != OperatorClass.MATRIX and isinstance(step.work, str)
        }
        for steps in (forward_steps(shape, how, True), backward_steps(shape, how, True))
    )


def test_a_layer_has_one_kernel_between_matrix_products():
    forward, backward = works("llama-3-8b", replace(TRAIN, dp=8, zero=3))
    norm = "rmsnorm:rows=512,cols=4096,{}library=inductor,residual=true,dtype=bf16"
    assert forward["attention_norm"] == forward["attention_residual_norm"] == norm.format("stats=true,")
    assert backward["attention_norm_back"] == norm.format("backward=true,")
    assert forward["mlp_activation"] == "swiglu:rows=512,cols=14336,library=inductor,dtype=bf16"
    assert set(forward) == {"attention_norm", "rotary", "attention", "attention_residual_norm", "mlp_activation"}
    assert set(backward) == {f"{name}_back" for name in forward}, "the sums of residuals are in the norms' kernels"


@pytest.mark.parametrize("zero", [0, 3])
def test_autocast_is_in_the_kernels(zero):
    """Without FSDP residuals are in fp32; no kernel only casts activations."""
    forward, backward = works("gpt-22b", replace(TRAIN, dp=8, zero=zero, dropout=True))
    types = "dropout=true,dtype=bf16" if zero else "dropout=true,out=bf16,dtype=fp32"
    norms = [text for text in (*forward.values(), *backward.values()) if text.startswith("layernorm")]
    assert len(norms) == 4 and all(text.endswith(types) for text in norms)
    assert not [text for text in (*forward.values(), *backward.values()) if text.startswith(("copy", "residual"))]


def test_biases_are_in_the_gemms_and_their_gradients_are_kernels():
    forward, backward = works("gpt-22b", TRAIN)
    assert forward["mlp_activation"] == "gelu:rows=512,cols=24576,library=inductor,dtype=bf16"
    gradients = [name for name, text in backward.items() if text.startswith("bias:")]
    assert len(gradients) == 4 and all("backward=true" in backward[name] for name in gradients)


def test_fused_attention_is_that_of_pytorch():
    forward, backward = works("llama-3-8b", TRAIN)
    assert "library=torch" in forward["attention"] and "version=2" in backward["attention_back"]
    without = works("gpt-22b", replace(TRAIN, flash=False, dropout=True))[0]
    assert without["softmax"].startswith("softmax:") and "library=inductor,dtype=bf16" in without["softmax"]
    assert without["attention_dropout"].endswith("library=inductor,dtype=bf16"), "scores stay in 16 bits"


def test_the_loss_is_in_the_working_type():
    texts = KernelTexts(load_model("llama-3-8b"), TRAIN)
    assert texts.loss() == ["cross_entropy:rows=512,vocab=128256,library=inductor,dtype=bf16"]
    assert texts.loss(backward=True) == [
        "cross_entropy:rows=512,vocab=128256,backward=true,library=inductor,dtype=bf16"
    ]


def test_logits_and_their_gradient_take_memory_in_the_working_type():
    """Fused software writes the gradient over the logits."""
    model = load_model("llama-3-8b")
    found = [memory_need(model, replace(TRAIN, software=one)).logits for one in (Software.COMPILE, Software.FUSED)]
    assert found == [2 * 512 * 128256 * 2, 512 * 128256 * 2]


def test_tokens_go_to_experts_as_in_eager_software():
    """Each expert of a token gets a copy: only fused software sends a token once to each GPU."""
    sent = {}
    for software in (Software.EAGER, Software.COMPILE, Software.FUSED):
        how = Deployment(ep=8, tp=8, sequence=1024, software=software)
        names = [step.name for step in forward_steps(load_model("mixtral-8x7b"), how, False)]
        sent[software] = names.index("permute") < names.index("dispatch")
    assert sent == {Software.EAGER: True, Software.COMPILE: True, Software.FUSED: False}


@pytest.mark.parametrize("model", ["llama-3-8b", "gpt-22b", "bert-large"])
def test_it_moves_less_than_eager_software(model):
    """Bytes of all kernels of a layer that are no matrix products of weights: at most four fifths."""
    moved = {}
    for software in (Software.EAGER, Software.COMPILE):
        steps = works(model, replace(TRAIN, software=software))
        kernels = [kernel for part in steps for text in part.values() for kernel in make_kernels(text)]
        moved[software] = sum(sum(kernel.moved_bytes) for kernel in kernels)
    assert moved[Software.COMPILE] < moved[Software.EAGER] * 0.8
