"""Fused attention beside measurements: the cases, their kernels, the page."""

from collections import Counter

import pytest

from sim.gemm_facts import gpu_facts
from tracer.kernels import make_kernels
from validation.against import attention
from validation.against.attention import MACHINES, TABLE, cases, errors, measured
from validation.csv_file import read_csv


def test_every_case_has_a_measurement_and_a_blind_time():
    assert [case.id for case in cases()] == list(measured()) and len(cases()) == 114
    assert all(case.blind_us > 0 and case.today_us > 0 for case in cases())
    assert len({case.id for case in cases()}) == 114


def test_the_page_is_made_of_predictions_and_measurements():
    assert TABLE.read_text(encoding="utf-8") == attention.table()


def test_rates_and_times_of_a_measurement_agree():
    """4 operations for each query, key and element of a head; with causality half, backward 2.5 times as many."""
    for case in cases():
        fields = dict(field.split("=") for field in case.kernel.partition(":")[2].split(","))
        sizes = [int(fields[name]) for name in ("batch", "heads", "seq", "head_dim")]
        queries = int(fields.get("queries", fields["seq"]))
        half = fields["causal"] == "true" and "queries" not in fields
        flop = 4 * queries * sizes[0] * sizes[1] * sizes[2] * sizes[3] / (2 if half else 1)
        flop *= 2.5 if case.direction == "backward" else 1
        found = measured()[case.id]
        assert flop / found.time_us / 1e6 == pytest.approx(found.tera_flop_per_s, rel=2e-3)


def test_software_has_its_version():
    versions = {
        row["software"].split(" ")[1]: {
            kernel.shape.version
            for kernel in make_kernels(case.kernel, gpu_facts(case.preset.machine))
            if hasattr(kernel, "shape")
        }
        for case, row in zip(cases(), read_csv(attention.REFERENCE), strict=True)
        if row["software"].startswith("FlashAttention") and case.gpu not in attention.HOPPER
    }
    assert versions == {"2": {2}, "4": {4}}


def test_machines_and_kinds():
    assert {case.gpu for case in cases()} == set(MACHINES)
    kinds = Counter((case.direction, case.gpu in attention.HOPPER) for case in cases())
    assert sum(kinds.values()) == 114
    for (direction, hopper), number in kinds.items():
        assert len(errors(direction, hopper, "", today=True)) == number
