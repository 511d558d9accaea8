"""A GEMM beside an all-reduce: the cases are those of the files; table and predictions fit together."""

import csv
import re
from statistics import median

import pytest

from validation.against.contention import BLIND, CASES, HERE, PREDICTIONS, TABLE, Case, runs_of

ALONE, BACKEND = "gemm_alone_rotating_buffers_ms", "gemm_backend_and_grid"


def _measured(name):
    with (HERE / "references" / name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["M"] == "8192"]


def _table():
    """Figures of the first table: (size, channels, figure) -> (measured, ours)."""
    lines = re.findall(
        r"^\| (\d+)\^3 \| (\d+) \| ([^|]+) \| ([\d.]*) ?\| ([\d.]+) \| .*\|$", TABLE.read_text("utf-8"), re.M
    )
    return {(int(size), int(channels), what): (measured, float(ours)) for size, channels, what, measured, ours in lines}


def test_the_measured_slow_downs_are_those_of_the_files():
    rows = [row for row in _measured("gemm_beside_allreduce_mi300x.csv") if row["gemm_backend"] == "torch"]
    whole, fewer = CASES
    found = [float(row["gemm_overlapped_ms"]) / float(row[ALONE]) for row in rows]
    assert min(found) - 0.01 <= whole.gemm_slowdown <= max(found)
    found = [float(row["collective_overlapped_ms"]) / float(row["collective_alone_ms"]) for row in rows]
    assert min(found) - 0.01 <= whole.collective_slowdown <= max(found)
    split = _measured("gemm_beside_allreduce_cu_split_mi300x.csv")
    split = [
        row for row in split if row["gemm_backend_and_grid"] == "torch" and int(row["collective_tensor_bytes"]) < 2e8
    ]
    assert median(float(row["gemm_slowdown"]) for row in split) == pytest.approx(fewer.gemm_slowdown, abs=0.005)
    best = median(float(row["overlap_speedup_serial_over_wall"]) for row in split)
    assert best == pytest.approx(fewer.overlap, abs=0.005)


def test_the_gemm_has_the_cus_that_the_channels_leave():
    gemm, alone, beside = runs_of(Case(4096, 56))
    assert beside.choice.channels == alone.choice.channels == beside.preset.machine.collective.cus == 56
    assert alone.data_bytes == beside.data_bytes == beside.source.problem.output_bytes
    assert gemm.preset.machine.cu == beside.preset.machine.cu


def test_the_table_has_what_was_simulated_and_names_the_rest():
    text, found = TABLE.read_text(encoding="utf-8"), _table()
    for case in (*CASES, *BLIND):
        inside = (case.m, case.channels, "GEMM, at once over alone") in found
        assert inside != (f"{case.m}^3 with {case.channels} channels" in text)
    for case in CASES:
        measured, ours = found.get((case.m, case.channels, "GEMM, at once over alone"), ("", 0))
        if measured:
            assert float(measured) == case.gemm_slowdown and ours == pytest.approx(case.gemm_slowdown, rel=0.10)


def test_the_blind_answers_are_those_of_the_table():
    with PREDICTIONS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        key = (int(row["m"]), int(row["channels"]), "GEMM, at once over alone")
        assert Case(*key[:2]) in BLIND and row["kind"] == "blind"
        assert float(row["gemm_beside_ms"]) / float(row["gemm_ms"]) == pytest.approx(_table()[key][1], abs=0.02)
