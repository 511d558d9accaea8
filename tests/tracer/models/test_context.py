"""Context parallelism: GPUs that share each sequence have equal work, exchange keys and values, and wait for them."""

from dataclasses import replace

import pytest

from tracer.kernels import make_kernels
from tracer.models.catalogue import load_model
from tracer.models.context import Span, gather_spans, ring_spans
from tracer.models.deployment import ContextExchange, Deployment, ModelPhase, Recompute, Software, check_deployment
from tracer.models.memory import local_weights, memory_need
from tracer.models.schedule import Exchange, Lane, OperatorClass
from tracer.models.steps import Steps
from tracer.models.whole import make_schedule
from traces.errors import UserError

TRAIN = Deployment(phase=ModelPhase.TRAIN, cp=4, sequence=4096, micro_batch=2)
RING, GATHER, ULYSSES = ContextExchange
LLAMA = "llama-3-8b"
KEYS = 2 * 1024 * 2
"""Bytes of the keys and values of a token of Llama-3-8B."""


def steps_of(how, block="layer", model=LLAMA):
    """Name -> step of a block."""
    (found,) = (each for each in make_schedule(load_model(model), how).blocks() if each.name == block)
    return {step.name: step for step in found.steps}


def attention_of(steps):
    """The main kernel of each step of the attention core."""
    texts = [step.work for step in steps.values() if step.operator_class == OperatorClass.ATTENTION]
    return [max(make_kernels(text), key=lambda kernel: kernel.flops) for text in texts]


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.SELECTIVE])
@pytest.mark.parametrize("model", ["llama-3-8b", "bert-large", "deepseek-v3"])
@pytest.mark.parametrize(
    ("cp", "context"),
    [(cp, context) for cp in (2, 3, 4) for context in ContextExchange if cp != 3 or context != ULYSSES],
)
def test_each_gpu_has_its_share_of_the_attention(cp, context, model, recompute):
    """To the pair of a query and a key, forward and backward."""
    sequence = 384
    how = replace(TRAIN, cp=cp, context=context, sequence=sequence, recompute=recompute)
    blocks = make_schedule(load_model(model), replace(TRAIN, cp=1, sequence=sequence)).blocks()
    for block in ("layer", "backward"):
        whole = attention_of({step.name: step for each in blocks if each.name == block for step in each.steps})
        own = attention_of(steps_of(how, block, model))
        again = cp * sum(kernel.flops for kernel in own)
        extra = sum(kernel.flops for kernel in attention_of(steps_of(how, "layer", model)))
        if block == "backward" and recompute == Recompute.SELECTIVE:
            again -= cp * extra
        assert again == sum(kernel.flops for kernel in whole)


@pytest.mark.parametrize("cp", [2, 3, 5])
def test_the_ring_visits_all_keys_that_a_gpu_needs(cp):
    """GPU g has parts g and 2 cp - 1 - g of 2 cp. By position: which parts of the queries see which of the keys?"""
    steps = Steps(load_model(LLAMA), replace(TRAIN, cp=cp, sequence=60 * cp))
    half, own = 30, cp // 2
    parts = {gpu: (gpu, 2 * cp - 1 - gpu) for gpu in range(cp)}
    for number, span in enumerate(ring_spans(steps)):
        other = (own - number) % cp
        seen = {(q, k) for q in parts[own] for k in parts[other] if k <= q}
        queries, keys = ({pair[place] for pair in seen} for place in (0, 1))
        assert span == Span(half * len(queries), half * len(keys), number == 0)
        assert number == 0 or len(seen) == len(queries) * len(keys)  # nothing is masked
    first, second = gather_spans(steps)
    assert [first.keys, second.keys] == [half * (part + 1) for part in parts[own]]


