"""Kernels that software runs over weights and gradients: copies of what ZeRO shares out, and casts."""

from dataclasses import replace

import pytest

from tracer.data_type import DataType
from tracer.kernels import make_kernels
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Software
from tracer.models.memory import local_weights, memory_need
from tracer.models.schedule import Exchange
from tracer.models.whole import make_schedule

TRAIN = Deployment(phase=ModelPhase.TRAIN, sequence=128)
LAYER_WEIGHTS = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336
"""Of Llama-3-8B."""
FSDP = {
    Software.EAGER: {"weights_copy": [(2, 2)], "gradient_copy": [(2, 4)]},
    Software.EAGER_2023: {"gradient_copy_0": [(2, 2)], "gradient_copy_1": [(2, 4)], "gradient_copy_2": [(4, 4)]},
}
FSDP[Software.COMPILE] = FSDP[Software.EAGER]
"""Bytes read and written for each weight, in bf16."""
GATHERS = ("embedding", "layer", "output", "output backward", "backward")


def copies(how, name, model="llama-3-8b"):
    """Step of a block that copies weights or gradients -> its kernels."""
    blocks = make_schedule(load_model(model), how).blocks()
    (steps,) = (block.steps for block in blocks if block.name == name)
    return {step.name: make_kernels(step.work) for step in steps if step.name.startswith(("weights_", "gradient_"))}


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("software", Software)
def test_fsdp_copies_whole_weights_and_gradients(software, zero):
    found = copies(replace(TRAIN, dp=8, zero=zero, software=software), "backward")
    moved = {
        name: [tuple(size / LAYER_WEIGHTS for size in kernel.moved_bytes) for kernel in kernels]
        for name, kernels in found.items()
        if name not in ("gradient_sum", "gradient_cast")
    }
    ddp = {"gradient_copy": [(4, 4)]} if software in FSDP else {}
    expected = FSDP.get(software, {}) if zero >= 2 else ddp
    assert moved == {name: sizes for name, sizes in expected.items() if zero == 3 or name != "weights_copy"}


@pytest.mark.parametrize(
    ("software", "dp", "zero", "copied"),
    [("eager", 8, 0, True), ("eager", 8, 1, True), ("eager", 1, 0, False), ("fused", 8, 0, False)],
)
def test_ddp_copies_gradients_to_its_buckets_and_back(software, dp, zero, copied):
    """Once an iteration: before the exchanges of the last micro-batch, and all of them before the optimizer. With ZeRO
    nothing comes back."""
    how = replace(TRAIN, dp=dp, zero=zero, micro_batches=2, software=Software(software))
    schedule = make_schedule(load_model("llama-3-8b"), how)
    copies = [
        (block.repeats, step) for block in schedule.backward for step in block.steps if step.name == "gradient_copy"
    ]
    back = [(block.repeats, step) for block in schedule.finish for step in block.steps if "copy_back" in step.name]
    assert (bool(copies), bool(back)) == (copied, copied and zero == 0)
    if copied:
        assert all(step.once for _, step in copies)
        assert (schedule.finish[0].name == "gradients back") == (zero == 0)
        for steps in (copies, *([back] if back else [])):
            moved = [repeats * make_kernels(step.work)[0].moved_bytes[0] for repeats, step in steps]
            assert sum(moved) == pytest.approx(4 * local_weights(load_model("llama-3-8b"), how).total, rel=1e-5)


@pytest.mark.parametrize(
    ("software", "zero", "each"), [("eager", 1, 4), ("eager", 2, 2), ("eager-2019", 1, 2), ("fused", 1, 2)]
)
def test_new_weights_are_gathered_in_the_type_that_all_gpus_keep(software, zero, each):
    """Autocast keeps fp32; FSDP gathers casts in bf16, the others copies of 16 bits."""
    how = replace(TRAIN, dp=8, zero=zero, software=Software(software))
    (gather,) = (
        block.steps[0] for block in make_schedule(load_model("llama-3-8b"), how).finish if block.name == "new weights"
    )
    assert gather.work.bytes == each * local_weights(load_model("llama-3-8b"), how).total


