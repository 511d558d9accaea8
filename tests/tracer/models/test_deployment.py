"""What a model cannot run on, and the memory that it needs."""

from dataclasses import replace

import pytest

from tracer.data_type import DataType
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Optimizer, Recompute, Software, check_deployment
from tracer.models.memory import check_memory, local_weights, memory_need
from tracer.models.shape import Experts
from tracer.models.whole import make_schedule
from traces.errors import UserError
from traces.units import GIB

TRAIN = Deployment(phase=ModelPhase.TRAIN, tp=8, micro_batch=4, sequence=2048, flash=False, dropout=True)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        ("llama-3-70b", {"tp": 3}, "tp = 3: allowed is a divisor of heads = 64"),
        ("qwen3-30b-a3b", {"tp": 3}, "tp = 3"),
        ("llama-3-70b", {"tp": 0}, "tp = 0: allowed is 1 to"),
        ("llama-3-70b", {"pp": 81}, "pp = 81: allowed is 1 to layers = 80"),
        ("llama-3-70b", {"ep": 2}, "ep = 2: allowed is 1: llama-3-70b has no experts"),
        ("mixtral-8x7b", {"tp": 4, "ep": 3}, "ep = 3: allowed is a divisor of experts = 8"),
        ("mixtral-8x7b", {"tp": 1, "dp": 2, "ep": 4}, "ep = 4: allowed is a divisor of tp \\* cp \\* dp = 2"),
        (
            *("mixtral-8x7b", {"phase": ModelPhase.TRAIN, "tp": 2, "dp": 12, "ep": 8}),
            r"ep = 8: allowed is 1 or 2 or 4 with tp = 2 and cp \* dp = 12 \(24 GPUs .* here 2\)",
        ),
        (
            *("mixtral-8x7b", {"phase": ModelPhase.TRAIN, "tp": 8, "dp": 3, "ep": 4}),
            r"ep = 4: allowed is 1 with tp = 8 and cp \* dp = 3 \(24 GPUs .* here 8\)",
        ),
        ("gpt-22b", {"sequence": 4096}, "sequence = 4096: allowed is 1 to max_positions = 2048"),
        (
            "gpt-22b",
            {"phase": ModelPhase.GENERATE, "kv_length": 2048},
            "kv_length = 2048: allowed is 0 to max_positions - 1 = 2047",
        ),
        ("bert-large", {"phase": ModelPhase.GENERATE, "sequence": 128}, "phase = generate: allowed is train or prompt"),
        ("llama-3-70b", {"zero": 1}, "zero = 1: allowed is 0 without training"),
        ("llama-3-70b", {"recompute": Recompute.FULL}, "recompute = full: allowed is none without training"),
        ("llama-3-70b", {"micro_batches": 2}, "micro_batches = 2: allowed is 1 without training"),
        ("llama-3-70b", {"optimizer": Optimizer.LAMB}, "optimizer = lamb: allowed is adam without training"),
        ("llama-3-70b", {"dropout": True}, "dropout = True: allowed is False without training"),
        ("bert-large", {"predictions": 20, "sequence": 128}, "predictions = 20: allowed is 0 without training"),
        ("llama-3-70b", {"kv_length": 3071}, "kv_length = 3071: allowed is 0 without generation"),
        (
            *("llama-3-70b", {"phase": ModelPhase.GENERATE, "sequence": 4096}),
            "sequence = 4096: allowed is 2048 in generation: kv_length counts",
        ),
        ("llama-3-70b", {"interleave": 2}, "interleave = 2: allowed is 1 with one stage of the pipeline"),
        ("llama-3-70b", {"pp": 4, "interleave": 2}, "interleave = 2: allowed is 1 without training"),
        (
            *("llama-3-70b", {"phase": ModelPhase.TRAIN, "pp": 4, "interleave": 2, "micro_batches": 6}),
            "micro_batches = 6: allowed is a multiple of pp = 4 with interleave",
        ),
        ("llama-3-70b", {"zero": 4, "phase": ModelPhase.TRAIN}, "zero = 4: allowed is 0 to 3"),
        ("llama-3-70b", {"replicas": 2}, "replicas = 2: allowed is 1 without training"),
        (
            *("llama-3-70b", {"replicas": 2, "dp": 8, "phase": ModelPhase.TRAIN}),
            "replicas = 2: allowed is 1 without ZeRO",
        ),
        (
            *("llama-3-70b", {"replicas": 3, "dp": 8, "zero": 3, "phase": ModelPhase.TRAIN}),
            r"replicas = 3: allowed is a divisor of cp \* dp = 8 that leaves groups of 2 GPUs or more",
        ),
        (
            *("llama-3-70b", {"replicas": 8, "dp": 8, "zero": 3, "phase": ModelPhase.TRAIN}),
            r"replicas = 8: allowed is a divisor of cp \* dp = 8 that leaves groups of 2 GPUs or more",
        ),
        (
            *("mixtral-8x7b", {"replicas": 4, "dp": 16, "ep": 8, "zero": 3, "phase": ModelPhase.TRAIN}),
            "replicas = 4: allowed is a divisor of the copies of an expert = 2",
        ),
        ("llama-3-70b", {"tp": 8, "sequence_parallel": True, "sequence": 5}, "tp = 8: allowed is a divisor of tokens"),
    ],
)
def test_what_a_model_cannot_have_is_refused(model, change, message):
    with pytest.raises(UserError, match=message):
        check_deployment(load_model(model), replace(Deployment(), **change))


