"""GEMM times against measurements: the drawn rows, the overhead, the table, and the claims that go with them."""

import re

import pytest

from tracer.gemm.library import choose_kernel
from validation.against import gemm_library
from validation.against.gemm_library import (
    DATA_SETS,
    GOALS,
    OVERHEAD,
    PREDICTION,
    TABLE,
    machine,
    measured,
    overhead_us,
    predicted_us,
    run_of,
    sample,
    source_of,
    sum_us,
)
from validation.experiments.gemm_time import GemmTime
from validation.experiments.load import load_experiments

ROWS = [row for data in DATA_SETS for row in sample(data)]
PREDICTIONS = [row for row in ROWS if row.kind == PREDICTION]


def test_the_sample_is_large_and_covers_both_classes_on_three_machines():
    assert len(PREDICTIONS) >= 60 and len({row.data.preset for row in PREDICTIONS}) >= 3
    for group in GOALS:
        presets = {data.preset for data in DATA_SETS if not data.name.endswith("-mamf")}  # which has large GEMMs only
        assert {row.data.preset for row in PREDICTIONS if row.group == group} >= presets
    assert len({(row.data.name, row.shape) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("data", DATA_SETS, ids=lambda data: data.name)
def test_rows_are_drawn_by_m_and_the_overhead_rows_are_the_smallest(data):
    drawn = [row for row in sample(data) if row.kind == PREDICTION]
    overhead = [row for row in sample(data) if row.kind == OVERHEAD]
    assert len(overhead) == data.overhead_rows
    assert all(row.n * row.k <= other.n * other.k for row in overhead for other in drawn if other.m == row.m)
    for m in {row.m for row in measured(data)}:
        assert 1 <= sum(row.m == m for row in drawn) <= data.per_m
    assert all(2 * row.m * row.n * row.k <= data.operations_max for row in drawn)


def test_the_kernel_of_a_row_is_the_choice_of_the_library():
    row = sample(DATA_SETS[0])[-1]
    gpu = gemm_library.gpu_facts(machine(row.data).machine)
    assert source_of(row).kernel == choose_kernel(source_of(row).problem, gpu)


def test_a_row_begins_with_its_l2():
    """Warm: the kernel runs twice, and the second run counts."""
    rows = {row.l2: row for row in ROWS if row.data.name.startswith("b200-")}
    assert {*rows} == {"empty", "dirty", "warm"}
    assert {l2: len(list(run_of(row).source.commands())) for l2, row in rows.items()} == {
        "empty": 1,
        "dirty": 2,
        "warm": 2,
    }


def test_the_overhead_is_counted_for_every_kernel(monkeypatch):
    data = DATA_SETS[0]
    monkeypatch.setattr(gemm_library, "kernels", lambda row: 2 if row.m == 64 else 1)
    monkeypatch.setattr(gemm_library, "sum_us", lambda row: 0.0)
    kernels_us = {row: row.time_us - 3.0 for row in sample(data)}
    assert overhead_us(data, kernels_us) == pytest.approx(3.0)
    ours = predicted_us(data, kernels_us)
    assert {round(time - row.time_us, 6) for row, time in ours.items()} == {0.0, 3.0}
    assert all(time > row.time_us for row, time in ours.items() if row.m == 64)
    stated = [data for data in DATA_SETS if data.overhead_us]
    assert stated and all(overhead_us(data, {}) == data.overhead_us for data in stated)


def test_shares_of_split_k_are_read_at_the_bandwidth_of_l2():
    split = next(row for row in ROWS if source_of(row).kernel.split_k > 1)
    shares_bytes = 4 * split.m * split.n * source_of(split).kernel.split_k
    assert sum_us(split) == pytest.approx(1e6 * shares_bytes / machine(split.data).peaks().l2_bytes_per_s)
    assert sum_us(next(row for row in ROWS if source_of(row).kernel.split_k == 1)) == 0


def test_the_table_has_every_row_and_judges_both_classes():
    text = gemm_library.table({row: row.time_us * (1.2 if row.m < 512 else 1.0) for row in ROWS})
    assert all(f"| {row.data.name} | {row.m} x {row.n} x {row.k}" in text for row in ROWS)
    assert text.count(", fp8 |") == sum(row.dtype == "fp8" for row in ROWS) > 0
    assert "goal 8% reached" in text and "goal 15% missed" in text


def test_claims_are_the_rows():
    experiments = {name: one for name, one in load_experiments().items() if isinstance(one, GemmTime)}
    claims = {claim.id: claim for name, one in experiments.items() for claim in one.claims(name)}
    for row in ROWS:
        claim = claims.pop(f"gemm-time-{row.data.name}-{row.m}x{row.n}x{row.k}")
        assert claim.published == row.time_us and (claim.kind == "prediction") == (row.kind == PREDICTION)
        assert experiments[claim.experiment].preset == row.data.preset and claim.source == row.source
        assert bool(claim.group) == (row.kind == PREDICTION and not row.data.apart)
    assert not claims


def test_the_committed_table_is_of_these_rows():
    found = re.findall(r"^\| ([\w-]+) \| (\d+) x (\d+) x (\d+) \|", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [(row.data.name, *row.shape) for row in ROWS]
    assert len(found) >= 40 and all((name, *map(int, shape)) in listed for name, *shape in found)
