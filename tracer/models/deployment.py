"""How a model runs: phase, batch, precision, degrees of parallelism, recomputation. Checked against the model."""

from dataclasses import dataclass, replace
from enum import StrEnum

from tracer.data_type import DataType
from tracer.models.shape import ModelShape
from traces.errors import UserError


class ModelPhase(StrEnum):
    """What one iteration is."""

    TRAIN = "train"  # forward, backward, optimizer
    PROMPT = "prompt"  # forward of a prompt (prefill)
    GENERATE = "generate"  # forward of one new token per sequence, with a KV cache (decode)


class Recompute(StrEnum):
    """What the backward pass computes again instead of keeping it (arXiv 2205.05198, section 5)."""

    NONE = "none"
    SELECTIVE = "selective"  # scores and softmax of the attention
    FULL = "full"  # the whole layer


class ContextExchange(StrEnum):
    """How GPUs that share a sequence exchange keys and values (`tracer.models.context`)."""

    RING = "ring"  # from GPU to GPU, beside the attention of those that have come
    GATHER = "gather"  # all are gathered before the attention
    ULYSSES = "ulysses"  # each GPU gets whole sequences of some heads


class Optimizer(StrEnum):
    """The optimizer of a training step."""

    ADAM = "adam"
    LAMB = "lamb"