@pytest.mark.parametrize(
    ("experts", "how", "message"),
    [
        ({"intermediate": 100}, {"tp": 8}, "tp = 8: allowed is one whose 8 GPUs for an expert divide its width 100"),
        (
            *({"intermediate": 100, "shared": 1}, {"tp": 8, "ep": 8}),
            "tp = 8: allowed is a divisor of the width of the shared experts = 100",
        ),
        ({"intermediate": 100}, {"tp": 8, "ep": 2}, ""),
        ({"intermediate": 512, "shared": 3}, {"tp": 8}, ""),
    ],
)
def test_the_width_of_experts_is_divided_in_whole_elements(experts, how, message):
    """No layer has the ordinary MLP, so its width does not count."""
    model = replace(load_model("llama-3-8b"), intermediate=1001, experts=Experts(count=8, per_token=2, **experts))
    if message:
        with pytest.raises(UserError, match=message):
            check_deployment(model, Deployment(**how))
    else:
        check_deployment(model, Deployment(**how))


@pytest.mark.parametrize(
    ("tp", "dp", "ep", "cut", "copies"),
    [(2, 12, 4, 2, 3), (2, 4, 8, 1, 1), (4, 2, 2, 4, 1), (4, 2, 4, 2, 1), (1, 8, 2, 1, 4)],
)
def test_pieces_of_experts_fill_the_gpus(tp, dp, ep, cut, copies):
    """ep groups of experts x GPUs that share one expert x copies = tp * dp."""
    how = Deployment(tp=tp, dp=dp, ep=ep)
    check_deployment(load_model("mixtral-8x7b"), how)
    assert (how.expert_cut, how.expert_copies) == (cut, copies)
    assert ep * cut * copies == tp * dp


def test_activations_are_those_of_megatron():
    """arXiv 2205.05198: s b h (10 + 24 / t + 5 a s / (h t)); with sequence parallelism all of it divided by t; with
    selective recomputation without the last term; with full recomputation 2 s b h."""
    model = load_model("gpt-22b")
    s, b, h, a, t = 2048, 4, model.hidden, model.heads, 8
    plain, scores = s * b * h, 5 * a * s / h / t
    expected = {
        TRAIN: plain * (10 + 24 / t + scores),
        replace(TRAIN, sequence_parallel=True): plain * (10 / t + 24 / t + scores),
        replace(TRAIN, sequence_parallel=True, recompute=Recompute.SELECTIVE): plain * 34 / t,
        replace(TRAIN, recompute=Recompute.FULL): 2 * plain,
    }
    for how, layer_bytes in expected.items():
        assert memory_need(model, how).activations == pytest.approx(model.layers * layer_bytes, rel=1e-6)


@pytest.mark.parametrize(("interleave", "micro_batches", "held"), [(1, 64, 8), (3, 64, 8 + 7 / 3), (3, 8, 8)])
def test_interleaved_stages_hold_activations_of_more_micro_batches(interleave, micro_batches, held):
    """p (1 + (p - 1) / (p m)) with m parts of the model on each of p stages, at most all (arXiv 2205.05198, 4.2.3)."""
    model = load_model("gpt-175b")
    how = replace(TRAIN, pp=8, interleave=interleave, micro_batches=micro_batches)
    one = memory_need(model, replace(TRAIN, pp=8)).activations
    assert memory_need(model, how).activations == pytest.approx(held * one, rel=1e-6)