def test_keys_travel_beside_the_attention_of_those_before():
    found = steps_of(TRAIN)
    moved = Exchange("send_recv", 2 * 1024 * KEYS, 2, 3)
    sends = [step for step in found.values() if step.lane == Lane.CONTEXT]
    assert [step.work for step in sends] == [moved] * 3
    assert found["keys_send_0"].after == ("rotary",)
    assert found["attention_0"].after == ("rotary",)
    for number in range(1, 4):
        assert found[f"attention_{number}"].after == (f"attention_{number - 1}", f"keys_send_{number - 1}")
    merges = [make_kernels(found[f"attention_merge_{number}"].work)[0].moved_bytes for number in range(4)]
    out = 2 * 1024 * 4096 * 2
    assert merges == [(out, out), (2 * out, out), (2 * out, out), (out, out // 2)]


def test_gradients_of_keys_follow_them_and_come_home():
    """Keys and values are sent three times, their gradients four times; the last send is waited for."""
    found, each = steps_of(TRAIN, "backward"), 2 * 1024 * KEYS
    sends = [step for step in found.values() if step.lane == Lane.CONTEXT]
    assert [step.work.bytes // each for step in sends] == [1, 2, 2, 1, 1]
    assert sum(step.work.bytes for step in sends) == 7 * each
    for number in (1, 2, 3):
        assert found[f"keys_send_back_{number}"].after[0] == f"keys_send_back_{number - 1}"
        assert found[f"attention_back_{number}"].after[-1] == f"keys_send_back_{number - 1}"
        assert f"keys_send_back_{number}" in found[f"attention_sum_back_{number}_0"].after
    assert found["keys_send_back_2"].after[1] == "attention_sum_back_1_1"
    names = list(found)
    assert names[names.index("gradients_send_back") + 1] == "rotary_back" and not found["rotary_back"].after


def test_gathered_keys_are_put_in_order_and_their_gradients_scattered():
    how = replace(TRAIN, context=GATHER, tp=2)
    forward, backward = steps_of(how), steps_of(how, "backward")
    whole = 2 * 4096 * KEYS // 2 // 2  # of keys or of values, on one of two GPUs
    for found, back in ((forward, ""), (backward, "_back")):
        assert found[f"keys_gather{back}"].work == Exchange("all_gather", whole, 4, 2)
        assert found[f"values_gather{back}"].work == Exchange("all_gather", whole, 4, 2)
        moved = [make_kernels(found[f"keys_order{back}_{n}"].work)[0].moved_bytes for n in (0, 1)]
        assert moved == [(whole, whole)] * 2
    assert backward["values_scatter_back"].work == Exchange("reduce_scatter", whole, 4, 2)
    sums = [make_kernels(backward[f"attention_sum_back_{n}"].work)[0].moved_bytes[1] for n in (0, 1)]
    assert sums == [2 * whole * part // 8 for part in (3, 6)]


def test_ulysses_exchanges_heads_for_parts_of_sequences():
    how = replace(TRAIN, context=ULYSSES, tp=2)
    forward, backward = steps_of(how), steps_of(how, "backward")
    heads, context = 2 * 1024 * (2048 + 2 * 512) * 2, 2 * 1024 * 2048 * 2
    assert forward["heads_exchange"].work == Exchange("all_to_all", heads, 4, 2)
    assert forward["context_exchange"].work == Exchange("all_to_all", context, 4, 2)
    assert backward["context_back_exchange"].work == Exchange("all_to_all", context, 4, 2)
    assert backward["heads_back_exchange"].work == Exchange("all_to_all", heads, 4, 2)
    text = "flash_attention:batch=2,heads=4,kv_heads=1,seq=4096,head_dim=128,causal=true"
    assert forward["attention"].work == f"{text},stats=true,dtype=bf16"
    assert backward["attention_back"].work == f"{text},backward=true,dtype=bf16"


def test_a_gpu_has_its_part_of_the_cache():
    whole, part = (memory_need(load_model(LLAMA), Deployment(cp=cp, sequence=8192)).kv_cache for cp in (1, 4))
    assert whole == 4 * part == 32 * 8192 * KEYS


def test_a_prompt_keeps_the_sums_that_merge_its_parts():
    ring = steps_of(Deployment(cp=2, sequence=4096))
    assert all("stats=true" in ring[f"attention_{n}"].work for n in (0, 1))
    assert "stats" not in steps_of(Deployment(cp=2, sequence=4096, context=GATHER))["attention_0"].work


@pytest.mark.parametrize("software", Software)
def test_tokens_and_weights_are_those_of_the_gpus_together(software):
    """All GPUs of a group have all tokens once; they add their gradients, and share out the weights with ZeRO."""
    model, how = load_model(LLAMA), replace(TRAIN, tp=2, dp=3, zero=1, software=software)
    found = steps_of(how, "backward")
    assert how.gpus == 24 and how.tokens * how.cp == 2 * 4096
    assert (found["gradients"].work.gpus, found["gradients"].work.stride) == (12, 2)
    alone, shared = (memory_need(model, each) for each in (replace(how, zero=0), how))
    assert shared.optimizer == pytest.approx(alone.optimizer / 12, rel=1e-6)
    whole = memory_need(model, replace(how, cp=1, micro_batches=1))
    assert memory_need(model, how).activations == whole.activations // 4
    assert local_weights(model, how) == local_weights(model, replace(how, cp=1))


def test_stages_are_behind_the_gpus_that_share_sequences():
    schedule = make_schedule(load_model(LLAMA), replace(TRAIN, tp=2, dp=2, pp=4, micro_batches=8))
    (send, _) = schedule.handover
    assert send.work == Exchange("send_recv", 2 * 1024 * 4096 * 2, 2, 2 * 4 * 2 * 3)


def test_experts_are_on_the_gpus_that_share_sequences():
    how = replace(TRAIN, ep=4, dp=2, zero=1)
    found = steps_of(how, "expert backward", "mixtral-8x7b")
    assert found["dispatch_back"].work.gpus == 4
    assert (found["expert_gradients"].work.gpus, found["expert_gradients"].work.stride) == (2, 4)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        (LLAMA, {"cp": 1, "context": GATHER}, "context = gather: allowed is ring with cp = 1"),
        (LLAMA, {"phase": ModelPhase.GENERATE, "sequence": 2048, "micro_batch": 1}, "cp = 4: allowed is 1 in generat"),
        (LLAMA, {"flash": False}, "cp = 4: allowed is 1 without fused attention"),
        (LLAMA, {"sequence": 4092}, r"sequence = 4092: allowed is a multiple of 2 \* cp = 8 from 16 on"),
        (LLAMA, {"sequence": 8}, r"sequence = 8: allowed is a multiple of 2 \* cp = 8 from 16 on"),
        (LLAMA, {"context": ULYSSES, "tp": 4}, "cp = 4: allowed is a divisor of the 2 heads of keys on a GPU"),
        (LLAMA, {"context": ULYSSES, "tp": 16}, "cp = 4: allowed is a divisor of the 0 heads of keys on a GPU"),
        (LLAMA, {"context": ULYSSES, "sequence": 4094}, "cp = 4: allowed is a divisor of sequence = 4094"),
        (LLAMA, {"cp": 0}, "cp = 0: allowed is 1 to"),
        ("mixtral-8x7b", {"ep": 8}, r"ep = 8: allowed is a divisor of tp \* cp \* dp = 4"),
    ],
)
def test_what_cannot_be_shared_is_refused(model, change, message):
    with pytest.raises(UserError, match=message):
        check_deployment(load_model(model), replace(TRAIN, **change))
