"""Training steps of MPT against measured throughput."""

import pytest

from validation.against import training
from validation.against.training import CASES, PREDICTIONS, REFERENCE, TABLE, scenario


def test_predictions_are_those_of_the_cases():
    assert list(training.read(PREDICTIONS)) == list(training.read(REFERENCE)) == list(CASES)


def test_the_page_is_up_to_date():
    assert TABLE.read_text(encoding="utf-8") == training.table()


def test_the_model_has_as_many_weights_as_the_measured_one():
    """Column NumParams of the benchmark table, for 2048 tokens."""
    for case in CASES:
        assert scenario(case).model.weights == pytest.approx(12_853_954_560, rel=1e-3)


def test_a_rate_is_tokens_over_the_parts_of_the_step():
    """The parts add up to the step: 4096 tokens on an H100, 12,288 on an A100."""
    for case, row in training.read(PREDICTIONS).items():
        step_ms = sum(float(value) for name, value in row.items() if name.endswith("_ms"))
        assert float(row[training.RATE]) == pytest.approx(case.tokens / step_ms * 1000, rel=2e-3)
