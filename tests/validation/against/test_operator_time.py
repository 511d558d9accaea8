"""Operator times against measurements: the rows, the overheads, the table, and the claims that go with them."""

import pytest

from validation.against import operator_predictions, operator_time
from validation.against.operator_time import CALIBRATION, Outcome, Row, kernels_of, measured, overheads_us, predicted_us
from validation.csv_file import read_csv
from validation.experiments.load import load_experiments
from validation.experiments.operator_time import OperatorTime

LONG = Row("a/1", "v100", "a", "adam", "adam:parameters=8", "empty", 100.0, "prediction", "somewhere")
BASE = LONG._replace(case="a/0", time_us=12.0, kind=CALIBRATION)


def test_every_row_names_kernels_that_its_machine_can_run():
    for row in measured():
        assert kernels_of(row), row.case
        assert row.l2 in ("empty", "dirty", "warm") and row.time_us > 0 and row.source


def test_every_stack_has_a_calibration_row_and_cases_are_unique():
    rows = measured()
    assert {row.stack for row in rows} == {row.stack for row in rows if row.kind == CALIBRATION}
    assert len({row.case for row in rows}) == len(rows)


def test_the_overhead_of_a_stack_comes_from_its_first_calibration_row_only():
    outcomes = [Outcome(LONG, 80.0, "dram"), Outcome(BASE, 2.0, "launch")]
    assert overheads_us(outcomes) == {"a": 10.0}
    assert predicted_us(outcomes) == {"a/1": 90.0, "a/0": 12.0}


def test_only_long_predictions_count():
    assert LONG.counts and not BASE.counts and not LONG._replace(time_us=9.0).counts
    attention = LONG._replace(operator="attention")
    assert attention.counts and not attention._replace(time_us=49.0).counts


def test_the_table_has_every_row_and_the_means():
    attention = LONG._replace(case="b/1", stack="b", operator="attention")
    outcomes = [
        *(Outcome(LONG, 80.0, "dram"), Outcome(BASE, 2.0, "launch"), Outcome(attention, 90.0, "tensor")),
        Outcome(attention._replace(case="b/0", kind=CALIBRATION), 90.0, "tensor"),
    ]
    text = operator_time.table(outcomes)
    assert "-10.0 %" in text and "memory" in text and "<= 12%" in text and "missed" not in text
    assert text.count("a/1") == text.count("b/1") == 1


def test_claims_are_the_rows():
    experiments = {name: one for name, one in load_experiments().items() if isinstance(one, OperatorTime)}
    claims = {claim.answer: claim for name, one in experiments.items() for claim in one.claims(name)}
    for row in measured():
        claim = claims.pop(f"{row.case}/us")
        assert claim.published == row.time_us and claim.kind == row.kind
        assert (claim.tolerance is not None) == row.counts and experiments[claim.experiment].preset == row.preset
    assert not claims


@pytest.mark.parametrize("machine", operator_predictions.MACHINES)
@pytest.mark.parametrize("of", operator_predictions.LISTS)
def test_predictions_are_of_the_listed_shapes(of, machine):
    listed = [(row["model"], row["kernel"]) for row in operator_predictions.shapes(of)]
    rows = read_csv(operator_predictions.PREDICTIONS / f"{of}s_{machine}.csv")
    assert rows and all((row["model"], row["kernel"]) in listed and float(row["time_ns"]) > 0 for row in rows)
    assert {row["kind"] for row in rows} == {operator_predictions.KIND}
