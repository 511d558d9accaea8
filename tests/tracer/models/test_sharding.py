"""Kernels that software runs over weights and gradients which ZeRO shares out."""

from dataclasses import replace

import pytest

from tracer.data_type import DataType
from tracer.kernels import make_kernels
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Software
from tracer.models.whole import make_schedule

TRAIN = Deployment(phase=ModelPhase.TRAIN, sequence=128)
LAYER_WEIGHTS = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336
"""Of Llama-3-8B."""
FSDP = {
    Software.EAGER: {"weights_copy": [(2, 2)], "gradient_copy": [(2, 4)]},
    Software.EAGER_2023: {"gradient_copy_0": [(2, 2)], "gradient_copy_1": [(2, 4)], "gradient_copy_2": [(4, 4)]},
}
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
        if name != "gradient_sum"
    }
    expected = FSDP.get(software, {}) if zero >= 2 else {}
    assert moved == {name: sizes for name, sizes in expected.items() if zero == 3 or name != "weights_copy"}


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


def test_gradients_of_fp32_are_not_cast():
    how = replace(TRAIN, dp=8, zero=3, software=Software.EAGER_2023, dtype=DataType.FP32)
    assert [*copies(how, "backward")] == ["gradient_copy_0", "gradient_copy_1"]


@pytest.mark.parametrize(("zero", "share"), [(0, 1), (1, 1), (2, 8), (3, 8)])
def test_only_what_a_gpu_keeps_is_added_to_earlier_gradients(zero, share):
    """Two reads and a write of fp32."""
    ((kernel,),) = copies(replace(TRAIN, dp=8, zero=zero, micro_batches=4), "backward").values()
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
