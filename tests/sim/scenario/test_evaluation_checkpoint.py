"""An evaluation that is interrupted goes on in the middle of its part, to the same bytes; parts that are done stay."""

import json

import numpy as np
import pytest

import sim.host.gpu
from sim.host.checkpoint import Checkpoint
from sim.scenario.configurations import Case, evaluate
from sim.scenario.evaluation_archive import write_evaluation
from sim.scenario.evaluation_standing import evaluation_content, evaluation_standing
from tests.support.interrupted import Interrupted, PulledPlug
from tests.support.programs import small_preset
from tests.support.t3_cases import TILE, fp16_problem
from traces.errors import UserError

CASE = Case(small_preset(), fp16_problem(128, 128, 32), TILE, 4)
SERIES = Case(small_preset(), fp16_problem(128, 128, 32), TILE, 4, interval_ps=50_000)
EXPLICIT = Case(small_preset(), fp16_problem(96, 96, 32), TILE, 3, explicit=True, interval_ps=100_000)


@pytest.fixture(autouse=True)
def frequent_pauses(monkeypatch):
    monkeypatch.setattr(sim.host.gpu, "PAUSE_WINDOWS", 7)


def archive_bytes(folder, found):
    write_evaluation(folder / "e.h5", found)
    return (folder / "e.h5").read_bytes()


def lives(folder, case, writes):
    """(bytes, parts in progress and done whenever the program was ended) until it comes through."""
    seen = []
    for _ in range(10_000):
        try:
            return archive_bytes(folder, evaluate(case, checkpoint=Interrupted(folder / "c", writes))), seen
        except PulledPlug:
            seen.append(Checkpoint(folder / "c", 0).open(known(folder), evaluation_standing))
    raise AssertionError("no end")


def known(folder):
    """What the checkpoint says that it is."""
    with np.load(folder / "c") as content:
        about = json.loads(str(content["about"]))
    return {name: value for name, value in about.items() if name not in ("file_type", "format_version", "writer")}


@pytest.mark.parametrize(("case", "writes"), [(CASE, 17), (SERIES, 17), (EXPLICIT, 11)])
def test_an_interrupted_evaluation_ends_in_the_same_bytes(case, writes, tmp_path):
    whole = archive_bytes(tmp_path, evaluate(case))
    parts, seen = lives(tmp_path, case, writes)
    assert parts == whole
    assert len({standing.part for standing in seen} - {""}) >= 2, "it was ended in the middle of several parts"
    assert len({len(standing.done) for standing in seen}) >= 3


def test_no_work_is_done_twice(tmp_path):
    """The checkpoints of all lives together are those of a run that nothing ends."""
    counted = Interrupted(tmp_path / "c", 10**9)
    evaluate(CASE, checkpoint=counted)
    writes = 10**9 - counted.left
    counted.remove()
    _, seen = lives(tmp_path, CASE, 29)
    assert len(seen) == writes // 29


def test_what_is_kept_reads_back(tmp_path):
    checkpoint = Checkpoint(tmp_path / "c", 1e9)
    found = evaluate(SERIES, ("T3", "Sequential"), checkpoint=checkpoint)
    kept = checkpoint.open(known(tmp_path), evaluation_standing)
    assert list(kept.done) == list(found.parts) == ["gemm", "rs", "ag", "t3"] and kept.part == ""
    for name, part in found.parts.items():
        one, other = vars(part), vars(kept.done[name])
        for field in ("dram_bytes", "spans", "triggers"):
            assert one[field].dtype == other[field].dtype and (one[field] == other[field]).all()
        assert list(part.series) == list(kept.done[name].series)
        plain = [field for field in one if field not in ("dram_bytes", "spans", "triggers", "series")]
        assert {field: one[field] for field in plain} == {field: other[field] for field in plain}
    assert evaluation_content(kept).facts["part"] == ""


@pytest.mark.parametrize(
    ("other", "configurations", "words"),
    [
        (Case(small_preset("l2.mshrs=77"), CASE.problem, TILE, 4), (), "machine l2.mshrs: found .*, this run has 77"),
        (Case(CASE.preset, CASE.problem, TILE, 2), (), "options gpus: found 4, this run has 2"),
        (Case(CASE.preset, CASE.problem, TILE, 4, explicit=True), (), "options explicit: found False"),
        (Case(CASE.preset, fp16_problem(128, 96, 32), TILE, 4), (), "problem n: found 128, this run has 96"),
        (CASE, ("Sequential",), "options parts: found"),
    ],
)
def test_the_checkpoint_of_another_evaluation_is_refused(other, configurations, words, tmp_path):
    with pytest.raises(PulledPlug):
        evaluate(CASE, checkpoint=Interrupted(tmp_path / "c", 3))
    settings = (configurations,) if configurations else ()
    with pytest.raises(UserError, match=f"c: the checkpoint of another run: {words}"):
        evaluate(other, *settings, checkpoint=Checkpoint(tmp_path / "c", 0))