def test_weights_are_copied_each_time_they_are_gathered():
    """Stage 3: before the first kernel of each block, behind its gather in the embedding. Stage 2: once, all."""
    how = replace(TRAIN, dp=8, zero=3, software=Software.EAGER)
    for block in make_schedule(load_model("llama-3-8b"), how).blocks():
        names = [step.name for step in block.steps]
        gathers = [step for step in block.steps if getattr(step.work, "kind", "") == "all_gather"]
        assert len(gathers) == names.count("weights_copy") == (block.name in GATHERS)
        if gathers:
            assert names.index("weights_copy") == (block.name == "embedding")
    _, gather, copy = make_schedule(load_model("llama-3-8b"), replace(how, zero=2)).finish
    (kernel,) = make_kernels(copy.steps[0].work)
    assert copy.repeats * kernel.moved_bytes[0] == pytest.approx(gather.steps[0].work.bytes, rel=1e-5)


OUTPUT_WEIGHTS = 128_256 * 4096
CASTS = {
    "layer": ("weights_cast", LAYER_WEIGHTS, (4, 2)),
    "output": ("weights_cast", OUTPUT_WEIGHTS, (4, 2)),
    "output backward": ("gradient_cast", OUTPUT_WEIGHTS, (2, 4)),
    "backward": ("gradient_cast", LAYER_WEIGHTS, (2, 4)),
}
"""Block -> step, weights, bytes read and written for each."""


@pytest.mark.parametrize(
    ("software", "options", "casts"),
    [
        ("eager", {}, True),
        ("eager-2023", {"dp": 8, "zero": 1}, True),
        ("eager", {"dp": 8, "zero": 2}, False),  # FSDP casts what it gathers
        ("eager", {"zero": 3}, True),  # of one GPU
        ("eager", {"dtype": DataType.FP32}, False),
        ("eager-2019", {}, False),
        ("fused", {}, False),
    ],
)
def test_autocast_casts_weights_forward_and_gradients_back(software, options, casts):
    """Once in each pass, but not the embedding."""
    schedule = make_schedule(load_model("llama-3-8b"), replace(TRAIN, software=Software(software), **options))
    found = {}
    for block in schedule.blocks():
        for step in block.steps:
            if step.name.endswith("_cast"):
                (kernel,) = make_kernels(step.work)
                found[block.name] = (step.name, kernel.moved_bytes)
    expected = {
        block: (name, tuple(size * weights for size in sizes)) for block, (name, weights, sizes) in CASTS.items()
    }
    assert {block: (name, tuple(moved)) for block, (name, moved) in found.items()} == (expected if casts else {})
    if casts:
        layer = next(block for block in schedule.forward if block.name == "layer")
        assert layer.steps[0].name == "weights_cast"


@pytest.mark.parametrize("dp", [1, 8])
def test_what_layers_hand_on_is_in_fp32_with_autocast(dp):
    """GPT-22B: norms and residuals read and write fp32, casts lie between them and the products. FSDP: all in bf16."""
    model, how = load_model("gpt-22b"), replace(TRAIN, software=Software.EAGER, dp=dp, zero=3, pp=2, micro_batches=2)
    blocks = {block.name: block.steps for block in make_schedule(model, how).blocks()}
    found = {f"{name} {step.name}": _types(step.work) for name, steps in blocks.items() for step in steps
             if isinstance(step.work, str) and f"cols={model.hidden}," in step.work}  # fmt: skip
    (row,) = (step.work for step in blocks["embedding"] if step.name == "embedding")
    assert _types(row) == (["fp32"] if dp == 1 else ["bf16"])
    plain, wide, down, up = ["bf16"], ["fp32"], ["fp32", "bf16"], ["bf16", "fp32"]
    autocast = {
        "layer attention_norm_0": wide,
        "layer attention_norm_1": down,
        "layer attention_residual_norm_0": wide,
        "layer attention_residual_norm_1": wide,
        "layer attention_residual_norm_2": down,
        "layer mlp_residual": wide,
        "output last_norm_0": wide,
        "output last_norm_1": down,
        "output backward last_norm_back_0": up,
        "output backward last_norm_back_1": wide,
        "backward mlp_residual_back_0": down,
        "backward mlp_residual_back_2": wide,
        "backward attention_residual_norm_back_0": up,
        "backward attention_residual_norm_back_1": wide,
        "backward attention_residual_norm_back_2": down,
        "backward attention_residual_norm_back_4": wide,
        "backward attention_norm_back_0": up,
        "backward attention_norm_back_1": wide,
    }
    if dp == 1:
        assert {name: found.get(name) for name in autocast} == autocast
    else:
        assert all(kinds == plain for name, kinds in found.items() if "norm" in name or "residual" in name)
    sent = {step.work.bytes for step in make_schedule(model, how).handover}
    assert sent == {128 * model.hidden * (4 if dp == 1 else 2)}
    layers = [memory_need(model.with_layers(n), replace(how, pp=1, micro_batches=1)).activations for n in (1, 2)]
    assert layers[1] - layers[0] == 128 * model.hidden * (36 if dp == 1 else 32)  # inputs of two norms


