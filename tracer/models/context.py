"""The attention of a layer, also of sequences that `cp` GPUs share (context parallelism).

With causality a GPU has two parts of each sequence, of 1 / (2 cp) of it: number g from its begin and number g from its
end. So all GPUs have the same number of pairs of queries and keys. The steps here are those of GPU cp / 2. Without
causality its queries meet all keys.

ring      The GPU sends its keys and values to the next one, beside the attention of those that it has. Of a GPU with a
          smaller g it needs the first part, and all its queries see that; of one with a larger g its last part of the
          queries sees all. The outputs are merged at the end. Backward, the gradients of keys and values follow them
          from GPU to GPU, and a last send brings them home.
gather    All keys and values are gathered and put in order; each part of the queries sees the keys before it. Backward
          they are gathered again, and their gradients end in a reduce-scatter.
ulysses   An all-to-all gives each GPU whole sequences of 1 / cp of the heads, another one takes outputs back.

Sources: Transformer Engine (transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py:
`AttnFuncWithCPAndKVP2P`, `AttnFuncWithCPAndKVAllGather`, `AttnFuncWithCPAndQKVOA2A`); DeepSpeed-Ulysses, arXiv
2309.14509; Llama 3, arXiv 2407.21783, section 3.3.2 (gather). All software has these steps here (assumed), with its own
attention. A merge is the sum of two tensors here: the logarithms of sums, 1 / head_dim of it, are left out.
"""

from dataclasses import replace
from typing import NamedTuple

from tracer.models.deployment import ContextExchange
from tracer.models.schedule import Lane, OperatorClass
from tracer.models.steps import Steps

ATTENTION, NORM = OperatorClass.ATTENTION, OperatorClass.NORM


class Span(NamedTuple):
    """Queries of each sequence, and the keys that they see: all of them, or with causality those before each."""

    queries: int
    keys: int
    causal: bool


def add_attention(steps: Steps) -> None:
    """Add the attention of a forward pass behind what makes queries, keys and values."""
    if steps.how.cp > 1:
        FORWARD[steps.how.context](steps)
        return
    for name, kind, work in steps.texts.attention():
        steps.add(name, kind, work)


def add_attention_backward(steps: Steps) -> None:
    """Add the attention of a backward pass behind what makes the gradient of its output."""
    if steps.how.cp > 1:
        BACKWARD[steps.how.context](steps)
        return
    for name, kind, work in steps.texts.attention_backward():
        steps.add(name, kind, work)