@pytest.mark.parametrize(
    ("software", "dtype", "each"),
    [
        *(("fused", "bf16", 2), ("fused", "fp32", 4), ("megatron", "bf16", 2 + 4), ("megatron", "fp32", 4)),
        *(("eager", "bf16", 3 * 4), ("eager-2019", "fp16", 3 * 2), ("eager-2019", "fp32", 3 * 4)),
    ],
)
def test_training_has_the_logits_of_a_micro_batch(software, dtype, each):
    """Llama-3-8B on 8 GPUs: 8192 tokens of 128256 / 8 columns; BERT-Large: 20 words of each of 4 sequences."""
    how = replace(TRAIN, software=Software(software), dtype=DataType(dtype))
    assert memory_need(load_model("llama-3-8b"), how).logits == 8192 * 16032 * each
    words = replace(how, tp=1, sequence=512, predictions=20)
    assert memory_need(load_model("bert-large"), words).logits == 80 * 30522 * each


@pytest.mark.parametrize(
    ("model", "how", "scores", "logits"),
    [
        ("llama-3-8b", {"tp": 8, "sequence": 65536}, 4 * 65536**2, 128_256),
        ("llama-3-8b", {"phase": ModelPhase.GENERATE, "micro_batch": 64, "kv_length": 8191}, 2048 * 8192, 64 * 128_256),
        ("bert-large", {"tp": 2, "micro_batch": 8, "sequence": 512}, 64 * 512**2, 4096 * 30_522),
    ],
)
def test_inference_has_the_scores_of_a_layer_and_the_logits(model, how, scores, logits):
    """Scores of the heads of one GPU, which fused attention never stores; logits of all words on every GPU."""
    fused = memory_need(load_model(model), Deployment(**how))
    apart = memory_need(load_model(model), Deployment(**how, flash=False))
    assert (fused.logits, apart.logits) == (2 * logits, 2 * logits)
    assert apart.activations - fused.activations == 2 * scores


def test_a_latent_cache_has_scores_in_generation():
    """DeepSeek-V3 on 8 GPUs: scores and values of 16 heads are kernels of their own."""
    how = Deployment(phase=ModelPhase.GENERATE, tp=8, micro_batch=64)
    short, long = (memory_need(load_model("deepseek-v3"), replace(how, kv_length=length)) for length in (1023, 2047))
    assert long.activations - short.activations == 2 * 64 * 16 * 1024


def test_the_last_stage_has_logits_and_fewer_micro_batches():
    """Two stages: with many tokens of few layers the last needs most, which holds one micro-batch, the first two; with
    two parts of the model on each, three passes of a part (the first five)."""
    model, how = load_model("qwen3-0.6b").with_layers(4), Deployment(phase=ModelPhase.TRAIN, pp=2, micro_batches=8)
    layer = memory_need(replace(model, layers=1), replace(how, pp=1)).activations
    last = memory_need(model, how)
    assert (last.logits, last.activations) == (2048 * 151_936 * 2, 2 * layer)
    assert memory_need(model, replace(how, interleave=2)).activations == 3 * layer
    deep = memory_need(load_model("gpt-175b"), replace(TRAIN, pp=8, micro_batches=8))
    assert deep.logits == 0


@pytest.mark.parametrize(
    ("tp", "dp", "ep", "cut"), [(1, 1, 1, 1), (1, 8, 8, 1), (4, 1, 1, 4), (4, 1, 4, 1), (4, 2, 4, 2)]
)
def test_each_token_has_activations_in_all_its_experts(tp, dp, ep, cut):
    """Mixtral keeps for a token, in bf16: 4 x 4096 elements outside; 4096 + 2 x 1024 + 4096 of the attention, and in
    2 experts 3 x 14336, divided over tp; 2 copies of its 4096 inputs, divided over tp / cut GPUs that route."""
    model, how = load_model("mixtral-8x7b"), Deployment(phase=ModelPhase.TRAIN, tp=tp, dp=dp, ep=ep, sequence=1024)
    elements = 4 * 4096 + (10240 + 2 * 3 * 14336) // tp + 2 * 4096 * cut // tp
    assert memory_need(model, how).activations == 32 * 1024 * 2 * elements


