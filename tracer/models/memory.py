"""Memory that a model needs on each GPU: weights, gradients, optimizer state, activations, logits, KV cache."""

from dataclasses import dataclass

from tracer.models.deployment import (
    Deployment,
    ModelPhase,
    Recompute,
    Software,
    expert_stage,
    first_stage,
    output_rows,
)
from tracer.models.layer import expert_rows
from tracer.models.shape import ModelShape
from traces.errors import UserError
from traces.units import GIB

MASTER_BYTES = 4
MOMENT_BYTES = 8
"""fp32 master copy (mixed precision only), and the two fp32 moments of Adam or LAMB, per parameter."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes on the GPU that needs most."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int
    logits: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations + self.kv_cache + self.logits


@dataclass(frozen=True)
class LocalWeights:
    """Weights on one GPU: of its experts, which `expert_copies` GPUs have, and the others, which `copies` have."""

    others: int
    experts: int

    @property
    def total(self) -> int:
        return self.others + self.experts

    def divided(self, how: Deployment) -> int:
        """What one GPU has if each weight is divided over the GPUs of a replica that have it (ZeRO), rounded up."""
        return -(-self.others // how.shards) + -(-self.experts * how.replicas // how.expert_copies)


def head_weights(model: ModelShape, how: Deployment) -> int:
    """Weights of the linear layer before the words that an encoder predicts in training. All GPUs have it."""
    return model.hidden**2 if how.train and not model.causal else 0


def outer_weights(model: ModelShape, how: Deployment) -> int:
    """Weights of embedding and output layer on one GPU: of both with one stage, else of the embedding (the output layer
    of the last stage is as large). An encoder's head is counted to the same stage."""
    output = model.vocab * model.hidden if how.pp == 1 and not model.tied else 0
    return -(-(model.embedding_weights + output) // how.tp) + head_weights(model, how)


def layer_weights(model: ModelShape, how: Deployment, dense: bool) -> LocalWeights:
    """Weights of a layer on one GPU. dense: False = its MLP consists of experts."""
    attention = model.attention_weights_of(how.tp)
    if dense:
        return LocalWeights(attention + model.mlp_weights(model.intermediate) // how.tp, 0)
    mixture = model.mixture
    shared = mixture.shared * model.expert_weights // how.tp
    experts = mixture.count * model.expert_weights // (how.ep * how.expert_cut)
    return LocalWeights(attention + shared + model.hidden * mixture.count, experts)


def local_weights(model: ModelShape, how: Deployment, stage: tuple[int, int] | None = None) -> LocalWeights:
    """Weights on one GPU of a pipeline stage, with those outside the layers.

    Experts are divided over `ep`, and over the tensor-parallel GPUs that `ep` leaves.

    stage: layers with an ordinary MLP, and with experts; None = of the stage with most experts.
    """
    numbers = zip((True, False), stage or expert_stage(model, how), strict=True)
    layers = [(number, layer_weights(model, how, dense)) for dense, number in numbers if number]
    others = outer_weights(model, how) + sum(number * layer.others for number, layer in layers)
    return LocalWeights(others, sum(number * layer.experts for number, layer in layers))


def memory_need(model: ModelShape, how: Deployment) -> MemoryNeed:
    """What a GPU needs of the first pipeline stage, of the one with most experts, or of the last: the largest.

    All have the embedding (see `local_weights`). The first two have the micro-batches of the first stage, which holds
    most. The last has its own, and the logits of one (with one stage, this has all).

    Weights, gradients and optimizer state: ZeRO (arXiv 1910.02054, section 5), which divides an expert over the GPUs
    that have it. Mixed precision has 18 bytes a weight in all: 2, gradients of 4, and 12 of state; with gradients in
    fp16 (`Deployment.gradient_type`) the 16 of that paper. What ZeRO 2 and 3 hold whole for a while: `_whole_bytes`.
    Activations: arXiv 2205.05198, equations 1 to 6 for a plain layer, with the gated width, the grouped
    heads and the experts of this model put in.
    """
    first, most, only = first_stage(model, how), expert_stage(model, how), how.pp == 1
    needs = [_stage_need(model, how, stage, last) for stage, last in ((first, only), (most, only), (most, True))]
    return max(needs, key=lambda need: need.total)


def _stage_need(model: ModelShape, how: Deployment, stage: tuple[int, int], last: bool) -> MemoryNeed:
    weights, layers = local_weights(model, how, stage), sum(stage)
    if how.phase != ModelPhase.TRAIN:
        generate = how.phase == ModelPhase.GENERATE
        length = how.kv_length + 1 if generate else how.length
        width = model.kv_width if model.latent else -(-model.kv_width // min(how.tp, model.kv_heads))
        cache = how.micro_batch * length * width * how.dtype.bytes * layers
        working = how.tokens * (2 * model.hidden + 2 * model.intermediate // how.tp)
        if not how.flash or (generate and model.latent):  # scores of a layer (`KernelTexts.attention`)
            working += how.tokens * model.heads // how.tp * length
        return MemoryNeed(
            weights=weights.total * how.dtype.bytes,
            gradients=0,
            optimizer=0,
            activations=working * how.dtype.bytes,
            kv_cache=cache if model.causal else 0,
            logits=_logits_bytes(model, how) if last else 0,
        )
    mixed = how.dtype.bytes < MASTER_BYTES
    state = MOMENT_BYTES + (MASTER_BYTES if mixed else 0)
    kept = [weights.divided(how) if how.zero >= zero else weights.total for zero in (1, 2, 3)]
    # passes of 1 / interleave of the layers that wait for their backward pass (arXiv 2205.05198, section 4.2.3)
    held = how.pp * how.interleave + (how.pp - 1 if how.interleave > 1 else 0)
    held = how.pp * (how.interleave - 1) + 1 if last else held
    held = min(held, how.micro_batches * how.interleave)
    own = 0 if mixed and how.casts_weights and how.zero == 3 else kept[2] * how.dtype.bytes
    whole = _whole_bytes(model, how, stage)
    return MemoryNeed(
        own + (2 * whole if how.zero == 3 else 0),
        kept[1] * how.gradient_type.bytes + (whole if how.zero >= 2 else 0),
        kept[0] * state,
        held * _activation_bytes(model, how, stage) // how.interleave,
        0,
        _logits_bytes(model, how) if last else 0,
    )


def _whole_bytes(model: ModelShape, how: Deployment, stage: tuple[int, int]) -> int:
    """Size of the largest block of weights that ZeRO shares out. Stage 3 has two of them whole, the block that is
    computed and the next one, stages 2 and 3 the gradients of one until they are exchanged."""
    blocks = [LocalWeights(model.vocab * model.hidden // how.tp, 0)]
    blocks += [layer_weights(model, how, dense) for dense, number in zip((True, False), stage, strict=True) if number]
    shared = ((how.copies > 1) * block.others + (how.expert_copies > 1) * block.experts for block in blocks)
    return max(shared) * how.dtype.bytes


def _logits_bytes(model: ModelShape, how: Deployment) -> int:
    """Logits of a micro-batch on one GPU; without training it collects those of all words. In training, when the loss
    has been computed: all other activations are still there.

    Fused software has logits in the working type, and their gradient takes their place. Megatron-LM also keeps the
    softmax in fp32 (core/tensor_parallel/cross_entropy.py: it gets `logits.float()` and works in place). PyTorch's
    eager loss has log-softmax, its gradient and that of the logits (`tracer.operators.cross_entropy`), today in fp32.
    Compiled, it has logits and their gradient in the working type.
    """
    element = how.dtype.bytes
    if not how.train:
        return output_rows(model, how) * model.vocab * element
    copies = {
        Software.FUSED: element,
        Software.COMPILE: 2 * element,
        Software.MEGATRON: MASTER_BYTES + (element if element < MASTER_BYTES else 0),
    }
    eager = 3 * (MASTER_BYTES if how.casts_weights else element)
    return how.predicted * -(-model.vocab // how.tp) * copies.get(how.software, eager)


def _activation_bytes(model: ModelShape, how: Deployment, stage: tuple[int, int]) -> int:
    """Activations of the layers of a stage that the backward pass needs, for one micro-batch on one GPU."""
    kinds = zip((True, False), stage, strict=True)
    return sum(number * _layer_activation_bytes(model, how, dense) for dense, number in kinds if number)


def _layer_activation_bytes(model: ModelShape, how: Deployment, dense: bool) -> int:
    """The same of one layer. dense: False = its MLP consists of experts."""
    element, whole = how.dtype.bytes, how.tp if how.sequence_parallel else 1
    row = how.tokens * model.hidden
    if how.recompute == Recompute.FULL:
        return row * how.stream_type.bytes // whole
    masks = 2 * row if how.dropout else 0
    norms = 4 if model.output_norms else 2
    # inputs of norms and of two linear layers, dropout masks
    outside = (row * (norms * how.stream_type.bytes + 2 * element) + masks) // whole
    width = model.query_width + model.kv_width + model.value_width
    ranks = 0
    if model.latent:  # keys and values of all heads; all GPUs have the latent ranks
        width += model.query_width + model.value_width - model.kv_width
        ranks = how.tokens * (model.latent.query_rank + model.kv_width) * element
    parts = 3 if model.gated else 2  # inputs of the activation and of the last linear layer
    width += parts * (model.intermediate if dense else model.mixture.shared * model.mixture.intermediate)
    inside = ranks + how.tokens * width * element // how.tp
    if not dense:
        _, rows = expert_rows(model, how)
        # each row: the copy of its token that is the expert's input, and what an MLP of the expert's width keeps
        inside += sum(rows) * (model.hidden + parts * model.mixture.intermediate // how.expert_cut) * element
    scores = 0
    if not how.flash and how.recompute == Recompute.NONE:
        elements = how.micro_batch * model.heads // how.tp * how.sequence**2
        kept = 2 * element if how.dropout else element  # of softmax and dropout; in fp32 that of softmax, and its cast
        scores = elements * ((how.stream_type.bytes + element if how.autocasts else kept) + how.dropout)
    return outside + inside + scores


def check_memory(model: ModelShape, how: Deployment, capacity_bytes: int) -> MemoryNeed:
    """Refuse a model that does not fit.

    Raises:
        UserError: says what it needs and by how much this is too much.
    """
    need = memory_need(model, how)
    if need.total > capacity_bytes:
        parts = ", ".join(
            f"{name} {value / GIB:.1f}" for name, value in vars(need).items() if isinstance(value, int) and value
        )
        raise UserError(
            f"model {model.name}: needs {need.total / GIB:.1f} GiB on each GPU ({parts}); the GPU has "
            f"{capacity_bytes / GIB:.1f} GiB, {(need.total - capacity_bytes) / GIB:.1f} GiB are missing"
        )
    return need