class Software(StrEnum):
    """Which operators are one kernel (`tracer.models.texts`)."""

    EAGER = "eager"  # PyTorch without a compiler: almost every operation is a kernel; cuBLASLt adds biases in the GEMMs
    EAGER_2023 = "eager-2023"  # PyTorch 2.0 to 2.3: older FSDP (ZeRO 2 and 3), 4 elements of a lane per access
    EAGER_2019 = "eager-2019"  # before PyTorch 1.5: biases are kernels too, element-wise ones have one element per lane
    COMPILE = (
        "compile"  # PyTorch with torch.compile: TorchInductor fuses what lies between matrix products and attention
    )
    MEGATRON = "megatron"  # Megatron-LM (arXiv 2205.05198): scale, mask and softmax; bias, dropout and residual
    FUSED = "fused"  # the best libraries: dropout, residual and norm; biases in the GEMMs


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """How a model runs on a number of GPUs.

    Attributes:
        tp, cp, pp, dp, ep: degrees of tensor, context, pipeline, data and expert parallelism. Expert parallelism uses
            the GPUs of tensor, context and data parallelism; the GPUs are tp * cp * pp * dp.
        context: how the cp GPUs that share each sequence exchange keys and values.
        sequence_parallel: norms and residuals are divided over the tensor-parallel GPUs (arXiv 2205.05198, section 4).
        zero: ZeRO stage (0 to 3) of the GPUs with the same weights.
        replicas: groups of these GPUs that each share out all weights (HSDP of PyTorch, with ZeRO 3); gradients are
            summed in a group, then their parts over the groups.
        micro_batch: sequences per micro-batch of a GPU, or of the cp GPUs that share them; in generation, sequences
            that get a token.
        micro_batches: micro-batches per training step and pipeline.
        sequence: tokens of a sequence, without generation.
        kv_length: tokens in the KV cache before a generation step.
        dtype: of weights and activations.
        flash: fused attention; False = separate kernels for scores, softmax and output.
        software: which operators are fused.
        dropout: training has dropout.
        predictions: of an encoder's training, tokens of a sequence whose word is predicted; 0 = all.
        interleave: parts of the model that a pipeline stage has in training (arXiv 2104.04473, section 2.2); with
            more than one, micro_batches is a multiple of pp.
    """

    phase: ModelPhase = ModelPhase.PROMPT
    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    context: ContextExchange = ContextExchange.RING
    sequence_parallel: bool = False
    zero: int = 0
    replicas: int = 1
    micro_batch: int = 1
    micro_batches: int = 1
    sequence: int = 2048
    kv_length: int = 0
    dtype: DataType = DataType.BF16
    recompute: Recompute = Recompute.NONE
    optimizer: Optimizer = Optimizer.ADAM
    flash: bool = True
    software: Software = Software.FUSED
    dropout: bool = False
    predictions: int = 0
    interleave: int = 1

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.tp * self.copies * self.pp

    @property
    def copies(self) -> int:
        """Number of GPUs that hold the same weights outside experts. They add their gradients."""
        return self.cp * self.dp

    @property
    def shards(self) -> int:
        """Parts into which ZeRO cuts weights outside experts."""
        return self.copies // self.replicas

    @property
    def length(self) -> int:
        """Tokens of a sequence on one GPU."""
        return self.sequence // self.cp

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch that a layer computes."""
        return self.micro_batch * (1 if self.phase == ModelPhase.GENERATE else self.length)

    @property
    def train(self) -> bool:
        return self.phase == ModelPhase.TRAIN

    @property
    def gradient_type(self) -> DataType:
        """Of the gradients of weights: summed, exchanged and read by the optimizer. Megatron-LM of 2022 keeps them in
        fp16 when it computes in fp16, and in fp32 otherwise (megatron/arguments.py @f602ac56:
        `accumulate_allreduce_grads_in_fp32` only with bf16). FSDP here reduces in fp32; the same is assumed of the
        other software."""
        half = self.software == Software.MEGATRON and self.dtype == DataType.FP16
        return DataType.FP16 if half else DataType.FP32

    @property
    def adds_in_gemm(self) -> bool:
        """The GEMM of a weight's gradient adds it to those of earlier micro-batches (Megatron-LM,
        core/tensor_parallel/layers.py: `gradient_accumulation_fusion`). ZeRO 2 and 3 keep only a part of the sum."""
        return self.train and self.software == Software.FUSED and self.zero < 2

    @property
    def casts_weights(self) -> bool:
        """PyTorch of today keeps its weights in fp32 and computes with casts of them: autocast makes the casts, FSDP
        gathers them (torch/distributed/fsdp/_fully_shard/_fsdp_param.py). So its optimizer writes no other copy."""
        return self.software in (Software.EAGER, Software.EAGER_2023, Software.COMPILE)

    @property
    def autocasts(self) -> bool:
        """Weights are cast when they are used first, and their gradients back (torch.autocast, without FSDP)."""
        shared = self.zero >= 2 and self.copies > 1
        return self.train and self.casts_weights and self.dtype.bytes < DataType.FP32.bytes and not shared

    @property
    def stream_type(self) -> DataType:
        """Of the activations between layers: those of autocast stay in the type of the embedding."""
        return DataType.FP32 if self.autocasts else self.dtype

    @property
    def expert_cut(self) -> int:
        """Number of GPUs that share one expert: tensor-parallel GPUs that expert parallelism does not use."""
        return max(1, self.tp // (self.ep // min(self.ep, self.copies)))

    @property
    def expert_copies(self) -> int:
        """Number of GPUs that hold the same part of an expert."""
        return self.tp * self.copies // self.expert_gpus

    @property
    def expert_gpus(self) -> int:
        """Number of GPUs that hold all experts once."""
        return self.ep * self.expert_cut

    @property
    def last_stage(self) -> int:
        """Distance from the first pipeline stage to the last one, in GPUs."""
        return self.tp * self.copies * (self.pp - 1)

    @property
    def predicted(self) -> int:
        """Tokens of a micro-batch whose word training predicts, on one GPU."""
        return -(-self.micro_batch * self.predictions // self.cp) if self.predictions else self.tokens

    @property
    def rows(self) -> int:
        """Rows of norms and residuals on one GPU."""
        return self.tokens // self.tp if self.sequence_parallel else self.tokens


POSITIVE = ("tp", "cp", "pp", "dp", "ep", "replicas", "micro_batch", "micro_batches", "sequence", "interleave")
ONLY_TRAINING = ("zero", "replicas", "micro_batches", "recompute", "optimizer", "dropout", "predictions", "interleave")
ZERO_STAGES = 3
LARGEST = 1 << 24
"""Largest value of a number (no machine has more GPUs, no model more tokens)."""


def output_rows(model: ModelShape, how: Deployment) -> int:
    """Tokens of a micro-batch that get logits: those whose word training predicts, else the last one of each sequence
    of a decoder, all of an encoder."""
    if how.train:
        return how.predicted
    return how.micro_batch if model.causal else how.tokens


def expert_stage(model: ModelShape, how: Deployment) -> tuple[int, int]:
    """Layers with an ordinary MLP, and with experts, of the pipeline stage that has most layers with experts."""
    layers = -(-model.layers // how.pp)
    experts = min(layers, model.layers - model.dense_layers)
    return layers - experts, experts


def first_stage(model: ModelShape, how: Deployment) -> tuple[int, int]:
    """The same of the first stage, which has the layers with an ordinary MLP."""
    layers = -(-model.layers // how.pp)
    dense = min(layers, model.dense_layers)
    return dense, layers - dense


def check_deployment(model: ModelShape, how: Deployment) -> None:
    """Refuse a deployment that the model cannot have.

    Raises:
        UserError: names the field, what was found and what is allowed.
    """
    for field in POSITIVE:
        _check(1 <= getattr(how, field) <= LARGEST, field, getattr(how, field), f"1 to {LARGEST}")
    _check(0 <= how.kv_length <= LARGEST, "kv_length", how.kv_length, f"0 to {LARGEST}")
    _check(0 <= how.zero <= ZERO_STAGES, "zero", how.zero, f"0 to {ZERO_STAGES}")
    _check_divides("tp", how.tp, "heads", model.heads)
    _check(
        model.kv_heads % how.tp == 0 or how.tp % model.kv_heads == 0,
        *("tp", how.tp, f"a divisor or a multiple of kv_heads = {model.kv_heads}"),
    )
    if model.dense_layers:
        _check_divides("tp", how.tp, "intermediate", model.intermediate)
    _check(how.pp <= model.layers, "pp", how.pp, f"1 to layers = {model.layers}")
    _check(how.pp > 1 or how.interleave == 1, "interleave", how.interleave, "1 with one stage of the pipeline")
    if how.interleave > 1:
        _check_divides("interleave", how.interleave, "layers of a stage", -(-model.layers // how.pp))
        whole = not how.train or how.micro_batches % how.pp == 0  # fewer would not fill the stages (arXiv 2104.04473)
        _check(whole, "micro_batches", how.micro_batches, f"a multiple of pp = {how.pp} with interleave")
    _check(0 <= how.predictions <= how.sequence, "predictions", how.predictions, f"0 to sequence = {how.sequence}")
    _check(not how.predictions or not model.causal, "predictions", how.predictions, "0: a decoder predicts all tokens")
    _check_experts(model, how)
    _check_context(model, how)
    if how.sequence_parallel:
        _check_divides("tp", how.tp, "tokens of a micro-batch", how.tokens)
    generate = how.phase == ModelPhase.GENERATE
    if model.added:
        most = model.max_positions
        _check(generate or how.sequence <= most, "sequence", how.sequence, f"1 to max_positions = {most}")
        _check(not generate or how.kv_length < most, "kv_length", how.kv_length, f"0 to max_positions - 1 = {most - 1}")
    _check(model.causal or not generate, "phase", how.phase, "train or prompt: an encoder")
    for field in ONLY_TRAINING:
        default = getattr(Deployment, field)
        _check(how.train or getattr(how, field) == default, field, getattr(how, field), f"{default} without training")
    _check_replicas(model, how)
    _check(generate or not how.kv_length, "kv_length", how.kv_length, "0 without generation")
    unused = generate and how.sequence != Deployment.sequence
    _check(not unused, "sequence", how.sequence, f"{Deployment.sequence} in generation: kv_length counts")


def _check_replicas(model: ModelShape, how: Deployment) -> None:
    """Refuse groups of GPUs that cannot each share out all weights."""
    if how.replicas == 1:
        return
    _check(how.zero > 0, "replicas", how.replicas, "1 without ZeRO")
    allowed = f"a divisor of cp * dp = {how.copies} that leaves groups of 2 GPUs or more"
    _check(how.copies % how.replicas == 0 and how.shards > 1, "replicas", how.replicas, allowed)
    if model.experts is not None:
        _check_divides("replicas", how.replicas, "the copies of an expert", how.expert_copies)


def _check_context(model: ModelShape, how: Deployment) -> None:
    """Refuse sequences that GPUs cannot share."""
    if how.cp == 1:
        _check(how.context == Deployment.context, "context", how.context, f"{Deployment.context} with cp = 1")
        return
    _check(how.phase != ModelPhase.GENERATE, "cp", how.cp, "1 in generation")
    _check(how.flash, "cp", how.cp, "1 without fused attention")
    if how.context == ContextExchange.ULYSSES:
        heads = (model.heads if model.latent else model.kv_heads) // how.tp
        _check(heads > 0 and heads % how.cp == 0, "cp", how.cp, f"a divisor of the {heads} heads of keys on a GPU")
        _check_divides("cp", how.cp, "sequence", how.sequence)
        return
    parts = 2 * how.cp  # a GPU has two (`tracer.models.context`)
    allowed = f"a multiple of 2 * cp = {parts} from {2 * parts} on"
    _check(how.sequence % parts == 0 and how.sequence >= 2 * parts, "sequence", how.sequence, allowed)


def _check_experts(model: ModelShape, how: Deployment) -> None:
    if model.experts is None:
        _check(how.ep == 1, "ep", how.ep, f"1: {model.name} has no experts")
        return
    _check_divides("ep", how.ep, "experts", model.experts.count)
    group = how.tp * how.copies
    _check(group % how.ep == 0, "ep", how.ep, f"a divisor of tp * cp * dp = {group}")
    right = [ep for ep in range(1, model.experts.count + 1) if _fits_experts(model.experts.count, replace(how, ep=ep))]
    reason = f"({group} GPUs must be a multiple of ep times the GPUs that share one expert, here {how.expert_cut})"
    allowed = f"{' or '.join(str(ep) for ep in right)} with tp = {how.tp} and cp * dp = {how.copies} {reason}"
    _check(how.ep in right, "ep", how.ep, allowed)
    width = model.experts.intermediate
    reason = f"one whose {how.expert_cut} GPUs for an expert divide its width {width}"
    _check(width % how.expert_cut == 0, "tp", how.tp, reason)
    if model.experts.shared:
        _check_divides("tp", how.tp, "the width of the shared experts", model.experts.shared * width)


def _fits_experts(count: int, how: Deployment) -> bool:
    """Equal pieces of `count` experts, the same number of copies of each, fill the GPUs of tensor and data parallelism.

    Else the number of GPUs that hold the same piece would be a fraction.
    """
    return count % how.ep == 0 and how.tp * how.copies % (how.ep * how.expert_cut) == 0


def _check_divides(field: str, degree: int, what: str, size: int) -> None:
    _check(size % degree == 0, field, degree, f"a divisor of {what} = {size}")


def _check(right: bool, field: str, found: object, allowed: str) -> None:
    if not right:
        raise UserError(f"model: {field} = {found}: allowed is {allowed}")
