"""Faults of the computer during a study: it ends with the same bytes or says what is missing; nothing done is lost."""

import io
import os
import sys

import pytest

from sim.run.runner import reserved, run_all
from sim.run.store import Entry, Store
from sim.verbs.store_list import _described
from tests.support.fake_runs import HUNGRY, counted_runs
from tests.support.result_samples import sample_results
from traces.errors import UserError

KEY = "ab" * 32


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def contents(store):
    return {entry.path.name: entry.path.read_bytes() for entry in store.entries()}


@pytest.fixture
def whole(tmp_path, log):
    """Bytes of the results of runs 1 to 4 on a computer without faults."""
    store = Store(tmp_path / "whole")
    run_all(counted_runs(log, 1, 2, 3, 4), store, workers=0)
    return contents(store)


class SmallDisk:
    """Files on a disk with room for so many bytes."""

    def __init__(self, room_bytes):
        self.room_bytes = room_bytes

    def open(self, path, mode, buffering):
        disk = self

        class File(io.FileIO):
            def write(self, data):
                if not disk.room_bytes:
                    raise OSError(28, "No space left on device")
                written = super().write(memoryview(data)[: disk.room_bytes])
                disk.room_bytes -= written
                return written

        return File(path, mode)


@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.5, 0.7, 0.99, 0.99999])
def test_a_disk_that_fills_in_the_middle_of_the_store(tmp_path, log, whole, monkeypatch, share):
    """The study names the file. What is done stays, nothing half is left; with room again it goes on."""
    store, runs = Store(tmp_path / "store"), counted_runs(log, 1, 2, 3, 4)
    disk = SmallDisk(int(share * sum(map(len, whole.values()))))
    with monkeypatch.context() as patch:
        patch.setattr("traces.sink.open", disk.open, raising=False)
        with pytest.raises(UserError, match=r"\.h5: cannot write: No space left on device"), reserved(store, runs):
            run_all(runs, store, workers=0)
    done = contents(store)
    assert len(list(store.folder.iterdir())) == len(done) <= 4 * share and done.items() <= whole.items()
    outcomes = run_all(runs, store, workers=0)
    assert not outcomes.lost and len(outcomes.from_store) == len(done) and contents(store) == whole


@pytest.mark.parametrize("shift_s", [-40 * 365 * 86400.0, 400 * 365 * 86400.0])
def test_a_clock_that_jumps(tmp_path, log, whole, shift_s):
    """Times of files decide only what is removed first from a full store."""
    store, runs = Store(tmp_path / "store"), counted_runs(log, 1, 2, 3, 4)
    run_all(runs[:2], store, workers=0)
    for entry in store.entries():
        os.utime(entry.path, (entry.used_s + shift_s, entry.used_s + shift_s))
    with reserved(store, runs):
        outcomes = run_all(runs, Store(store.folder, max_bytes=1), workers=0)
        assert not outcomes.lost and contents(store) == whole
    assert store.check() == [] and len(store.prune(1)) == 4


def test_a_time_that_no_calendar_has(tmp_path):
    path = Store(tmp_path / "store").path(KEY)
    Store(tmp_path / "store").put(KEY, sample_results())
    assert _described(Entry(path, 1, 1e15), whole=True)["used"] == ""
    assert _described(Entry(path, 1, 0.0), whole=True)["used"] == "1970-01-01 00:00:00"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory with Linux's means")
def test_a_full_memory_in_one_of_two_workers(tmp_path, log, whole):
    """The run is lost and named, others may be lost with it; the same call simulates what is missing."""
    store, runs = Store(tmp_path / "store"), counted_runs(log, HUNGRY, 1, 2, 3, 4)
    outcomes = run_all(runs, store, workers=2)
    assert runs[0].key in outcomes.lost and not outcomes.failed, outcomes
    assert "MemoryError" in outcomes.lost[runs[0].key]
    done = contents(store)
    assert len(done) == 5 - len(outcomes.lost) and done.items() <= whole.items()
    again = run_all(runs, store, workers=2)
    assert not again.lost and whole.items() <= contents(store).items()
    assert again.from_store == {entry.removesuffix(".h5") for entry in done}
