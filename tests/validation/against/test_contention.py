"""A GEMM beside an all-reduce: the cases are those of the files; table and predictions fit together."""

import re
from statistics import median

import pytest

from sim.presets import load_preset
from validation.against.contention import (
    BLIND,
    CASES,
    HERE,
    PREDICTIONS,
    TABLE,
    WAIT_PS,
    WAYS,
    Case,
    measured_alone,
    runs_of,
)
from validation.csv_file import read_csv

ALONE, BACKEND = "gemm_alone_rotating_buffers_ms", "gemm_backend_and_grid"


def _measured(name, m=8192):
    return [row for row in read_csv(HERE / "references" / name) if row["M"] == f"{m}"]


def _table():
    """Figures of the first table: (size, channels, way, figure) -> (measured, ours)."""
    cells = r"^\| (\d+)\^3 \| (\d+) \| ([^|]+) \| ([^|]+) \| ([\d.]*) ?\| ([\d.]+) \| .*\|$"
    lines = re.findall(cells, TABLE.read_text("utf-8"), re.M)
    return {
        (int(size), int(channels), way, what): (theirs, float(ours))
        for size, channels, way, what, theirs, ours in lines
    }


def test_the_measured_slow_downs_are_those_of_the_files():
    rows = [row for row in _measured("gemm_beside_allreduce_mi300x.csv") if row["gemm_backend"] == "torch"]
    whole, fewer, larger = CASES
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
    rows = [
        row
        for row in _measured("gemm_beside_allreduce_mi300x.csv", larger.m)
        if row["gemm_backend"] == "torch" and row["nccl_max_nchannels"] == "unset"
    ]
    names = ("gemm_slowdown_vs_rotating", "collective_slowdown", "overlap_speedup_serial_over_wall")
    for name, value in zip(names, larger[2:], strict=True):
        assert median(float(row[name]) for row in rows) == pytest.approx(value, abs=0.005)


@pytest.mark.parametrize("way", WAYS)
def test_the_runs_of_a_case_are_of_one_gemm_and_one_all_reduce(way):
    gemm, alone, beside = runs_of(Case(4096, 56), way)
    assert beside.choice.channels == alone.choice.channels == beside.preset.machine.collective.cus == 56
    assert alone.data_bytes == beside.data_bytes == beside.source.problem.output_bytes
    assert gemm.preset.machine.cu == beside.preset.machine.cu


def test_the_all_reduce_comes_first_if_the_gemm_waits_as_in_the_measured_program():
    clock = load_preset("mi300x").machine.cu.clock_MHz
    assert pytest.approx(100_000 * 1e6 / clock, rel=0.01) == WAIT_PS
    for way, first in (("shared, GEMM first", False), ("shared, all-reduce first", True)):
        *_, beside = runs_of(Case(4096, 56), way)
        queues = beside.kernels(beside.plans()[0])
        assert [launch.comm for launch in queues] == [first, not first]
        assert [launch.keeps for launch in queues if launch.comm] == [56]


def test_a_channel_does_not_fit_beside_a_tile():
    """Each wavefront has 16 bytes for each lane and each of four accesses, and 16 more."""
    *_, beside = runs_of(Case(4096, 56), "shared, GEMM first")
    tiles, channels = (
        launch.source.info for launch in sorted(beside.kernels(beside.plans()[0]), key=lambda one: one.comm)
    )
    assert (channels.warps_per_workgroup, channels.shared_bytes) == (4, 4 * (4 * 64 * 16 + 16))
    assert tiles.shared_bytes < beside.preset.machine.cu.shared_bytes < tiles.shared_bytes + channels.shared_bytes


def test_the_table_has_what_was_simulated_and_names_the_rest():
    text, found = TABLE.read_text(encoding="utf-8"), _table()
    for case in (*CASES, *BLIND):
        for way in WAYS:
            inside = (case.m, case.channels, way, "GEMM, at once over alone") in found
            assert inside != (f"{case.m}^3 with {case.channels} channels ({way})" in text)
    for case in CASES:
        for way in WAYS:
            measured, ours = found[case.m, case.channels, way, "GEMM, at once over alone"]
            assert float(measured) == case.gemm_slowdown and ours == pytest.approx(case.gemm_slowdown, rel=0.10)


def test_an_all_reduce_alone_takes_the_measured_time_and_moves_the_measured_bytes():
    cells = r"^\| ([\d,]+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| .* % \| ([\d.]+) \| ([\d.]+) \|$"
    rows = [
        (int(size.replace(",", "")), int(channels), *map(float, rest))
        for size, channels, *rest in re.findall(cells, TABLE.read_text("utf-8"), re.M)
    ]
    assert [row[:3] for row in rows] == [
        (*each[:2], pytest.approx(each.measured_ms, abs=5e-4)) for each in measured_alone()
    ]
    assert len(rows) == 5
    for _, channels, measured, ours, read, written in rows:
        assert ours == pytest.approx(measured, rel=0.05 if channels == 56 else 0.12) and read == written == 2.75


def test_an_all_reduce_behind_a_gemm_waits_for_its_first_tiles():
    """Called first it is slowed down by memory alone."""
    found, figure = _table(), "all-reduce, at once over alone"
    for m, channels, *_ in CASES:
        behind, before = (found[m, channels, f"shared, {first} first", figure][1] for first in ("GEMM", "all-reduce"))
        assert 1.3 < behind < 1.7 and 1 <= before < 1.1


def test_the_blind_answers_are_those_of_the_table():
    rows = read_csv(PREDICTIONS)
    latest = {(int(row["m"]), int(row["channels"]), row["cus"]): row for row in rows}
    with_measurement = {case.m for case in CASES}
    shown, text = {key[:3] for key in _table() if key[0] not in with_measurement}, TABLE.read_text("utf-8")
    assert shown <= set(latest)
    for (m, channels, way), row in latest.items():
        assert Case(m, channels) in BLIND and row["kind"] == "blind" and row["revision"]
        if (m, channels, way) not in shown:
            assert f"{m}^3 with {channels} channels ({way})" in text, "neither shown nor named as not run"
            continue
        ours = _table()[m, channels, way, "GEMM, at once over alone"][1]
        assert float(row["gemm_beside_ms"]) / float(row["gemm_ms"]) == pytest.approx(ours, abs=0.02)
