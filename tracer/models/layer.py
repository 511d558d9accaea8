"""The steps of one Transformer layer on one GPU, forward and backward, with tensor and expert parallelism.

Tensor parallelism as in Megatron-LM (arXiv 1909.08053, section 3): QKV, gate and up projections are cut by columns, the
output projections by rows. A row-cut projection ends in an all-reduce; with sequence parallelism (arXiv 2205.05198,
section 4) in a reduce-scatter, and an all-gather precedes each column-cut projection. The backward pass mirrors this.
There the exchange of an input's gradient runs beside the GEMM of the weights' gradient, and with sequence parallelism
the input is gathered again for that GEMM.
"""

from fractions import Fraction
from math import ceil, comb

from tracer.models.context import add_attention, add_attention_backward
from tracer.models.deployment import Deployment, ModelPhase, Recompute, Software
from tracer.models.schedule import Lane, OperatorClass, Step
from tracer.models.shape import ModelShape
from tracer.models.steps import Steps
from tracer.models.texts import KernelTexts

MATRIX, NORM = OperatorClass.MATRIX, OperatorClass.NORM
AGAIN = "again_"
"""Before the name of a step that the backward pass computes again."""


def forward_steps(model: ModelShape, how: Deployment, dense: bool, prefix: str = "") -> tuple[Step, ...]:
    """Steps of the forward pass of a layer. dense: False = its MLP consists of experts."""
    steps = Steps(model, how, prefix)
    _attention_forward(steps)
    if dense:
        _mlp_forward(steps, model.intermediate, "mlp")
    else:
        _experts_forward(steps)
    steps.add("mlp_output_norm", NORM, *steps.texts.output_norm())
    steps.add("mlp_residual", NORM, *steps.texts.residual())
    return tuple(steps.steps)


def backward_steps(model: ModelShape, how: Deployment, dense: bool) -> tuple[Step, ...]:
    """Steps of the backward pass of a layer, with what it computes again."""
    steps = Steps(model, how)
    if how.recompute == Recompute.FULL:
        steps.steps += forward_steps(model, how, dense, AGAIN)
    steps.add("mlp_residual_back", NORM, *steps.texts.residual_backward())
    steps.add("mlp_output_norm_back", NORM, *steps.texts.output_norm(backward=True))
    if dense:
        _mlp_backward(steps, model.intermediate, "mlp")
    else:
        _experts_backward(steps)
    _attention_backward(steps)
    return tuple(steps.steps)


def _attention_forward(steps: Steps) -> None:
    texts, model, how = steps.texts, steps.model, steps.how
    steps.add("attention_norm", NORM, *texts.first_norm())
    steps.gathered("attention_gather")
    for name, (n, k) in _projections(model, how).items():
        steps.matrix(name, how.tokens, n, k)
        steps.add(f"{name}_bias", NORM, *texts.bias(how.tokens, n))
        steps.add(f"{name}_norm", NORM, *texts.rank_norm(name))
    steps.add("head_norm", NORM, *texts.head_norms())
    if model.rotary:
        steps.add("rotary", NORM, texts.rotary())
    if model.causal and not how.train:
        steps.add("kv_cache", NORM, texts.kv_cache())
    add_attention(steps)
    gemm = steps.matrix("output", how.tokens, model.hidden, texts.attended)
    steps.reduced("attention_reduce", gemm)
    steps.add("attention_output_norm", NORM, *texts.output_norm())
    steps.add("attention_residual_norm", NORM, *texts.residual_norm())


def _projections(model: ModelShape, how: Deployment) -> dict[str, tuple[int, int]]:
    """Linear layers before the attention: name -> (columns on one GPU, depth)."""
    if model.latent is None:
        texts = KernelTexts(model, how)
        widths = texts.projected
        if texts.eager:
            return {name: (width, model.hidden) for name, width in zip("qkv", widths, strict=True)}
        return {"qkv": (sum(widths), model.hidden)}
    rank, heads = model.latent, model.heads // how.tp
    down = {"q_down": (rank.query_rank, model.hidden)} if rank.query_rank else {}
    found = down | {
        "q_up": (heads * rank.key_dim, rank.query_rank or model.hidden),
        "kv_down": (rank.kv_rank + rank.rotary_dim, model.hidden),
    }
    if how.phase == ModelPhase.GENERATE:  # `KernelTexts.attention` has it
        return found
    return found | {"kv_up": (heads * (rank.plain_dim + rank.value_dim), rank.kv_rank)}


