"""Schedules of whole models: which kernels each software runs, heads, sums of gradients, what is exchanged."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest

from tracer.data_type import DataType
from tracer.kernels import make_kernels
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Optimizer, Software
from tracer.models.layer import expert_rows, sent_rows
from tracer.models.schedule import Exchange, Lane
from tracer.models.whole import make_schedule

HOW = Deployment(
    phase=ModelPhase.TRAIN,
    micro_batch=2,
    sequence=128,
    dtype=DataType.FP16,
    optimizer=Optimizer.LAMB,
    flash=False,
    dropout=True,
)
BERT = load_model("bert-large")


def steps(how, model=BERT):
    return {block.name: {step.name: step.work for step in block.steps} for block in make_schedule(model, how).blocks()}


@pytest.mark.parametrize(
    ("software", "kernels"), [("eager", 28), ("eager-2023", 28), ("eager-2019", 28), ("megatron", 15), ("fused", 11)]
)
def test_a_layer_has_the_kernels_of_its_software(software, kernels):
    """As in the table of `tracer.models.texts`, counted by hand."""
    layer = steps(replace(HOW, software=Software(software)))["layer"]
    assert len(layer) == kernels
    assert [name for name, work in layer.items() if work.startswith("gemm")][-3:] == ["output", "mlp_up", "mlp_down"]


@pytest.mark.parametrize(("tp", "biases"), [(1, 0), (2, 2)])
def test_pytorch_adds_a_bias_in_the_gemm_unless_its_output_is_a_sum(tp, biases):
    """With two GPUs the outputs of attention and MLP are summed first. GELU reads no bias then."""
    layer = steps(replace(HOW, software=Software.EAGER, tp=tp))["layer"]
    assert sum(str(work).startswith("bias:") for work in layer.values()) == biases
    assert "bias" not in layer["mlp_activation"]


def test_every_kernel_of_a_step_can_be_made():
    for software in Software:
        for dtype in (DataType.FP16, DataType.FP32):
            for block in steps(replace(HOW, software=software, dtype=dtype, micro_batches=2)).values():
                for work in block.values():
                    assert make_kernels(work)


@pytest.mark.parametrize("keys", [513, 1024, 1030])
def test_scores_of_pytorch_have_rows_of_any_length(keys):
    work = steps(replace(HOW, software=Software.EAGER, dropout=False, sequence=keys), load_model("gpt-22b"))["layer"]
    assert f"cols={keys},library=torch," in work["softmax"]
    assert make_kernels(work["softmax"])


@pytest.mark.parametrize("software", Software)
def test_pytorch_multiplies_before_the_gradient_of_softmax(software):
    """2 sequences, 16 heads, 128 x 128 scores."""
    backward = steps(replace(HOW, software=software))["backward"]
    product = {name: work for name, work in backward.items() if name == "softmax_back_product"}
    loops = {
        Software.EAGER: "unroll=1,warps=4",
        Software.EAGER_2023: "vector=4,unroll=1,warps=4",
        Software.EAGER_2019: "vector=1,unroll=1,warps=16",
    }
    loop = loops.get(software)
    dtype = "fp16" if software == Software.EAGER_2019 else "fp32"  # autocast
    assert product == ({"softmax_back_product": f"residual:rows=4096,cols=128,{loop},dtype={dtype}"} if loop else {})


@pytest.mark.parametrize("software", Software)
def test_eager_software_has_the_fused_attention_of_pytorch(software):
    """Its code for the backward pass was not read."""
    found = steps(replace(HOW, software=software, flash=True))
    eager = software not in (Software.FUSED, Software.MEGATRON)
    assert ("library=torch" in found["layer"]["attention"]) == eager
    assert "library" not in found["backward"]["attention_back"]
    assert ("version=2" in found["backward"]["attention_back"]) == eager
    assert make_kernels(found["layer"]["attention"]) and make_kernels(found["backward"]["attention_back"])


def test_an_encoder_predicts_the_chosen_words():
    output = steps(replace(HOW, predictions=20))["output"]
    assert output["head"] == "gemm:m=40,n=1024,k=1024,dtype=fp16"
    assert output["logits"] == "gemm:m=40,n=30522,k=1024,dtype=fp16"
    assert steps(HOW)["output"]["logits"] == "gemm:m=256,n=30522,k=1024,dtype=fp16"


def test_the_gradient_of_the_chosen_words_is_exchanged():
    """40 words of 1,024 fp16 values, not all 256 tokens."""
    backward = steps(replace(HOW, predictions=20, tp=2))["output backward"]
    assert backward["logits_reduce_back"] == Exchange("all_reduce", 40 * 1024 * 2, 2)
    every = steps(replace(HOW, tp=2))["output backward"]
    assert every["logits_reduce_back"] == Exchange("all_reduce", 256 * 1024 * 2, 2)


@pytest.mark.parametrize(("software", "before"), [("eager", "q_input_sum"), ("megatron", "qkv_input")])
def test_an_input_gradient_is_exchanged_when_all_its_parts_are_added(software, before):
    """Eager software has three GEMMs for Q, K and V. No exchange can be fused with the last one: a sum follows."""
    blocks = make_schedule(BERT, replace(HOW, software=Software(software), tp=2)).blocks()
    backward = {step.name: step for block in blocks if block.name == "backward" for step in block.steps}
    step = backward["attention_reduce_back"]
    assert (step.after, step.reduces) == ((before,), "" if software == "eager" else before)


def test_gradients_of_latent_projections_are_added():
    """Queries and the latent cache have a projection each of the same input (DeepSeek-V3)."""
    backward = steps(replace(HOW, optimizer=Optimizer.ADAM), load_model("deepseek-v3"))["backward"]
    assert backward["q_down_input_sum"] == "residual:rows=256,cols=7168,dtype=fp16"
    assert [name for name in backward if name.endswith("_input_sum")] == ["q_down_input_sum"]


def test_gradients_are_added_up_over_micro_batches():
    eager = replace(HOW, micro_batches=2, software=Software.EAGER)
    assert steps(eager)["backward"]["gradient_sum"] == "residual:rows=1,cols=12582912,dtype=fp32"
    assert "gradient_sum" not in steps(replace(eager, micro_batches=1))["backward"]
    for dtype in (DataType.FP16, DataType.FP32):  # Megatron-LM: also with one micro-batch, in the type of the weights
        one = steps(replace(HOW, software=Software.MEGATRON, dtype=dtype))
        assert one["backward"]["gradient_sum"] == f"residual:rows=1,cols=12582912,dtype={dtype}"


def test_kernels_of_megatron_lm():
    """2 sequences of 128 tokens, 16 heads of 64: what its sources run beside GEMMs (`tracer.models.texts`)."""
    found = steps(replace(HOW, software=Software.MEGATRON, optimizer=Optimizer.ADAM))
    assert found["layer"]["qkv_bias"] == "bias:rows=256,cols=3072,dtype=fp16"
    for name in ("query_scale", "key_scale"):
        assert found["backward"][name] == "copy:rows=4096,cols=64,dtype=fp16"
    assert "context_copy" in found["layer"] and "context_copy_back" not in found["backward"]
    (update,) = found["optimizer"].values()
    assert len(make_kernels(update)) == 8
    other = steps(replace(HOW, software=Software.MEGATRON, optimizer=Optimizer.ADAM, dtype=DataType.BF16))
    assert [*other["optimizer"]] == ["gradient_clip", "adam"]


def test_all_weights_are_exchanged_once():
    """In bytes of fp32; norms and biases are left out."""
    schedule = make_schedule(BERT, replace(HOW, dp=4))
    moved = sum(
        block.repeats * step.work.bytes
        for block in schedule.blocks()
        for step in block.steps
        if isinstance(step.work, Exchange) and step.lane == Lane.DATA
    )
    assert moved == 4 * (BERT.weights + BERT.hidden**2)


def exchanges(model, how):
    """Block -> names, kinds, KiB and GPUs of its exchanges."""
    return {
        block.name: [(step.name, step.work.kind, step.work.bytes >> 10, step.work.gpus)
                     for step in block.steps if isinstance(step.work, Exchange)]
        for block in make_schedule(load_model(model), how).blocks()
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "forward", "backward"),
    [
        ({"tp": 8}, [("expert_reduce", "all_reduce", 32768, 8)], [("expert_reduce_back", "all_reduce", 32768, 8)]),
        (
            {"tp": 8, "sequence_parallel": True},
            [("expert_gather", "all_gather", 32768, 8), ("expert_reduce", "reduce_scatter", 32768, 8)],
            [("expert_gather_back", "all_gather", 32768, 8), ("expert_reduce_back", "reduce_scatter", 32768, 8)],
        ),
        (
            {"tp": 8, "ep": 8},
            [("expert_reduce_gather", "all_gather", 32768, 8)],
            [("expert_reduce_back_gather", "all_gather", 32768, 8)],
        ),
        (
            {"tp": 8, "ep": 4, "sequence_parallel": True},  # two GPUs share an expert and route a quarter of the tokens
            [("expert_gather", "all_gather", 8192, 2), ("expert_reduce", "reduce_scatter", 8192, 2)],
            [("expert_gather_back", "all_gather", 8192, 2), ("expert_reduce_back", "reduce_scatter", 8192, 2)],
        ),
    ],
)
def test_parts_of_experts_are_added_up_and_tokens_come_back(options, forward, backward):
    """Mixtral: 4096 tokens of 4096 values in two bytes are 32 MiB."""
    found = exchanges("mixtral-8x7b", Deployment(phase=ModelPhase.TRAIN, sequence=4096, **options))
    for block, expected in (("expert layer", forward), ("expert backward", backward)):
        assert [each for each in found[block] if each[0].startswith("expert_")] == expected


def test_one_exchange_adds_up_routed_and_shared_experts():
    found = exchanges("deepseek-v3", Deployment(tp=8, sequence=1024))["expert layer"]
    assert [name for name, *_ in found] == ["attention_reduce", "shared_reduce"]
    apart = exchanges("deepseek-v3", Deployment(tp=8, ep=8, sequence=1024))["expert layer"]
    assert [name for name, kind, *_ in apart if kind != "all_to_all"] == [
        *("attention_reduce", "expert_reduce_gather", "shared_reduce")
    ]


@pytest.mark.parametrize("ep", [2, 4, 8])
def test_fused_software_sends_a_token_once_to_each_gpu(ep):
    """Mixtral: two of eight experts. Counted: the GPUs of each pair of experts, 28 pairs for 28 tokens."""
    model, how = load_model("mixtral-8x7b"), Deployment(tp=8, ep=ep)
    reached = sum(len({expert * ep // 8 for expert in pair}) for pair in combinations(range(8), 2))
    assert sent_rows(model, how, 28) == reached
    assert sent_rows(model, replace(how, software=Software.EAGER), 28) == 56


def test_a_token_is_copied_for_its_experts_where_its_software_does_it():
    """DeepSeek-V3 on 8 GPUs, 512 tokens for each: 8 experts of a token are on 5.2947 GPUs in the mean."""
    for software, rows in ((Software.FUSED, 2711), (Software.MEGATRON, 4096)):
        how = Deployment(tp=8, ep=8, sequence=4096, phase=ModelPhase.TRAIN, software=software)
        size = rows * 7168 * 2
        exchange = dict.fromkeys(
            ("dispatch", "combine", "combine_back", "dispatch_back"), Exchange("all_to_all", size, 8)
        )
        found = steps(how, load_model("deepseek-v3"))
        blocks = found["expert layer"] | found["expert backward"]
        assert {name: work for name, work in blocks.items() if name in exchange} == exchange
        order = [name for name in blocks if name in exchange or "permute" in name]
        pairs = [("permute", "dispatch"), ("combine", "unpermute")]
        pairs += [("unpermute_back", "combine_back"), ("dispatch_back", "permute_back")]
        assert order == [name for pair in pairs for name in pair[:: -1 if software == Software.FUSED else 1]]


@pytest.mark.parametrize(("tokens", "rows", "experts"), [(1, 1, 2), (3, 1, 6), (8, 2, 8), (4096, 1024, 8)])
def test_few_tokens_reach_few_experts(tokens, rows, experts):
    """Mixtral: two of eight experts for each token."""
    assert expert_rows(load_model("mixtral-8x7b"), Deployment(sequence=tokens)) == (tokens, (rows,) * experts)


def test_experts_have_together_the_rows_of_all_tokens():
    """DeepSeek-V3, 33 tokens: 264 rows for 256 experts. Gradients of weights have the rows as their depth, which all
    GEMMs of a kernel share."""
    found = steps(replace(HOW, micro_batch=1, sequence=33, optimizer=Optimizer.ADAM), load_model("deepseek-v3"))
    blocks = found["expert layer"] | found["expert backward"]
    gemms = {name: work for name, work in blocks.items() if name.startswith("expert_") and work.startswith("gemm")}
    weights = {name: gemms.pop(name) for name in [*gemms] if name.endswith("weight")}
    assert gemms["expert_up"] == "gemm:n=4096,k=7168,groups=8*2x248*1,dtype=fp16"
    for work in gemms.values():
        (kernel,) = make_kernels(work)
        assert kernel.flops in (2 * 264 * 4096 * 7168, 2 * 264 * 2048 * 7168)
    assert all(",k=2,batch=256," in work for work in weights.values()) and len(weights) == 2
    assert blocks["expert_activation"].startswith("swiglu:rows=264,")
    even = steps(replace(HOW, micro_batch=1, sequence=32), load_model("deepseek-v3"))["expert layer"]
    assert even["expert_up"] == "gemm:m=1,n=4096,k=7168,batch=256,dtype=fp16"


@pytest.mark.parametrize(("sequences", "routed"), [(1, 1), (8, 1), (9, 2), (15, 2), (16, 2)])
def test_the_gpu_with_most_tokens_counts(sequences, routed):
    """8 GPUs with different experts divide the tokens: some of 15 have two. All have the same rows of experts: eight of
    each token, so of one token a GPU has one."""
    how = Deployment(phase=ModelPhase.GENERATE, tp=8, ep=8, micro_batch=sequences)
    assert expert_rows(load_model("deepseek-v3"), how) == (routed, (1,) * sequences)


@pytest.mark.parametrize("sequences", [1, 3, 9, 64, 100])
@pytest.mark.parametrize("ep", [1, 2, 4, 8])
def test_a_group_of_gpus_has_the_rows_of_its_tokens(ep, sequences):
    how = Deployment(phase=ModelPhase.GENERATE, tp=8, ep=ep, micro_batch=sequences)
    _, rows = expert_rows(load_model("deepseek-v3"), how)
    assert sum(rows) == -(-8 * sequences // ep)


def test_a_latent_cache_is_read_as_it_is():
    """DeepSeek-V3 on 8 GPUs: 16 heads read 4096 rows of 512 + 64 values for each of 64 sequences, twice."""
    how = Deployment(phase=ModelPhase.GENERATE, tp=8, kv_length=4095, micro_batch=64)
    layer = steps(how, load_model("deepseek-v3"))["expert layer"]
    assert layer["scores"] == "gemm:m=16,n=4096,k=576,batch=64,dtype=bf16"
    assert layer["values"] == "gemm:m=16,n=512,k=4096,batch=64,dtype=bf16"
    assert layer["query_latent"] == "gemm:m=64,n=512,k=128,batch=16,dtype=bf16"
    assert "kv_up" not in layer and "kv_up" in steps(Deployment(tp=8), load_model("deepseek-v3"))["expert layer"]


def test_latent_heads_have_narrow_values_and_one_rotated_key():
    """DeepSeek-V3 on 8 GPUs: 16 heads of 128 + 64 elements of queries and keys, 128 of values (arXiv 2405.04434)."""
    model, how = load_model("deepseek-v3"), Deployment(phase=ModelPhase.TRAIN, tp=8, sequence=256, flash=False)
    layer, back = steps(how, model)["expert layer"], steps(how, model)["expert backward"]
    assert layer["scores"] == "gemm:m=256,n=256,k=192,batch=16,dtype=bf16"
    assert layer["values"] == "gemm:m=256,n=128,k=256,batch=16,dtype=bf16"
    assert back["values_scores"] == "gemm:m=256,n=256,k=128,batch=16,dtype=bf16"
    assert back["values_value"] == "gemm:m=256,n=128,k=256,batch=16,dtype=bf16"
    assert back["scores_key"] == "gemm:m=256,n=192,k=256,batch=16,dtype=bf16"
    assert layer["rotary"] == "rotary:tokens=256,heads=16,kv_heads=1,head_dim=64,dtype=bf16"


@pytest.mark.parametrize(
    ("zero", "gathers", "reductions"), [(0, 0, 32 + 1), (1, 0, 32 + 1), (2, 0, 4 * 33), (3, 4 * 67, 4 * 33)]
)
def test_zero_exchanges_in_every_micro_batch_what_it_does_not_keep(zero, gathers, reductions):
    """Llama-3-8B, four micro-batches: 32 layers, the embedding. Stage 3 gathers in both passes (arXiv 1910.02054), the
    output layer too, the embedding in the forward pass."""
    how = Deployment(phase=ModelPhase.TRAIN, dp=8, zero=zero, sequence=1024, micro_batches=4)
    schedule = make_schedule(load_model("llama-3-8b"), how)
    counts = Counter()
    for block in schedule.forward + schedule.backward:
        for step in block.steps:
            if isinstance(step.work, Exchange):
                counts[step.work.kind] += block.repeats * (1 if step.once else 4)
    assert counts["all_gather"] == gathers
    assert counts["reduce_scatter" if zero else "all_reduce"] == reductions


def test_zero_3_gathers_experts_among_their_copies():
    found = exchanges("mixtral-8x7b", Deployment(phase=ModelPhase.TRAIN, dp=8, zero=3, sequence=1024))
    (own,) = (kib for name, _, kib, gpus in found["expert layer"] if name == "expert_next_weights" and gpus == 8)
    assert own == 8 * 3 * 4096 * 14336 * 2 >> 10
    ep = exchanges("mixtral-8x7b", Deployment(phase=ModelPhase.TRAIN, dp=8, ep=8, zero=3, sequence=1024))
    assert "expert_next_weights" not in [name for name, *_ in ep["expert layer"]]


@pytest.mark.parametrize(
    ("pp", "layers", "found"),
    [
        (1, 61, {"layer": 3, "expert layer": 58}),
        (1, 60, {"layer": 2, "expert layer": 58}),
        (1, 1, {"expert layer": 1}),
        (2, 61, {"expert layer": 31}),
        (16, 61, {"expert layer": 4}),
        (21, 61, {"expert layer": 3}),
    ],
)
def test_the_stage_with_most_experts_is_simulated(pp, layers, found):
    """3 of 61 layers have an ordinary MLP; a stage has 61 / pp layers, rounded up."""
    schedule = make_schedule(load_model("deepseek-v3").with_layers(layers), Deployment(pp=pp, sequence=128))
    assert {block.name: block.repeats for block in schedule.forward if not block.outer} == found


def test_fewer_layers_of_a_model_have_their_own_weights():
    model = load_model("deepseek-v3")
    one, two = model.with_layers(1), model.with_layers(2)
    assert two.weights - one.weights == model.attention_weights + 257 * model.expert_weights + 7168 * 256
    assert load_model("llama-3-8b").with_layers(2).layers == 2


@pytest.mark.parametrize(("ep", "copies"), [(8, 1), (4, 2), (1, 8)])
def test_new_weights_of_experts_are_gathered_from_their_copies(ep, copies):
    """One layer of Mixtral, in bf16, on 8 GPUs: an expert has 3 x 4096 x 14336 weights, the rest 304,119,808."""
    experts, others = 8 // ep * 3 * 4096 * 14336, 4096 * (2 * 4096 + 2 * 1024 + 8) + 2 * 32000 * 4096
    how = Deployment(phase=ModelPhase.TRAIN, dp=8, ep=ep, zero=1, sequence=128)
    schedule = make_schedule(load_model("mixtral-8x7b").with_layers(1), how)
    update, gather = schedule.finish
    expected = {"new_weights": Exchange("all_gather", 2 * others, 8)}
    if copies > 1:
        expected["new_expert_weights"] = Exchange("all_gather", 2 * experts, copies, ep)
    assert {step.name: step.work for step in gather.steps} == expected
    size = int(update.steps[0].work.removeprefix("gradient_clip:parameters="))
    assert size * update.repeats == pytest.approx(experts / copies + others / 8, rel=1e-4)


def test_the_gpus_of_a_group_have_their_distance():
    """Mixtral on 32 GPUs: 2 stages of 8 x 2. Tensor-parallel GPUs are side by side; an expert has both of them, so its
    groups are 2 apart, and 8 GPUs hold all experts once."""
    how = Deployment(phase=ModelPhase.TRAIN, tp=2, dp=8, ep=4, pp=2, zero=1, sequence=128)
    schedule = make_schedule(load_model("mixtral-8x7b"), how)
    steps = [*schedule.handover, *(step for block in schedule.blocks() for step in block.steps)]
    found = {step.name: (step.work.gpus, step.work.stride) for step in steps if isinstance(step.work, Exchange)}
    assert found == {
        **dict.fromkeys(("send", "send_back"), (2, 16)),
        **dict.fromkeys(("gradients", "new_weights"), (8, 2)),
        **dict.fromkeys(("expert_gradients", "new_expert_weights"), (2, 8)),
        **dict.fromkeys(("dispatch", "combine", "combine_back", "dispatch_back"), (4, 2)),
        **{name: (2, 1) for name in found if "reduce" in name},
    }


@pytest.mark.parametrize("model", ["gpt-22b", "llama-3-8b", "deepseek-v3"])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_fused_software_adds_gradients_in_the_gemms_that_make_them(model, micro_batches):
    """In fp32, onto those of earlier micro-batches; only the embedding's gradient is no GEMM. ZeRO 2 and 3 keep a part,
    so they add it by a kernel."""
    how, shape = replace(HOW, optimizer=Optimizer.ADAM, micro_batches=micro_batches, sequence=512), load_model(model)
    found = {block: works for block, works in steps(how, shape).items() if block.endswith("backward")}
    gemms = [(name, work) for works in found.values() for name, work in works.items() if name.endswith("_weight")]
    assert len(gemms) > 4 and all(",out_dtype=fp32,with_c=true," in work for _, work in gemms)
    sums = {block: works["gradient_sum"] for block, works in found.items() if "gradient_sum" in works}
    assert list(sums) == ([] if micro_batches == 1 else ["embedding backward"])
    if sums:
        moved = sum(kernel.moved_bytes[1] for kernel in make_kernels(sums["embedding backward"]))
        assert moved == pytest.approx(4 * shape.embedding_weights, rel=1e-4)
    for zero in (2, 3):
        shared = steps(replace(how, dp=8, zero=zero), shape)
        assert all(
            "with_c" not in work for works in shared.values() for work in works.values() if isinstance(work, str)
        )
        assert ("gradient_sum" in shared["expert backward" if shape.experts else "backward"]) == (micro_batches > 1)