def test_a_stage_keeps_activations_of_plain_layers_and_of_experts():
    """DeepSeek-V3 has 3 layers with an MLP of 18432, then 8 of 256 experts of 2048 for each token, and a shared one.
    Its 128 heads have queries and keys of 192, values and outputs of 128; its tokens 1536 and 576 of the ranks."""
    how = Deployment(phase=ModelPhase.TRAIN, sequence=1024)
    others = 4 * 7168 + 2 * 128 * (192 + 128) + 1536 + 576
    plain, experts = others + 3 * 18432, others + 3 * 9 * 2048 + 8 * 7168
    for tokens in (1024, 33):
        need = memory_need(load_model("deepseek-v3"), replace(how, sequence=tokens))
        assert need.activations == tokens * 2 * (3 * plain + 58 * experts)
    one = memory_need(load_model("deepseek-v3"), replace(how, tp=8)).activations
    others = 4 * 7168 + 2 * 16 * (192 + 128) + 1536 + 576
    plain, experts = others + 3 * 18432 // 8, others + 3 * 9 * 2048 // 8 + 8 * 7168
    assert one == 1024 * 2 * (3 * plain + 58 * experts)


def test_zero_divides_state_gradients_and_weights_in_turn():
    model, how = load_model("llama-3-8b"), Deployment(phase=ModelPhase.TRAIN, dp=4)
    none, one, two, three = (memory_need(model, replace(how, zero=stage)) for stage in range(4))
    weights, largest = local_weights(model, how).total, 128_256 * 4096  # the output layer
    assert none.optimizer == 4 * one.optimizer == 12 * weights
    assert one.gradients == 4 * weights and two.gradients == three.gradients == weights + 2 * largest
    assert two.weights == 2 * weights and three.weights == weights // 2 + 2 * 2 * largest


@pytest.mark.parametrize(
    ("options", "bytes_of_a_weight"),
    [
        ({}, (2, 4, 12)),
        ({"software": Software.MEGATRON, "dtype": DataType.FP16}, (2, 2, 12)),  # the 16 of arXiv 1910.02054
        ({"software": Software.MEGATRON}, (2, 4, 12)),
        ({"software": Software.EAGER}, (2, 4, 12)),
        ({"dtype": DataType.FP32}, (4, 4, 8)),
    ],
)
def test_bytes_of_a_weight(options, bytes_of_a_weight):
    model, how = load_model("llama-3-8b"), Deployment(phase=ModelPhase.TRAIN, **options)
    need, weights = memory_need(model, how), local_weights(model, how).total
    assert (need.weights, need.gradients, need.optimizer) == tuple(size * weights for size in bytes_of_a_weight)


@pytest.mark.parametrize(("dtype", "own"), [(DataType.BF16, 0), (DataType.FP32, 4)])
def test_pytorch_keeps_no_weights_of_16_bits_with_zero_3(dtype, own):
    """FSDP gathers casts of the fp32 weights, which are in the state of the optimizer (12 bytes)."""
    model = load_model("llama-3-8b")
    how = Deployment(phase=ModelPhase.TRAIN, dp=4, zero=3, software=Software.EAGER, dtype=dtype)
    gathered = 2 * 128_256 * 4096 * dtype.bytes
    assert memory_need(model, how).weights == own * local_weights(model, how).total // 4 + gathered