def _mlp_forward(steps: Steps, intermediate: int, name: str, gathered: bool = False) -> None:
    """gathered: its input is whole already, and its output is added to that of the routed experts."""
    width, how = intermediate // steps.how.tp, steps.how
    if not gathered:
        steps.gathered(f"{name}_gather")
    steps.matrix(f"{name}_up", how.tokens, width * (2 if steps.model.gated else 1), steps.model.hidden)
    steps.add(f"{name}_activation", NORM, *steps.texts.activation(how.tokens, width))
    gemm = steps.matrix(f"{name}_down", how.tokens, steps.model.hidden, width)
    steps.reduced(f"{name}_reduce", gemm, after=_sum(steps, f"{name}_sum") if gathered else "")


def _mlp_backward(steps: Steps, intermediate: int, name: str, gathered: bool = False) -> None:
    """gathered: the gradient of its output is whole already, and that of its input is added to that of the routed
    experts."""
    width, how, hidden = intermediate // steps.how.tp, steps.how, steps.model.hidden
    up = width * (2 if steps.model.gated else 1)
    if not gathered:
        steps.gathered(f"{name}_gather_back")
    steps.matrix(f"{name}_down_input", how.tokens, width, hidden)
    steps.weight(f"{name}_down_weight", width, hidden, how.tokens)
    steps.add(f"{name}_activation_back", NORM, *steps.texts.activation(how.tokens, width, backward=True))
    before = steps.steps[-1].name
    again = steps.gathered_again(f"{name}_gather_again")
    gemm = steps.matrix(f"{name}_up_input", how.tokens, hidden, up, before)
    steps.reduced(f"{name}_reduce_back", gemm, after=_sum(steps, f"{name}_input_sum") if gathered else "")
    steps.weight(f"{name}_up_weight", hidden, up, how.tokens, gemm, *again)


def _sum(steps: Steps, name: str) -> str:
    """The sum of two tensors of all tokens. Returns its name."""
    steps.add(name, NORM, steps.texts.sum(steps.how.tokens))
    return steps.steps[-1].name