@pytest.mark.parametrize("software", [Software.EAGER, Software.EAGER_2019])
@pytest.mark.parametrize("dropout", [True, False])
def test_softmax_and_its_dropout_are_in_fp32_with_autocast(software, dropout):
    """Of separate scores, which are cast before and behind it; GPT-22B keeps them and their casts for the backward
    pass (two tensors of 16 bits with a dropout, one without, if nothing is cast), and a mask."""
    autocast, model = software == Software.EAGER, load_model("gpt-22b")
    how = replace(TRAIN, software=software, flash=False, dropout=dropout, dtype=DataType.FP16)
    found = {
        step.name: _types(step.work)
        for block in make_schedule(model, how).blocks()
        for step in block.steps
        if block.name in ("layer", "backward") and ("softmax" in step.name or "attention_dr" in step.name or
                                                    "scores_cast" in step.name)
    }  # fmt: skip
    wide = ["fp32"] if autocast else ["fp16"]
    casts = {
        "scores_cast": ["fp16", "fp32"], "softmax_cast": ["fp32", "fp16"],
        "softmax_cast_back": ["fp16", "fp32"], "scores_cast_back": ["fp32", "fp16"],
    }  # fmt: skip
    dropouts = {"attention_dropout": wide, "attention_dropout_back": wide} if dropout else {}
    softmax = {"softmax": wide, "softmax_back_product": wide, "softmax_back": wide}
    assert found == softmax | dropouts | (casts if autocast else {})
    flash, apart = (
        [memory_need(model.with_layers(n), replace(how, flash=fused)).activations for n in (1, 2)]
        for fused in (True, False)
    )
    each = 4 + 2 if autocast else 2 * 2 if dropout else 2
    assert (apart[1] - apart[0]) - (flash[1] - flash[0]) == 64 * 128 * 128 * (each + dropout)


def test_experts_are_cast_too():
    found = copies(replace(TRAIN, software=Software.EAGER), "expert layer", "mixtral-8x7b")
    (cast,) = found["weights_cast"]
    assert cast.moved_bytes[1] == 2 * (4096 * (2 * 4096 + 2 * 1024 + 8) + 8 * 3 * 4096 * 14336)


@pytest.mark.parametrize(
    ("software", "dtype", "kernels"),
    [
        ("eager", "bf16", [["copy", "bf16", "fp32"], ["cross_entropy", "fp32"]]),
        ("eager", "fp32", [["cross_entropy", "fp32"]]),
        ("eager-2019", "fp16", [["cross_entropy", "fp16"]]),
        ("fused", "bf16", [["cross_entropy", "bf16"]]),
    ],
)
def test_the_loss_of_autocast_is_in_fp32(software, dtype, kernels):
    """From a cast of the logits; their gradient is cast back."""
    how = replace(TRAIN, software=Software(software), dtype=DataType(dtype))
    for name, steps in (("output", "loss"), ("output backward", "loss_back")):
        (block,) = (one for one in make_schedule(load_model("llama-3-8b"), how).blocks() if one.name == name)
        works = [str(step.work) for step in block.steps if step.name.startswith(steps) and "reduce" not in step.name]
        found = [[work.partition(":")[0], *_types(work)] for work in works]
        back = [["cross_entropy", "fp32"], ["copy", "fp32", "bf16"]]
        assert found == (back if name != "output" and len(kernels) == 2 else kernels)
        assert all(make_kernels(work) for work in works)


def _types(work):
    """Type of what a kernel reads, and that of what it writes if it is another."""
    fields = dict(field.split("=") for field in work.partition(":")[2].split(","))
    return [fields["dtype"], *([fields["out"]] if "out" in fields else [])]


def test_gradients_of_fp32_are_not_cast():
    how = replace(TRAIN, dp=8, zero=3, software=Software.EAGER_2023, dtype=DataType.FP32)
    assert [*copies(how, "backward")] == ["gradient_copy_0", "gradient_copy_1"]