@pytest.mark.parametrize(("ep", "copies"), [(8, 1), (4, 2)])
def test_zero_divides_experts_over_their_copies(ep, copies):
    """Of 8 GPUs with ep = 4 two have the same experts, with ep = 8 none. An expert has 3 x 4096 x 14336 weights in
    each of 32 layers; the rest is attention, the router of 8 experts, embedding and output layer."""
    model = load_model("mixtral-8x7b")
    how = Deployment(phase=ModelPhase.TRAIN, dp=8, ep=ep, zero=3, sequence=1024)
    experts = 8 // ep * 32 * 3 * 4096 * 14336
    others = 32 * (4096 * (2 * 4096 + 2 * 1024) + 4096 * 8) + 2 * 32000 * 4096
    need = memory_need(model, how)
    assert need.optimizer == 12 * (experts // copies + others // 8)
    layer = 4096 * (2 * 4096 + 2 * 1024) + 4096 * 8 + (copies > 1) * experts // 32  # experts without copies are whole
    whole = max(layer, 32000 * 4096)
    assert need.gradients == 4 * (experts // copies + others // 8) + 2 * whole
    assert need.weights == 2 * (experts // copies + others // 8) + 2 * 2 * whole


def test_state_of_experts_without_copies_does_not_fit():
    """12 x 5.64e9 + 12 x 1.61e9 / 8 bytes = 65.2 GiB."""
    how = Deployment(phase=ModelPhase.TRAIN, dp=8, ep=8, zero=1, sequence=1024)
    with pytest.raises(UserError, match=r"optimizer 65\.2"):
        check_memory(load_model("mixtral-8x7b"), how, 80 * GIB)


def test_all_gpus_together_hold_all_weights():
    for name in ("llama-3-70b", "mixtral-8x7b"):
        model = load_model(name)
        assert 8 * local_weights(model, Deployment(tp=8)).total == pytest.approx(model.weights, rel=0.001)


@pytest.mark.parametrize(
    ("model", "tp", "layer"),
    [
        # 64 heads and 8 of keys and values, of 128: on 16 GPUs 4 and one of each
        ("llama-3-70b", 8, 8192 * 128 * (8 + 2 + 8)),
        ("llama-3-70b", 16, 8192 * 128 * (4 + 2 + 4)),
        # 128 heads; all GPUs project to 1536 + 512 + 64
        ("deepseek-v3", 8, 7168 * 2112 + 1536 * 16 * 192 + 512 * 16 * 256 + 16 * 128 * 7168),
    ],
)
def test_gpus_have_copies_of_what_heads_share(model, tp, layer):
    """As in the schedule, whose GEMMs have these weights."""
    shape, how = load_model(model), Deployment(tp=tp, sequence=128)
    assert shape.attention_weights_of(tp) == layer
    two, one = (local_weights(replace(shape, layers=number, experts=None), how).total for number in (2, 1))
    assert two - one == layer + shape.mlp_weights(shape.intermediate) // tp
    (block,) = (block for block in make_schedule(shape, how).forward if block.name == "layer")
    names = ("qkv", "q_down", "q_up", "kv_down", "kv_up", "output")
    sizes = [str(step.work).split(",")[1:3] for step in block.steps if step.name in names]
    assert sum(int(n.removeprefix("n=")) * int(k.removeprefix("k=")) for n, k in sizes) == layer


def test_a_stage_of_experts_needs_more_than_the_first_stage():
    """61 layers on 16 stages of 4: the first has 3 ordinary MLPs. An expert has 3 x 7168 x 2048 weights, and a layer
    of the 61 has 256 and a shared one; 4 layers have 45.3 billion in experts, so they need 84.3 GiB in bf16."""
    model, how = load_model("deepseek-v3"), Deployment(pp=16, sequence=1024)
    others = 4 * (model.attention_weights + 7168 * 256) + 129_280 * 7168
    assert memory_need(model, how).weights == 2 * (4 * 257 * 3 * 7168 * 2048 + others)
    with pytest.raises(UserError, match=r"needs 8\d\.\d GiB on each GPU"):
        check_memory(model, how, 80 * GIB)


def test_the_first_stage_needs_most_if_expert_parallelism_divides_the_experts():
    """An ordinary MLP is 18432 wide, what a GPU has of 256 experts of 2048 (4 and a shared one) 10240."""
    model, how = load_model("deepseek-v3"), Deployment(pp=16, dp=64, ep=64, sequence=1024)
    others = 4 * model.attention_weights + 7168 * 256 + 129_280 * 7168
    assert memory_need(model, how).weights == 2 * (3 * 7168 * (3 * 18432 + 10240) + others)


def test_the_kv_cache_of_llama_70b():
    """80 layers x 2 x 8 heads x 128 x 2 bytes = 327,680 bytes a token."""
    how = Deployment(phase=ModelPhase.GENERATE, tp=8, micro_batch=16, kv_length=4095)
    assert memory_need(load_model("llama-3-70b"), how).kv_cache == 16 * 4096 * 327_680 // 8


def test_a_model_that_does_not_fit_is_refused_with_the_missing_size():
    model = load_model("llama-3-70b")
    with pytest.raises(UserError, match=r"needs 13\d\.\d GiB on each GPU .*80\.0 GiB, 5\d\.\d GiB are missing"):
        check_memory(model, Deployment(), 80 * GIB)
    assert check_memory(model, Deployment(tp=2), 80 * GIB).total < 80 * GIB