def ring_spans(steps: Steps) -> list[Span]:
    """What is computed in each step of the ring: the own keys, then those of the GPUs before it."""
    how, causal = steps.how, steps.model.causal
    length, half = how.length, how.length // 2
    if not causal:
        return [Span(length, length, False)] * how.cp
    smaller, larger = Span(length, half, False), Span(half, length, False)
    return [Span(length, length, True)] + [smaller if n <= how.cp // 2 else larger for n in range(1, how.cp)]


def gather_spans(steps: Steps) -> list[Span]:
    """What is computed of gathered keys."""
    how, half = steps.how, steps.how.length // 2
    if not steps.model.causal:
        return [Span(how.length, how.sequence, False)]
    first = how.cp // 2
    return [Span(half, (first + 1) * half, True), Span(half, (2 * how.cp - first) * half, True)]


def _ring(steps: Steps) -> None:
    texts, how = steps.texts, steps.how
    spans = ring_spans(steps)
    sent = before = steps.steps[-1].name
    for number, span in enumerate(spans):
        here = sent
        if number + 1 < how.cp:
            sent = _send(steps, f"keys_send_{number}", 1, sent)
        _attend(steps, f"attention_{number}", texts.flash(*span), before, here)
        before = steps.steps[-1].name
    merges = [texts.sum(how.micro_batch * span.queries, texts.attended) for span in spans[1:]]
    steps.add("attention_merge", NORM, *texts.passes(how.tokens, [texts.attended]), *merges)


def _ring_backward(steps: Steps) -> None:
    texts, how = steps.texts, steps.how
    query, *keys = texts.projected
    sent = before = steps.steps[-1].name
    for number, span in enumerate(ring_spans(steps)):
        here = sent
        tensors = (number + 1 < how.cp) + (number > 0)  # keys and values; their gradients of the step before
        sent = _send(steps, f"keys_send_back_{number}", tensors, sent, before)
        _attend(steps, f"attention_back_{number}", texts.flash(*span, backward=True), before, here)
        before = steps.steps[-1].name
        if number:
            rows = (how.micro_batch * span.queries, query), (how.micro_batch * span.keys, sum(keys))
            steps.add(f"attention_sum_back_{number}", NORM, *(texts.sum(*size) for size in rows))
            steps.wait_for(f"attention_sum_back_{number}", [sent])
            before = steps.steps[-1].name
    _send(steps, "gradients_send_back", 1, before)


def _send(steps: Steps, name: str, tensors: int, *after: str) -> str:
    """Keys and values, or their gradients, go to the next GPU. Returns the name of the step."""
    how = steps.how
    size = tensors * how.tokens * sum(steps.texts.projected[1:]) * how.dtype.bytes
    far = how.tp * (how.cp - 1)  # between nodes if any send of the ring is
    steps.exchange(name, "send_recv", size, 2, far, after=tuple(dict.fromkeys(after)), lane=Lane.CONTEXT)
    return steps.steps[-1].name


def _attend(steps: Steps, name: str, text: str, *after: str) -> None:
    steps.add(name, ATTENTION, text)
    steps.steps[-1] = replace(steps.steps[-1], after=tuple(dict.fromkeys(after)))


def _gather(steps: Steps) -> None:
    _gather_keys(steps, "")
    for number, span in enumerate(gather_spans(steps)):
        steps.add(f"attention_{number}", ATTENTION, steps.texts.flash(*span))


def _gather_keys(steps: Steps, back: str) -> None:
    """Keys and values of whole sequences, in order."""
    how, widths = steps.how, steps.texts.projected[1:]
    for name, width in zip(("keys", "values"), widths, strict=True):
        size = how.cp * how.tokens * width * how.dtype.bytes
        steps.exchange(f"{name}_gather{back}", "all_gather", size, how.cp, how.tp, lane=Lane.CONTEXT)
    steps.add(f"keys_order{back}", NORM, *steps.texts.passes(how.cp * how.tokens, widths))


def _gather_backward(steps: Steps) -> None:
    how, texts, widths = steps.how, steps.texts, steps.texts.projected[1:]
    _gather_keys(steps, "_back")
    for number, span in enumerate(gather_spans(steps)):
        steps.add(f"attention_back_{number}", ATTENTION, texts.flash(*span, backward=True))
        steps.add(f"attention_sum_back_{number}", NORM, texts.sum(how.micro_batch * span.keys, sum(widths)))
    steps.add("gradients_order", NORM, *texts.passes(how.cp * how.tokens, widths))
    for name, width in zip(("keys", "values"), widths, strict=True):
        size = how.cp * how.tokens * width * how.dtype.bytes
        steps.exchange(f"{name}_scatter_back", "reduce_scatter", size, how.cp, how.tp, lane=Lane.CONTEXT)


def _ulysses(steps: Steps) -> None:
    texts, how = steps.texts, steps.how
    _to_heads(steps, "heads", texts.projected)
    span = Span(how.sequence, how.sequence, steps.model.causal)
    steps.add("attention", ATTENTION, texts.flash(*span, cut=how.cp))
    _from_heads(steps, "context", [texts.attended])


def _ulysses_backward(steps: Steps) -> None:
    texts, how = steps.texts, steps.how
    _to_heads(steps, "context_back", [texts.attended])
    span = Span(how.sequence, how.sequence, steps.model.causal)
    steps.add("attention_back", ATTENTION, texts.flash(*span, cut=how.cp, backward=True))
    _from_heads(steps, "heads_back", texts.projected)


def _to_heads(steps: Steps, name: str, widths: list[int]) -> None:
    """Some heads of whole sequences instead of all heads of a part: in the order of the GPUs, then an all-to-all."""
    steps.add(f"{name}_order", NORM, *steps.texts.passes(steps.how.tokens, widths))
    _exchange_heads(steps, name, widths)


def _from_heads(steps: Steps, name: str, widths: list[int]) -> None:
    """The other way."""
    _exchange_heads(steps, name, widths)
    steps.add(f"{name}_order", NORM, *steps.texts.passes(steps.how.tokens, widths))


def _exchange_heads(steps: Steps, name: str, widths: list[int]) -> None:
    how = steps.how
    size = how.tokens * sum(widths) * how.dtype.bytes
    steps.exchange(f"{name}_exchange", "all_to_all", size, how.cp, how.tp, lane=Lane.CONTEXT)


FORWARD = {ContextExchange.RING: _ring, ContextExchange.GATHER: _gather, ContextExchange.ULYSSES: _ulysses}
BACKWARD = {
    ContextExchange.RING: _ring_backward,
    ContextExchange.GATHER: _gather_backward,
    ContextExchange.ULYSSES: _ulysses_backward,
}
