"""The schedule of a whole model on one GPU: embedding, layers, output layer, and in training backward and optimizer.

Gradients of the GPUs with the same weights are exchanged layer by layer under the backward pass of the last
micro-batch, and with ZeRO the weights are gathered after the optimizer (stages 1 and 2) or before each use (stage 3),
as in arXiv 1910.02054. With replicas (HSDP: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `foreach_reduce`)
ZeRO shares weights out in a group, and an all-reduce of the parts follows. Pipeline stages run one forward and one
backward pass in turn (1F1B, arXiv 2104.04473, section 2.2).
"""

from dataclasses import replace
from typing import NamedTuple

from tracer.data_type import DataType
from tracer.models.deployment import Deployment, Software, check_deployment, expert_stage, output_rows
from tracer.models.kernel_text import cast_of
from tracer.models.layer import backward_steps, forward_steps
from tracer.models.memory import head_weights, layer_weights, local_weights, outer_weights
from tracer.models.schedule import Block, Exchange, Lane, OperatorClass, Schedule, Step
from tracer.models.shape import ModelShape
from tracer.models.steps import Steps
from tracer.models.texts import KernelTexts
from tracer.models.weight_texts import gathered_weights, optimizer_texts, reduced_gradients

COMMUNICATION, NORM = OperatorClass.COMMUNICATION, OperatorClass.NORM
PART, ALIGNED = 1 << 28, 1024
"""Most weights that one kernel of an optimizer updates, and of what their number is a multiple (assumed; libraries cut
long lists of weights into chunks too, but run each kernel over all chunks: in short parts a kernel would find in L2
what the one before it has left)."""