def _attention_backward(steps: Steps) -> None:
    texts, model, how = steps.texts, steps.model, steps.how
    wait = [step.name for step in steps.steps if step.lane == Lane.TENSOR][-1:]
    steps.add("attention_residual_norm_back", NORM, *texts.first_norm_backward(), *texts.residual_backward())
    steps.wait_for("attention_residual_norm_back", wait)
    steps.add("attention_output_norm_back", NORM, *texts.output_norm(backward=True))
    steps.gathered("attention_gather_back")
    steps.matrix("output_input", how.tokens, texts.attended, model.hidden)
    steps.weight("output_weight", texts.attended, model.hidden, how.tokens)
    if how.recompute == Recompute.SELECTIVE:
        add_attention(Steps(model, how, AGAIN, steps.steps))
    add_attention_backward(steps)
    if model.rotary:
        steps.add("rotary_back", NORM, texts.rotary(backward=True))
    steps.add("head_norm_back", NORM, *texts.head_norms(backward=True))
    shared_keys = how.tokens * 2 * model.head_dim * how.dtype.bytes  # of GPUs with queries of the same keys and values
    steps.exchange("kv_reduce_back", "all_reduce", shared_keys, how.tp // model.kv_heads)
    _projections_backward(steps)
    steps.add("attention_norm_back", NORM, *texts.first_norm_backward())
    steps.wait_for("attention_norm_back", ["attention_reduce_back"])


def _projections_backward(steps: Steps) -> None:
    """Gradients of the linear layers before the attention.

    Where a GPU has a part of the columns, its gradient of the input is a partial sum. Of a latent rank, these are added
    up before the down projection, of which all GPUs have all; its own gradient of the input is no partial sum then.
    """
    texts, model, how = steps.texts, steps.model, steps.how
    projections = _projections(model, how)
    parts = [name for name, (_, depth) in projections.items() if depth == model.hidden]
    apart = model.latent is not None and parts[0] == "q_up"  # a partial sum, and the whole gradient of `kv_down`
    again: tuple[str, ...] = ()
    wait: list[str] = []
    for name, (n, k) in reversed(projections.items()):
        steps.add(f"{name}_norm_back", NORM, *texts.rank_norm(name, backward=True))
        steps.wait_for(f"{name}_norm_back", wait)
        steps.add(f"{name}_bias_back", NORM, *texts.bias_backward(how.tokens, n))
        before, wait, added = steps.steps[-1].name, [], ""
        if k == model.hidden and not again:
            again = steps.gathered_again("attention_gather_again")
        gemm = steps.matrix(f"{name}_input", how.tokens, k, n, before)
        if k == model.hidden and name != parts[-1] and not apart:
            added = f"{name}_input_sum"
            steps.add(added, NORM, texts.sum(how.tokens))
        if k != model.hidden:
            wait = [f"{name}_reduce_back"]
            size = how.tokens * k * how.dtype.bytes
            steps.exchange(wait[0], "all_reduce", size, how.tp, after=(gemm,), reduces=gemm)
        elif name == parts[0] and name != "q_down":
            steps.reduced("attention_reduce_back", gemm, after=added)
        steps.weight(f"{name}_weight", k, n, how.tokens, gemm, *(again if k == model.hidden else ()))
    if apart:
        steps.add("q_up_input_sum", NORM, texts.sum(how.rows))
        steps.wait_for("q_up_input_sum", ["attention_reduce_back"])


def _experts_forward(steps: Steps) -> None:
    """Router, dispatch, the local experts, combine; then the shared experts as an ordinary MLP.

    The GPUs that share an expert have partial sums. If these are all tensor-parallel ones, the exchange behind the
    shared experts adds them up too.
    """
    texts, experts, model = steps.texts, steps.model.mixture, steps.model
    tokens, rows = expert_rows(model, steps.how)
    width = experts.intermediate // steps.how.expert_cut
    together = experts.shared > 0 and steps.how.expert_cut == steps.how.tp
    _gather_rows(steps, "expert_gather", tokens)
    steps.matrix("router", tokens, experts.count, model.hidden)
    steps.add("route", NORM, *texts.route(tokens))
    _routed(steps, "dispatch", "permute", texts.permute(tokens), tokens, out=True)
    up = width * (2 if model.gated else 1)
    steps.add("expert_up", MATRIX, texts.grouped(rows, up, model.hidden))
    steps.add("expert_activation", NORM, *texts.activation(sum(rows), width))
    steps.add("expert_down", MATRIX, texts.grouped(rows, model.hidden, width))
    _routed(steps, "combine", "unpermute", texts.permute(tokens, back=True), tokens, out=False)
    if not together:
        _sum_rows(steps, "expert_reduce", tokens)
    if experts.shared:
        _mlp_forward(steps, experts.shared * experts.intermediate, "shared", together)
        if not together:
            steps.add("shared_sum", NORM, texts.sum(steps.how.rows))


def _experts_backward(steps: Steps) -> None:
    texts, experts, model = steps.texts, steps.model.mixture, steps.model
    tokens, rows = expert_rows(model, steps.how)
    width = experts.intermediate // steps.how.expert_cut
    up = width * (2 if model.gated else 1)
    together = experts.shared > 0 and steps.how.expert_cut == steps.how.tp
    _gather_rows(steps, "expert_gather_back", tokens)
    _routed(steps, "combine_back", "unpermute_back", texts.permute(tokens), tokens, out=True)
    steps.add("expert_down_input", MATRIX, texts.grouped(rows, width, model.hidden))
    steps.add("expert_down_weight", MATRIX, texts.weight(width, model.hidden, rows[0], len(rows)))
    steps.add("expert_activation_back", NORM, *texts.activation(sum(rows), width, backward=True))
    steps.add("expert_up_input", MATRIX, texts.grouped(rows, model.hidden, up))
    steps.add("expert_up_weight", MATRIX, texts.weight(model.hidden, up, rows[0], len(rows)))
    _routed(steps, "dispatch_back", "permute_back", texts.permute(tokens, back=True), tokens, out=False)
    steps.matrix("router_input", tokens, model.hidden, experts.count)
    steps.add("router_input_sum", NORM, texts.sum(tokens))
    steps.weight("router_weight", model.hidden, experts.count, tokens)
    if not together:
        _sum_rows(steps, "expert_reduce_back", tokens)
    if experts.shared:
        _mlp_backward(steps, experts.shared * experts.intermediate, "shared", together)
        if not together:
            steps.add("shared_input_sum", NORM, texts.sum(steps.how.rows))
            steps.wait_for("shared_input_sum", ["shared_reduce_back"])


def _gather_rows(steps: Steps, name: str, tokens: int) -> None:
    """With sequence parallelism, the GPUs that share an expert need the tokens of each other."""
    if steps.how.sequence_parallel:
        steps.exchange(name, "all_gather", tokens * steps.row_bytes // steps.how.tokens, steps.how.expert_cut)


def _sum_rows(steps: Steps, name: str, tokens: int) -> None:
    """Add up the partial sums of an expert's parts. Without sequence parallelism every GPU then gets all tokens."""
    how, data_bytes = steps.how, tokens * steps.row_bytes // steps.how.tokens
    if how.sequence_parallel:
        steps.exchange(name, "reduce_scatter", data_bytes, how.expert_cut)
        return
    steps.exchange(name, "all_reduce", data_bytes, how.expert_cut)
    steps.exchange(f"{name}_gather", "all_gather", steps.row_bytes, how.tp // how.expert_cut, how.expert_cut)


def expert_rows(model: ModelShape, how: Deployment) -> tuple[int, tuple[int, ...]]:
    """Tokens that this GPU routes, and rows of each local expert that gets any, the largest number first.

    The load is balanced (assumed): all GPUs get the same number of rows, rounded up, and those of two experts differ by
    at most one. Few tokens reach few experts. Where tensor-parallel GPUs divide tokens unevenly, this one routes most.
    """
    tokens = -(-how.tokens * how.expert_cut // how.tp)
    chosen = -(-how.tokens * how.expert_cut * model.mixture.per_token // how.tp)
    local = min(model.mixture.count // how.ep, chosen)
    rows, more = divmod(chosen, local)
    return tokens, (rows + 1,) * more + (rows,) * (local - more)


def sent_rows(model: ModelShape, how: Deployment, tokens: int) -> int:
    """Rows that a GPU sends to the GPUs with experts, itself included: one for each expert of a token.

    Fused software sends a token once to each GPU that has any of its k experts, as DeepEP does. Of E experts chosen at
    random (assumed) on `ep` GPUs these are ep (1 - C(E - E / ep, k) / C(E, k)) in the mean.
    """
    count, chosen = model.mixture.count, model.mixture.per_token
    if how.software != Software.FUSED:
        return tokens * chosen
    on_others = Fraction(comb(count - count // how.ep, chosen), comb(count, chosen))
    return ceil(tokens * how.ep * (1 - on_others))


def _routed(steps: Steps, exchange: str, rows: str, kernel: str, tokens: int, out: bool) -> None:
    """Tokens go to their experts (out) or come back: an exchange, and a kernel that copies rows or adds them up.

    The kernel runs on the side of the tokens, in fused software on that of the experts.
    """
    data_bytes = sent_rows(steps.model, steps.how, tokens) * steps.model.hidden * steps.how.dtype.bytes
    kernel_first = out != (steps.how.software == Software.FUSED)
    if kernel_first:
        steps.add(rows, NORM, kernel)
    steps.exchange(exchange, "all_to_all", data_bytes, steps.how.ep, steps.how.expert_cut)
    if not kernel_first:
        steps.add(rows, NORM, kernel)
