"""The schedule of a whole model on one GPU: embedding, layers, output layer, and in training backward and optimizer.

Gradients of the data-parallel group are exchanged layer by layer under the backward pass of the last micro-batch, and
with ZeRO the weights are gathered after the optimizer (stages 1 and 2) or before each use (stage 3), as in
arXiv 1910.02054. Pipeline stages run one forward and one backward pass in turn (1F1B, arXiv 2104.04473, section 2.2).
"""

from dataclasses import replace

from tracer.models.deployment import Deployment, ModelPhase, check_deployment
from tracer.models.layer import Steps, backward_steps, forward_steps
from tracer.models.memory import GRADIENT_BYTES, local_weights
from tracer.models.schedule import Block, Exchange, Lane, OperatorClass, Schedule, Step
from tracer.models.shape import ModelShape

COMMUNICATION, MATRIX, NORM = OperatorClass.COMMUNICATION, OperatorClass.MATRIX, OperatorClass.NORM


def make_schedule(model: ModelShape, how: Deployment) -> Schedule:
    """The schedule of one iteration on the GPU with most work: the pipeline's first stage has the embedding, and
    the output layer is counted to the same stage (with one stage both are there).

    Raises:
        UserError: the model cannot run like this (see `check_deployment`).
    """
    check_deployment(model, how)
    layers = -(-model.layers // how.pp)
    dense = min(layers, model.dense_layers)
    kinds = ((True, dense), (False, layers - dense))
    forward = [Block("embedding", _embedding(model, how))]
    forward += [_block("layer", forward_steps(model, how, kind), number, kind) for kind, number in kinds if number]
    forward.append(Block("output", _output(model, how)))
    if how.zero == 3:
        forward = [_with_weights(model, how, block) for block in forward]
    handover = _handover(model, how)
    if not how.train:
        return Schedule(tuple(forward), micro_batches=1, stages=how.pp, handover=handover)
    backward = [Block("output backward", _output_backward(model, how))]
    for kind, number in reversed(kinds):
        if number:
            block = _block("backward", backward_steps(model, how, kind), number, kind)
            backward.append(_with_gradients(model, how, block))
    backward.append(Block("embedding backward", _embedding_backward(model, how)))
    return Schedule(
        tuple(forward),
        tuple(backward),
        (Block("optimizer", _optimizer(model, how)),),
        micro_batches=how.micro_batches,
        stages=how.pp,
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
    """Last norm, logits, and in training the loss. Prompts and generation need the logits of the last token only."""
    steps = Steps(model, how)
    rows = how.tokens if how.train or how.phase == ModelPhase.GENERATE or not model.causal else how.micro_batch
    steps.add("last_norm", NORM, steps.texts.first_norm())
    steps.gathered("logits_gather")
    steps.matrix("logits", rows, -(-model.vocab // how.tp), model.hidden)
    if how.train:
        steps.add("loss", NORM, *steps.texts.loss())
        steps.exchange("loss_reduce", "all_reduce", 2 * how.tokens * GRADIENT_BYTES, how.tp)
    else:
        steps.exchange("logits_collect", "all_gather", rows * model.vocab * how.dtype.bytes, how.tp)
    return tuple(steps.steps)


def _output_backward(model: ModelShape, how: Deployment) -> tuple[Step, ...]:
    steps, vocab = Steps(model, how), -(-model.vocab // how.tp)
    steps.add("loss_back", NORM, *steps.texts.loss(backward=True))
    gemm = steps.matrix("logits_input", how.tokens, model.hidden, vocab)
    steps.reduced("logits_reduce_back", gemm)
    steps.matrix("logits_weight", model.hidden, vocab, how.tokens, after=gemm)
    steps.add("last_norm_back", NORM, steps.texts.norm_backward())
    waits = tuple(step.name for step in steps.steps if step.name in ("logits_reduce_back", "logits_weight"))
    steps.steps[-1] = replace(steps.steps[-1], after=waits)
    return tuple(steps.steps)


def _layer_weights(model: ModelShape, how: Deployment, block: Block) -> int:
    """Weights of one layer on one GPU that the data-parallel group shares."""
    if block.name.startswith("expert"):
        shared = model.mixture.shared * model.expert_weights // how.tp
        return model.attention_weights // how.tp + shared + model.hidden * model.mixture.count
    return (model.attention_weights + model.mlp_weights(model.intermediate)) // how.tp


def _with_gradients(model: ModelShape, how: Deployment, block: Block) -> Block:
    """A backward block with the exchange of its gradients, which the next layer does not wait for."""
    kind = "reduce_scatter" if how.zero >= 1 else "all_reduce"
    groups = {"gradients": (_layer_weights(model, how, block), how.dp)}
    if block.name.startswith("expert"):
        own = model.mixture.count * model.expert_weights // (how.ep * how.expert_cut)
        groups["expert_gradients"] = own, how.expert_copies
    steps = [
        Step(name, COMMUNICATION, Exchange(kind, weights * GRADIENT_BYTES, gpus), lane=Lane.DATA)
        for name, (weights, gpus) in groups.items()
        if gpus > 1
    ]
    names = frozenset(step.name for step in steps)
    return replace(block, steps=(*block.steps, *steps), leaves=names)


def _with_weights(model: ModelShape, how: Deployment, block: Block) -> Block:
    """A forward block that gathers its weights first (ZeRO 3). The gather runs beside the block before it."""
    if how.dp == 1 or "layer" not in block.name:
        return block
    work = Exchange("all_gather", _layer_weights(model, how, block) * how.dtype.bytes, how.dp)
    step = Step("next_weights", COMMUNICATION, work, (block.steps[0].name,), Lane.DATA)
    return replace(block, steps=(*block.steps, step))


def _optimizer(model: ModelShape, how: Deployment) -> tuple[Step, ...]:
    """Update of the weights of this GPU; with ZeRO 1 and 2 the new weights are gathered."""
    weights = local_weights(model, how)
    steps = Steps(model, how)
    own = -(-weights // how.dp) if how.zero else weights
    for name, work in steps.texts.optimizer(own):
        steps.add(name, OperatorClass.OPTIMIZER, work)
    if how.zero in (1, 2):
        steps.exchange("new_weights", "all_gather", weights * how.dtype.bytes, how.dp, lane=Lane.DATA)
    return tuple(steps.steps)


def _handover(model: ModelShape, how: Deployment) -> tuple[Step, ...]:
    """The send of a micro-batch's activations to the next stage, and of their gradients to the stage before."""
    if how.pp == 1:
        return ()
    size = how.rows * model.hidden * how.dtype.bytes
    step = Step("send", COMMUNICATION, Exchange("send", size, 2), lane=Lane.PIPELINE)
    return (step, replace(step, name="send_back")) if how.train else (step,)