@pytest.mark.parametrize(("zero", "share"), [(0, 1), (1, 1), (2, 8), (3, 8)])
def test_only_what_a_gpu_keeps_is_added_to_earlier_gradients(zero, share):
    """Two reads and a write of fp32."""
    how = replace(TRAIN, dp=8, zero=zero, micro_batches=4, software=Software.MEGATRON)
    ((kernel,),) = copies(how, "backward").values()
    assert sum(kernel.moved_bytes) == 3 * 4 * LAYER_WEIGHTS // share


def test_experts_are_shared_out_among_their_copies():
    """A layer of Mixtral with the experts on eight GPUs: no other GPU has them, so only the rest is shared out, and all
    gradients of the experts are added."""
    how = replace(TRAIN, dp=8, ep=8, zero=3, micro_batches=2, software=Software.EAGER)
    found = copies(how, "expert backward", "mixtral-8x7b")
    others, experts = 4096 * (2 * 4096 + 2 * 1024 + 8), 3 * 4096 * 14336
    (copy,), (total,) = found["weights_copy"], found["gradient_sum"]
    assert copy.moved_bytes[0] == 2 * others
    assert sum(total.moved_bytes) == 12 * (others // 8 + experts)


@pytest.mark.parametrize("sequence", [511, 514])
def test_rows_of_any_length_have_a_loop(sequence):
    """PyTorch before 2.7 takes four elements of a lane; here as many as divide a row."""
    how = replace(TRAIN, sequence=sequence, flash=False, software=Software.EAGER_2023)
    (layer,) = (block for block in make_schedule(load_model("gpt-22b"), how).forward if block.name == "layer")
    works = {step.name: step.work for step in layer.steps}
    assert f"cols={sequence},vector={2 if sequence % 2 == 0 else 1}," in works["scale"]
    assert all(make_kernels(work) for work in works.values() if isinstance(work, str))


@pytest.mark.parametrize(("zero", "micro_batches"), [(1, 2), (3, 2), (3, 1)])
def test_replicas_share_out_all_weights_each_and_add_the_parts(zero, micro_batches):
    """HSDP on 4 groups of 8 GPUs: of each layer a reduce-scatter in the group, then an all-reduce of an eighth with the
    GPUs that keep the same part, 8 apart."""
    model, how = load_model("llama-3-8b"), replace(TRAIN, dp=32, zero=zero, micro_batches=micro_batches)
    schedule = make_schedule(model, replace(how, replicas=4))
    (block,) = (each for each in schedule.backward if each.name == "backward")
    found = {step.name: step for step in block.steps}
    kept, summed = found["gradients"], found["gradients_of_replicas"]
    assert (kept.work.kind, kept.work.bytes, kept.work.gpus) == ("reduce_scatter", 4 * LAYER_WEIGHTS, 8)
    assert summed.work == Exchange("all_reduce", 4 * LAYER_WEIGHTS // 8, 4, 8)
    assert summed.after == ("gradients",) and summed.once == kept.once == (zero < 3)
    assert {"gradients", "gradients_of_replicas"} <= block.leaves
    gathers = [step.work for each in schedule.blocks() for step in each.steps if "weights" in step.name]
    assert {(work.gpus, work.stride) for work in gathers if isinstance(work, Exchange)} == {(8, 1)}
    one, eight = memory_need(model, replace(how, dp=8)), memory_need(model, replace(how, replicas=4))
    assert one == eight


def test_replicas_of_experts_add_the_parts_of_their_copies():
    """Mixtral on 16 GPUs, 4 groups with its experts: two replicas of two groups; with four nothing of an expert is left
    to be shared out."""
    how = replace(TRAIN, dp=16, ep=4, zero=3)
    for replicas, scattered in ((2, (2, 4)), (4, None)):
        blocks = make_schedule(load_model("mixtral-8x7b"), replace(how, replicas=replicas)).backward
        (block,) = (each for each in blocks if each.name == "expert backward")
        found = {step.name: step.work for step in block.steps if isinstance(step.work, Exchange)}
        experts = 2 * 3 * 4096 * 14336 * 4
        summed = found["expert_gradients_of_replicas"]
        assert summed == Exchange("all_reduce", experts * replicas // 4, replicas, 16 // replicas)
        shared = found.get("expert_gradients")
        assert (shared and (shared.gpus, shared.stride)) == scattered
    need = memory_need(load_model("mixtral-8x7b"), replace(how, replicas=4))
    weights = local_weights(load_model("mixtral-8x7b"), how)
    assert need.optimizer == 12 * (-(-weights.others // 4) + weights.experts)
