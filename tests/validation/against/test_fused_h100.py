"""Fused GEMMs on 8 H100: the cases, what is extrapolated, the page, and a case that is simulated again in small."""

import pytest

from sim.run.gpus_run import CollectiveRun, FusedRun
from sim.run.software import SoftwareRun
from validation.against import fused_h100
from validation.against.fused_h100 import (
    FLUX,
    FLUX_GATHER,
    STORE_ADD,
    TABLE,
    Case,
    cases,
    errors,
    pairs,
    runs_of,
    sizes_of,
)


def test_every_case_is_predicted_and_every_measured_one_is_a_case():
    assert list(fused_h100.read(fused_h100.PREDICTIONS)) == cases()
    assert set(pairs()) <= set(cases()) and len(pairs()) == 37


def test_the_page_is_made_of_predictions_and_measurements():
    assert TABLE.read_text(encoding="utf-8") == fused_h100.table()


def test_long_cases_are_extrapolated_from_the_two_largest_halves_with_few_steps():
    assert sizes_of(Case(FLUX, 4096, 8192, 3584)) == (4096,)
    assert sizes_of(Case(STORE_ADD, 32768, 32768, 512)) == (4096, 8192)
    for case in cases():
        assert all(case._replace(m=m).steps <= fused_h100.STEPS_MAX for m in sizes_of(case))


def test_runs_of_a_case():
    alone, sends, adds = runs_of(Case(FLUX, 1024, 1024, 256))
    assert isinstance(sends, SoftwareRun) and sends.kind == "flux"
    assert isinstance(adds, CollectiveRun) and adds.kind == "local_reduce" and alone.preset.name == "h100_sxm"
    assert isinstance(list(runs_of(Case(STORE_ADD, 1024, 1024, 256)))[1], FusedRun)
    assert next(iter(list(runs_of(Case(FLUX_GATHER, 1024, 1024, 256)))[1:])).kind == FLUX_GATHER


def test_libraries_one_after_the_other_are_met_within_a_tenth_in_the_mean():
    found = errors("apart_us")
    assert len(found) == 26 and sum(map(abs, found)) / 26 < 0.10
    assert errors("fused_us", ("Triton-distributed",)) == pytest.approx([-0.0144, -0.0363], abs=1e-3)
