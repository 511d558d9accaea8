"""A scenario that is interrupted continues in the middle of its run, to the same bytes; runs that are done stay."""

import numpy as np
import pytest

import sim.host.gpu
import sim.run.store
from sim.run.store import Store
from sim.scenario.archive import write_scenario
from sim.scenario.scenario import Scenario, simulate_scenario
from tests.support.interrupted import Interrupted, PulledPlug
from tests.support.programs import small_preset
from tests.support.t3_cases import TILE, fp16_problem

CASE = Scenario(small_preset(), fp16_problem(128, 128, 32), TILE, 4)
SERIES = Scenario(small_preset(), fp16_problem(128, 128, 32), TILE, 4, interval_ps=50_000)
EXPLICIT = Scenario(small_preset(), fp16_problem(96, 96, 32), TILE, 3, explicit=True, interval_ps=100_000)


@pytest.fixture(autouse=True)
def frequent_save_points(monkeypatch):
    monkeypatch.setattr(sim.host.gpu, "WINDOWS_PER_CALL", 7)


def archive_bytes(folder, found):
    write_scenario(folder / "e.h5", found)
    return (folder / "e.h5").read_bytes()


def lives(folder, case, writes, monkeypatch):
    """(bytes, (runs done, key of the run in progress) whenever the program was ended) until it comes through."""
    monkeypatch.setattr(sim.run.store, "Checkpoint", lambda path, key, _: Interrupted(path, writes, key))
    seen, store = [], Store(folder / "store")
    for _ in range(10_000):
        try:
            return archive_bytes(folder, simulate_scenario(case, store=store, checkpoint_every_s=0)), seen
        except PulledPlug:
            done = [entry for entry in store.entries() if entry.finished]
            (state,) = (entry for entry in store.entries() if not entry.finished)
            seen.append((len(done), state.key))
    raise AssertionError("no end")


@pytest.mark.slow
@pytest.mark.parametrize(("case", "writes"), [(CASE, 5), (SERIES, 5), (EXPLICIT, 5)])
def test_an_interrupted_scenario_ends_in_the_same_bytes(case, writes, tmp_path, monkeypatch):
    whole = archive_bytes(tmp_path, simulate_scenario(case))
    parts, seen = lives(tmp_path, case, writes, monkeypatch)
    assert parts == whole
    assert len({key for _, key in seen}) >= 2, "it was ended in the middle of several runs"
    assert len({done for done, _ in seen}) >= 3
    assert all(entry.finished for entry in Store(tmp_path / "store").entries())


@pytest.mark.slow
def test_no_work_is_done_twice(tmp_path, monkeypatch):
    """The checkpoints of all lives together are those of a run that nothing ends."""
    writes = []

    class Counted(Interrupted):
        def write(self, content):
            writes.append(self.key)
            super().write(content)

    monkeypatch.setattr(sim.run.store, "Checkpoint", lambda path, key, _: Counted(path, 10**9, key))
    simulate_scenario(CASE, store=Store(tmp_path / "one"), checkpoint_every_s=0)
    _, seen = lives(tmp_path, CASE, 4, monkeypatch)
    assert len(seen) == sum(writes.count(key) // 4 for key in set(writes))


def test_what_is_kept_reads_back(tmp_path):
    store = Store(tmp_path)
    found = simulate_scenario(SERIES, ("T3", "Sequential"), store=store)
    assert list(found.runs) == ["gemm", "rs", "ag", "t3"] and found.from_store == ()
    again = simulate_scenario(SERIES, ("T3", "Sequential"), store=store)
    assert again.from_store == ("gemm", "rs", "ag", "t3")
    for name, run in found.runs.items():
        one, other = vars(run), vars(again.runs[name])
        for field in ("mean_dram_bytes", "spans", "triggers"):
            assert np.array_equal(one[field], other[field])
        plain = ("input", "options", "figures", "wrong", "kernel_ps", "line_requests", "code", "preset", "time_ps")
        assert all(getattr(run, field) == getattr(again.runs[name], field) for field in plain)
        assert run.totals == again.runs[name].totals and run.series.keys() == again.runs[name].series.keys()