class Group(NamedTuple):
    """Weights on one GPU, and the GPUs that share them out, or all that have the same without ZeRO (`Exchange`). Other
    groups have the same, `replicas` in all, this one included."""

    weights: int
    gpus: int
    stride: int
    replicas: int

    def exchange(self, kind: str, element_bytes: int) -> Exchange:
        return Exchange(kind, self.weights * element_bytes, self.gpus, self.stride)

    def among_replicas(self, element_bytes: int) -> Exchange:
        """The sum, over all groups, of the part that each GPU keeps."""
        size = -(-self.weights // self.gpus) * element_bytes
        return Exchange("all_reduce", size, self.replicas, self.gpus * self.stride)


def _group_of(how: Deployment, weights: int) -> Group:
    """The group of weights outside experts."""
    return Group(weights, how.shards, how.tp, how.replicas)


def _group_of_experts(how: Deployment, weights: int) -> Group:
    return Group(weights, how.expert_copies // how.replicas, how.expert_gpus, how.replicas)


def make_schedule(model: ModelShape, how: Deployment) -> Schedule:
    """The schedule of one iteration on the GPU with most work: the pipeline stage with most layers of experts. The
    embedding and the output layer are counted to the same stage (with one stage both are there).

    Raises:
        UserError: the model cannot run like this (see `check_deployment`).
    """
    check_deployment(model, how)
    kinds = tuple(zip((True, False), expert_stage(model, how), strict=True))
    forward = [Block("embedding", _embedding(model, how), outer=True)]
    forward += [_block("layer", forward_steps(model, how, kind), number, kind) for kind, number in kinds if number]
    forward.append(Block("output", _output(model, how), outer=True))
    forward = [_with_weights(model, how, _with_casts(model, how, block)) for block in forward]
    handover = _handover(model, how)
    if not how.train:
        return Schedule(tuple(forward), stages=how.pp, handover=handover)
    last = Block("output backward", _output_backward(model, how), outer=True)
    backward = [_with_weights(model, how, _with_casts(model, how, last, back=True))]
    for kind, number in reversed(kinds):
        if number:
            block = _block("backward", backward_steps(model, how, kind), number, kind)
            whole = _with_weights(model, how, _with_casts(model, how, block, back=True))
            backward.append(_with_gradients(model, how, whole, _gradients(model, how, block)))
    first = Block("embedding backward", _embedding_backward(model, how), outer=True)
    outer = _group_of(how, outer_weights(model, how))
    backward.append(_with_gradients(model, how, first, {"gradients": outer}))
    return Schedule(
        tuple(forward),
        tuple(backward),
        (*_tied_gradients(model, how), *_optimizer(model, how)),
        micro_batches=how.micro_batches,
        stages=how.pp,
        interleave=how.interleave,
        handover=handover,
    )


def _block(name: str, steps: tuple[Step, ...], repeats: int, dense: bool) -> Block:
    return Block(name if dense else f"expert {name}", steps, repeats)


def _embedding(model: ModelShape, how: Deployment) -> tuple[Step, ...]:
    steps = Steps(model, how)
    steps.add("embedding", NORM, steps.texts.embedding())
    steps.reduced("embedding_reduce", "")
    return tuple(replace(step, reduces="", after=()) for step in steps.steps)


def _embedding_backward(model: ModelShape, how: Deployment) -> tuple[Step, ...]:
    steps = Steps(model, how)
    steps.gathered("embedding_gather_back")
    steps.add("embedding_back", NORM, steps.texts.embedding(backward=True))
    return tuple(steps.steps)


def _output(model: ModelShape, how: Deployment) -> tuple[Step, ...]:
    """Last norm, logits, and in training the loss. Prompts and generation need the logits of the last token only. An
    encoder has a linear layer, an activation and a norm more before the logits (arXiv 1810.04805, section 3.1)."""
    steps, texts = Steps(model, how), KernelTexts(model, how)
    rows = output_rows(model, how)
    steps.add("last_norm", NORM, *texts.first_norm())
    steps.gathered("logits_gather")
    if how.train and not model.causal:
        steps.matrix("head", rows, model.hidden, model.hidden)
        steps.add("head_norm", NORM, *texts.head())
    vocab = -(-model.vocab // how.tp)
    steps.matrix("logits", rows, vocab, model.hidden)
    if how.train:
        steps.add("logits_bias", NORM, *([] if model.causal else texts.bias(rows, vocab)))
        steps.add("loss", NORM, *texts.loss())
        steps.exchange("loss_reduce", "all_reduce", 2 * rows * DataType.FP32.bytes, how.tp)
    else:
        steps.exchange("logits_collect", "all_gather", rows * model.vocab * how.dtype.bytes, how.tp)
    return tuple(steps.steps)


def _output_backward(model: ModelShape, how: Deployment) -> tuple[Step, ...]:
    """Gradients of loss and output layer. With sequence parallelism the input is gathered again for the gradient of the
    weights, as in the layers."""
    steps, texts = Steps(model, how), KernelTexts(model, how)
    rows, vocab = how.predicted, -(-model.vocab // how.tp)
    steps.add("loss_back", NORM, *texts.loss(backward=True))
    before = steps.steps[-1].name
    again = steps.gathered_again("logits_gather_again")
    gemm = steps.matrix("logits_input", rows, model.hidden, vocab, before)
    steps.reduced("logits_reduce_back", gemm, rows)
    steps.weight("logits_weight", model.hidden, vocab, rows, gemm, *again)
    waits = tuple(step.name for step in steps.steps if step.name in ("logits_reduce_back", "logits_weight"))
    first = len(steps.steps)
    if not model.causal:
        steps.add("head_norm_back", NORM, *texts.head_backward())
        steps.matrix("head_input", rows, model.hidden, model.hidden)
        steps.weight("head_weight", model.hidden, model.hidden, rows)
    steps.add("last_norm_back", NORM, *texts.first_norm_backward())
    steps.steps[first] = replace(steps.steps[first], after=waits)
    return tuple(steps.steps)


def _weights(model: ModelShape, how: Deployment, block: Block) -> int:
    """Weights of a block on one GPU that the data-parallel group shares. A tied output layer has its own here: it needs
    them at another time than the embedding."""
    if block.name == "embedding":
        return model.embedding_weights // how.tp
    if block.outer:
        return model.vocab * model.hidden // how.tp + head_weights(model, how)
    return layer_weights(model, how, dense=not block.name.startswith("expert")).others


def _tied_gradients(model: ModelShape, how: Deployment) -> tuple[Block, ...]:
    """The sum of the gradients of a tied embedding, of which the first and the last stage have a copy: an all-reduce
    between the two after those of the data-parallel group, with ZeRO 2 and 3 of the part that a GPU keeps (Megatron-LM,
    core/distributed/finalize_model_grads.py, `_allreduce_word_embedding_grads`)."""
    if how.pp == 1 or not model.tied:
        return ()
    weights = -(-model.vocab * model.hidden // (how.tp * (how.shards if how.zero >= 2 else 1)))
    work = Exchange("all_reduce", weights * how.gradient_type.bytes, 2, how.last_stage)
    return (Block("tied gradients", (Step("tied_gradients", COMMUNICATION, work, lane=Lane.PIPELINE),)),)


def _gradients(model: ModelShape, how: Deployment, block: Block) -> dict[str, Group]:
    """Exchange of the gradients of a block -> what it exchanges."""
    groups = {"gradients": _group_of(how, _weights(model, how, block))}
    if block.name.startswith("expert"):
        groups["expert_gradients"] = _group_of_experts(how, layer_weights(model, how, dense=False).experts)
    return groups


def _with_gradients(model: ModelShape, how: Deployment, block: Block, groups: dict[str, Group]) -> Block:
    """A backward block that adds its gradients to those of earlier micro-batches, and the exchange of the gradients,
    which the next layer does not wait for.

    Megatron-LM always keeps such a sum. ZeRO 2 and 3 add only the part that a GPU keeps, in reality behind the
    exchange. Fused software adds in the GEMMs, and the gradient of the embedding, which is none, here.
    """
    kind, shared = "reduce_scatter" if how.zero >= 1 else "all_reduce", how.zero >= 2
    copies = _copies(model, how, "gradient_copy", *_cut(_exchanged(groups)))
    steps = [replace(step, once=not shared) for step in copies]
    added = sum(-(-group.weights // (group.gpus if shared else 1)) for group in groups.values())
    if how.adds_in_gemm:
        added = -(-model.embedding_weights // how.tp) if block.outer else 0
    if added and (how.micro_batches > 1 or how.software == Software.MEGATRON):
        parts, size = _cut(added)
        work = f"residual:rows={parts},cols={size},dtype={how.gradient_type}"
        steps.append(Step("gradient_sum", NORM, work))
    exchanges = [replace(step, once=not shared) for step in _sums(kind, how.gradient_type.bytes, groups)]
    names = frozenset(step.name for step in exchanges)
    return replace(block, steps=(*block.steps, *steps, *exchanges), leaves=names)


def _with_weights(model: ModelShape, how: Deployment, block: Block) -> Block:
    """A block that gathers its weights (ZeRO 3), as DeepSpeed does it: each time they are used.

    The gather runs beside the block before it; in the schedule, which repeats blocks, beside its own. Nothing runs
    before the embedding, so that waits.
    """
    if how.zero < 3:
        return block
    groups = _gradients(model, how, block)
    first, *others = block.steps
    gathers = [
        replace(step, name=step.name.replace("gradients", "next_weights"), after=(first.name,))
        for step in _exchanges("all_gather", how.dtype.bytes, groups)
    ]
    copies = _copies(model, how, "weights_copy", *_cut(_exchanged(groups)))
    if block.name == "embedding":
        gathers = [replace(step, name="weights", after=()) for step in gathers]
        return replace(block, steps=(*gathers, *copies, *block.steps))
    if gathers:
        others[0] = replace(others[0], after=others[0].after or (first.name,))
    return replace(block, steps=(*copies, first, *gathers, *others))


def _with_casts(model: ModelShape, how: Deployment, block: Block, back: bool = False) -> Block:
    """A block that casts its weights before it uses them, or their gradients back. The embedding needs no casts."""
    if not how.autocasts or block.name == "embedding":
        return block
    steps = Steps(model, how)
    size = _cut(sum(group.weights for group in _gradients(model, how, block).values()))
    name, out = ("gradient_cast", DataType.FP32) if back else ("weights_cast", how.dtype)
    steps.add(name, NORM, cast_of(how, *size, out))
    return replace(block, steps=(*block.steps, *steps.steps) if back else (*steps.steps, *block.steps))


def _exchanges(kind: str, element_bytes: int, groups: dict[str, Group]) -> list[Step]:
    """An exchange of each group that has several GPUs."""
    return [
        Step(name, COMMUNICATION, group.exchange(kind, element_bytes), lane=Lane.DATA)
        for name, group in groups.items()
        if group.gpus > 1
    ]


def _sums(kind: str, element_bytes: int, groups: dict[str, Group]) -> list[Step]:
    """The exchanges that add up gradients: in the group of a GPU, then over the groups that have the same weights."""
    found = _exchanges(kind, element_bytes, groups)
    for name, group in groups.items():
        if group.replicas > 1:
            work, after = group.among_replicas(element_bytes), (name,) if group.gpus > 1 else ()
            found.append(Step(f"{name}_of_replicas", COMMUNICATION, work, after, Lane.REPLICAS))
    return found


def _exchanged(groups: dict[str, Group]) -> int:
    """Weights that several GPUs have, or share out. Software can copy all of them, or their gradients."""
    return sum(group.weights for group in groups.values() if group.gpus * group.replicas > 1)


def _copies(model: ModelShape, how: Deployment, name: str, rows: int, cols: int) -> tuple[Step, ...]:
    """What software copies of rows x cols weights, or of their gradients."""
    steps = Steps(model, how)
    texts = gathered_weights if name == "weights_copy" else reduced_gradients
    steps.add(name, NORM, *(texts(how, rows, cols) if cols else ()))
    return tuple(steps.steps)


def _optimizer(model: ModelShape, how: Deployment) -> tuple[Block, ...]:
    """Update of the weights of this GPU in equal parts; with ZeRO 1 and 2 the new weights are gathered."""
    weights = local_weights(model, how)
    groups = {"new_weights": _group_of(how, weights.others)}
    if weights.experts:
        groups["new_expert_weights"] = _group_of_experts(how, weights.experts)
    copied, copy_size = _cut(_exchanged(groups))
    parts, size = _cut(weights.divided(how) if how.zero else weights.total)
    steps = Steps(model, how)
    for name, work in optimizer_texts(how, size):
        steps.add(name, OperatorClass.OPTIMIZER, work)
    found = [Block("optimizer", tuple(steps.steps), parts)]
    if how.zero == 0:  # ZeRO keeps the part that the exchange has left
        back = _copies(model, how, "gradient_copy_back", 1, copy_size)
        found.insert(0, Block("gradients back", back, copied))
    if how.zero in (1, 2):
        element_bytes = (DataType.FP32 if how.autocasts else how.dtype).bytes
        found.append(Block("new weights", tuple(_exchanges("all_gather", element_bytes, groups))))
    if how.zero == 2:
        found.append(Block("new weights copy", _copies(model, how, "weights_copy", 1, copy_size), copied))
    return tuple(block for block in found if block.steps)


def _cut(weights: int) -> tuple[int, int]:
    """Number and size of the equal parts, at most PART each; a size is a multiple of ALIGNED."""
    parts = max(1, -(-weights // PART))
    return parts, -(-weights // (parts * ALIGNED)) * ALIGNED


def _handover(model: ModelShape, how: Deployment) -> tuple[Step, ...]:
    """The send of a micro-batch's activations to the next stage, and of their gradients to the stage before."""
    if how.pp == 1:
        return ()
    size = how.rows * model.hidden * how.stream_type.bytes
    step = Step("send", COMMUNICATION, Exchange("send_recv", size, 2, how.last_stage), lane=Lane.PIPELINE)
    return (step, replace(step, name="send_back")) if how.train else (step,)
