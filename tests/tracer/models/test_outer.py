"""Embedding and output layer of a schedule: what is exchanged for their weights, inputs and gradients."""

from dataclasses import replace

import pytest

from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase
from tracer.models.memory import local_weights
from tracer.models.schedule import Exchange, Lane
from tracer.models.whole import make_schedule

TRAIN = Deployment(phase=ModelPhase.TRAIN, sequence=128)


def block(model, how, name):
    """Name -> step of a block."""
    (found,) = (each for each in make_schedule(model, how).blocks() if each.name == name)
    return {step.name: step for step in found.steps}


@pytest.mark.parametrize("name", ["llama-3-8b", "qwen3-0.6b"])
def test_zero_3_gathers_the_weights_outside_the_layers(name):
    """Also where both layers share them. Memory has 1 / 8 of them on each GPU."""
    model, how = load_model(name), replace(TRAIN, dp=8, zero=3, tp=2)
    whole = Exchange("all_gather", model.vocab * model.hidden // 2 * 2, 8, 2)
    embedding = block(model, how, "embedding")
    assert [*embedding] == ["weights", "embedding", "embedding_reduce"]
    assert (embedding["weights"].work, embedding["weights"].lane) == (whole, Lane.DATA)
    assert not embedding["embedding"].after  # the step before it
    for name, first, gemm in (("output", "last_norm", "logits"), ("output backward", "loss_back", "logits_input")):
        found = block(model, how, name)
        assert (found["next_weights"].work, found["next_weights"].after) == (whole, (first,))
        assert found[gemm].after == (first,)
    for zero in (0, 2):
        steps = block(model, replace(how, zero=zero), "output") | block(model, replace(how, zero=zero), "embedding")
        assert not {"weights", "next_weights"} & {*steps}


@pytest.mark.parametrize("tp", [1, 8])
def test_sequence_parallelism_gathers_the_input_of_the_output_layer_again(tp):
    """The gradient of its weights needs all tokens (arXiv 2205.05198, section 4.2.2); the gather runs beside the GEMM
    of the input's gradient. Llama-3-8B: 128 tokens of 4096 values of two bytes."""
    model, how = load_model("llama-3-8b"), replace(TRAIN, tp=tp, sequence_parallel=True)
    found = block(model, how, "output backward")
    assert found["logits_input"].after == ("loss_back",)
    gathers = {name: step.work for name, step in found.items() if "gather" in name}
    assert gathers == ({"logits_gather_again": Exchange("all_gather", 128 * 4096 * 2, 8)} if tp > 1 else {})
    assert found["logits_weight"].after == ("logits_input", *gathers)
    plain = block(model, replace(how, sequence_parallel=False), "output backward")
    assert not [name for name in plain if "gather" in name]


@pytest.mark.parametrize("name", ["llama-3-8b", "qwen3-0.6b", "bert-large"])
@pytest.mark.parametrize("options", [{}, {"pp": 2}, {"pp": 2, "tp": 2, "zero": 1, "micro_batches": 4}])
def test_gradients_are_of_the_weights_that_the_optimizer_updates(name, options):
    """In fp32, also where embedding and output layer are on two stages, and with the head of an encoder."""
    model, how = load_model(name), replace(TRAIN, dp=4, **options)
    blocks = make_schedule(model, how).backward
    gradients = [(block.repeats, step) for block in blocks for step in block.steps if step.name == "gradients"]
    assert sum(repeats * step.work.bytes for repeats, step in gradients) == 4 * local_weights(model, how).total


def test_a_part_of_an_embedding_has_at_least_one_weight():
    """One word of one element on three GPUs."""
    model = replace(load_model("llama-3-8b"), hidden=1, heads=3, kv_heads=3, intermediate=3, vocab=1)
    found = block(model, replace(TRAIN, tp=3, pp=2, micro_batches=2), "embedding backward")
    assert found["gradient_sum"].work == "residual:rows=1,cols=1024,dtype=fp32"


@pytest.mark.parametrize(
    ("options", "parts"),
    [({}, 2), ({"dp": 4, "zero": 1}, 2), ({"dp": 4, "zero": 2}, 8), ({"micro_batches": 4, "interleave": 2}, 2)],
)
def test_the_copies_of_a_tied_embedding_add_their_gradients_once(options, parts):
    """Qwen3-0.6B on two stages of two GPUs: 151936 x 1024 weights in fp32 before the optimizer, once an iteration."""
    model, how = load_model("qwen3-0.6b"), replace(TRAIN, tp=2, pp=2, **options)
    first, *others = make_schedule(model, how).finish
    (step,) = first.steps
    assert (step.work, step.lane) == (Exchange("all_reduce", 4 * 151_936 * 1024 // parts, 2, 2 * how.dp), Lane.PIPELINE)
    assert others[0].name == "optimizer"
    for other in (make_schedule(model, replace(how, pp=1, interleave=1)), make_schedule(load_model("llama-3-8b"), how)):
        assert other.finish[0].name == "optimizer"
