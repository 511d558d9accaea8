"""Training steps against measured throughput."""

import pytest

from validation.against import training
from validation.against.training import CASES, PREDICTIONS, REFERENCE, TABLE, scenario


def test_predictions_are_those_of_the_cases():
    assert list(training.read(PREDICTIONS)) == list(training.read(REFERENCE)) == list(CASES)


def test_the_page_is_up_to_date():
    assert TABLE.read_text(encoding="utf-8") == training.table()


WEIGHTS = {
    "mpt-7b": 6_658_859_008, "mpt-13b": 12_853_954_560, "gpt2-1.5b": 1_557_686_400, "llama-2-13b": 13_015_864_320,
    "llama-3-8b": 8_030_261_248, "llama-3-70b": 70_553_706_496, "gpt-175b": 174_600_000_000,
    "llama-2-7b": 6_738_415_616,
}  # fmt: skip
"""Stated with the rows (llm-foundry: NumParams, for 2048 tokens; nanoGPT-amd: N of its FLOPs) or by Meta; of Llama 2
13B and GPT-3 counted from the shape. Ours lack biases and norms."""


def test_models_have_as_many_weights_as_the_measured_ones():
    assert {case.model for case in CASES} == {*WEIGHTS}
    for case in CASES:
        assert scenario(case).model.weights == pytest.approx(WEIGHTS[case.model], rel=1e-3)


def test_a_rate_is_tokens_over_the_parts_of_the_step():
    """The parts add up to what was measured: by one author without the optimizer."""
    for case, row in training.read(PREDICTIONS).items():
        parts = {name.removesuffix("_ms"): float(value) for name, value in row.items() if name.endswith("_ms")}
        step_ms = sum(parts.values()) - (0 if case.optimizer else parts["optimizer"])
        assert (case.optimizer == 0) == (case.model == "gpt2-1.5b" or case.machine == "mi300x")
        assert float(row[training.RATE]) == pytest.approx(case.tokens / step_ms * 1000, rel=2e-3)
