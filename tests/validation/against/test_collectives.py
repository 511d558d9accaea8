"""Collectives of real machines: what the files hold, the pipelined order, and the committed table against both."""

import csv

import pytest

from sim.collective.kernel import Step
from validation.against import collectives
from validation.against.collectives import (
    CALIBRATION_MB,
    LINE_MB,
    SIZES_MB,
    TABLE,
    Case,
    Fit,
    measured,
    pipelined,
    simulated_us,
)


def _rows(heading):
    """Cells of the rows of the table under a heading that begins so."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith(heading)) + 2
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


FITS = {
    Case(cells[0], int(cells[1]), cells[2]): Fit(float(cells[5]), round(float(cells[6]) * 1e6))
    for cells in _rows("| machine | GPUs | collective | links")
}
POINTS = {
    (Case(cells[0], int(cells[1]), cells[2]), int(cells[3])): cells[4:]
    for cells in _rows("| machine | GPUs | collective | MB")
}


def test_the_files_measure_time_by_whole_buffer():
    """nccl-tests: algbw = D / time, busbw = algbw x (N - 1) / N, for reduce-scatter and all-gather."""
    for path in collectives.REFERENCES:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if int(row["bytes"]) >= collectives.MIB:
                    gpus, algbw = int(row["gpus"]), int(row["bytes"]) / float(row["time_us"]) / 1000
                    assert float(row["algbw_GBps"]) == pytest.approx(algbw, rel=2e-3)
                    assert float(row["busbw_GBps"]) == pytest.approx(algbw * (gpus - 1) / gpus, rel=2e-3)


def test_every_curve_has_all_sizes():
    assert list(FITS) == list(measured()) and len(FITS) == 5
    assert set(POINTS) == {(case, mb) for case in measured() for mb in SIZES_MB}
    assert all(sorted(times) == list(SIZES_MB) for times in measured().values())


@pytest.mark.parametrize("slices", [1, 3, 8, 20])
def test_pipelined_steps_do_all_tiles_once_a_turn_after_their_last_step(slices):
    steps = [Step(range(10 * k, 10 * k + 10), (0,), 1, gates=tuple(range(10 * k, 10 * k + 10))) for k in range(4)]
    order = pipelined(steps, slices)
    done = [tile for step in order for tile in step.tiles]
    assert sorted(done) == list(range(40))
    assert all(list(step.gates) == list(step.tiles) for step in order)
    if slices == 1:
        assert order == steps
    for tile in range(10):
        places = [done.index(10 * k + tile) for k in range(4)]
        assert places == sorted(places)
    if slices == 8:  # once the pipeline is full a turn holds a slice of each step
        assert [step.tiles.start // 10 for step in order[6:14]] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_without_gates_none_are_cut():
    assert [step.gates for step in pipelined([Step(range(4), (0,), 1)], 2)] == [(), ()]


@pytest.mark.parametrize("case", measured(), ids=str)
def test_table_is_what_the_simulator_says(case):
    """The smallest size, to half a percent; the others take minutes (python -m validation.against.collectives)."""
    assert simulated_us(case, FITS[case], 4) == pytest.approx(float(POINTS[case, 4][1]), rel=0.005)


def test_errors_follow_from_the_columns_and_meet_the_target():
    predicted = []
    for (case, mb), (theirs, ours, error, kind) in POINTS.items():
        assert float(theirs) == pytest.approx(measured()[case][mb], abs=0.005)
        found = float(ours) / float(theirs) - 1
        assert error == f"{100 * found:+.1f} %"
        extrapolated = ", extrapolated" if mb > LINE_MB[1] else ""
        assert kind == ("calibration" if mb in CALIBRATION_MB else "prediction") + extrapolated
        if mb in CALIBRATION_MB:
            assert abs(found) < 0.007  # fitted without the overhead, see the notes
        else:
            predicted.append(abs(found))
    mean = sum(predicted) / len(predicted)
    assert mean <= collectives.TARGET
    assert f"predicted points: {100 * mean:.1f} %" in TABLE.read_text(encoding="utf-8")


def test_nccl_gains_more_from_size_than_its_links_carry():
    """D26: 8 to 16 MB on eight V100, 7/8 of the buffer each."""
    case = Case("Tesla V100-SXM2-32GB", 8, "reduce_scatter")
    more_bytes, peak = 7 * collectives.MIB, collectives.SYSTEMS[case.system].link_GB_per_s
    theirs = more_bytes / (measured()[case][16] - measured()[case][8]) / 1000
    ours = more_bytes / (float(POINTS[case, 16][1]) - float(POINTS[case, 8][1])) / 1000
    assert theirs > peak > ours


def test_what_is_extrapolated_lies_on_the_line(monkeypatch):
    """Sizes up to 128 MB are run once each; beyond, a line through 32 and 128 MB."""
    case, runs = Case("a100_sxm", 2, "all_gather"), []
    monkeypatch.setattr(collectives, "simulated_us", lambda case, fit, mb: runs.append(mb) or 10.0 + 2 * mb)
    assert collectives.curve_us(case, Fit(0.5, 0)) == {mb: 10.0 + 2 * mb for mb in SIZES_MB}
    assert runs == [4, 8, 16, 32, 64, 128]
    runs.clear()
    assert collectives.curve_us(case, Fit(0.5, 0), (4, 512)) == {4: 18.0, 512: 1034.0}
    assert runs == [4, 32, 128]
    runs.clear()
    collectives.curve_us(case, Fit(0.5, 0), whole=True)
    assert runs == list(SIZES_MB)
