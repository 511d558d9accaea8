"""Layers of prompts and of generation: kernels that training does not have."""

import pytest

from tracer.kernels import make_kernels
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase, Software
from tracer.models.layer import forward_steps

GENERATE = {"phase": ModelPhase.GENERATE, "kv_length": 4095, "micro_batch": 16}


def layer(model, how):
    """Name -> work of the steps of a layer."""
    return {step.name: step.work for step in forward_steps(load_model(model), how, True)}


@pytest.mark.parametrize(
    ("model", "options", "written"),
    [
        ("llama-3-70b", {"sequence": 128}, "tokens=128,kv_heads=8,head_dim=128"),
        ("llama-3-70b", {"sequence": 128, "tp": 4}, "tokens=128,kv_heads=2,head_dim=128"),
        ("llama-3-70b", {"tp": 16} | GENERATE, "tokens=16,kv_heads=1,head_dim=128"),  # two GPUs keep the same head
        ("deepseek-v3", {"tp": 8} | GENERATE, "tokens=16,kv_heads=1,head_dim=288"),  # twice: 512 + 64 values
    ],
)
@pytest.mark.parametrize("software", Software)
def test_new_keys_and_values_go_into_the_cache(model, options, written, software):
    """As many values as `ModelShape.kv_width`, on one of the GPUs that divide the heads."""
    steps = layer(model, Deployment(software=software, **options))
    assert steps["kv_cache"] == f"kv_cache:{written},dtype=bf16"
    names = [*steps]
    assert names[names.index("kv_cache") - 1] == "rotary"
    assert make_kernels(str(steps["kv_cache"]))


def test_training_and_encoders_have_no_cache():
    assert "kv_cache" not in layer("llama-3-70b", Deployment(phase=ModelPhase.TRAIN, sequence=128))
    assert "kv_cache" not in layer("bert-large", Deployment(sequence=128))
