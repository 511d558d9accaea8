"""Runs are done once, in any number of processes with the same bytes; what a kill, a fault or a lost worker costs."""

import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import pytest

from sim.run import apart, runner
from sim.run.hold import held_keys, holding
from sim.run.run import KernelRun, gemm_run
from sim.run.runner import OtherRunError, do_run, reserved, run_all
from sim.run.store import Store
from tests.support.fake_runs import FAULTY, KILLER, REFUSED, counted_runs
from tests.support.killed import kill, started
from tests.support.paths import ROOT
from tests.support.programs import small_preset
from tests.support.t3_cases import TILE, fp16_problem
from tracer.gemm.source import GemmSource
from tracer.sequence import CommandSequence
from traces.errors import Notice, UserError
from traces.output import remove_leftovers


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def lines(log):
    return log.read_text().split("\n")[:-1]


def contents(store):
    return {entry.path.name: entry.path.read_bytes() for entry in store.entries()}


@pytest.mark.slow
def test_two_workers_give_the_same_bytes_as_one(tmp_path, log):
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    runs = counted_runs(log, 0, 1, 2, 3, REFUSED)
    first, second = run_all(runs, one, workers=1), run_all(runs, two, workers=2)
    assert first.failed == second.failed == {runs[4].key: "it cannot run"}
    assert len(contents(one)) == 4 and contents(one) == contents(two)


def test_each_distinct_run_is_done_once_and_the_longest_first(tmp_path, log):
    store, calls = Store(tmp_path / "store"), []
    runs = counted_runs(log, 0, 1, 2, 3)
    run_all([runs[1], runs[0], runs[1]], store, workers=0)
    outcomes = run_all(runs, store, workers=1, progress=lambda *call: calls.append(call))
    assert lines(log) == ["run 1", "run 0", "run 3", "run 2"]
    assert outcomes.from_store == {run.key for run in runs[:2]} and calls == [(0, 2), (1, 2), (2, 2)]
    assert [outcomes.result(run).figures["square"] for run in runs] == [0, 1, 4, 9]
    run_all(runs[:2], store, workers=0, fresh=True)
    assert lines(log)[4:] == ["run 1", "run 0"]


def test_a_damaged_result_is_made_again(tmp_path, log):
    store, (run,) = Store(tmp_path / "store"), counted_runs(log, 2)
    run_all([run], store, workers=0)
    store.path(run.key).write_bytes(b"\x89HDF damaged")
    assert run_all([run], store, workers=0).result(run).figures == {"square": 4}
    store.path(run.key).unlink()
    with pytest.raises(UserError, match="the result of run 2 was removed"):
        run_all([], store).result(run)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_fails_does_not_stop_the_rest(tmp_path, log, workers):
    runs = counted_runs(log, REFUSED, FAULTY, 1, 2)
    outcomes = run_all(runs, Store(tmp_path / "store"), workers=workers)
    assert outcomes.failed == {runs[0].key: "it cannot run", runs[1].key: "ValueError: a fault"}
    assert sorted(lines(log)) == ["run 1", "run 2"] and not outcomes.lost


@pytest.mark.slow
def test_a_lost_worker_costs_its_run_only(tmp_path, log):
    runs = counted_runs(log, KILLER, 1, 2)
    outcomes = run_all(runs, Store(tmp_path / "store"), workers=2)
    assert list(outcomes.lost) == [runs[0].key] and outcomes.lost[runs[0].key].startswith("KilledWorker")
    assert [outcomes.result(run).figures["square"] for run in runs[1:]] == [1, 4] and not outcomes.failed


def test_a_full_memory_is_no_failure(tmp_path, log, monkeypatch):
    (run,) = counted_runs(log, 1)
    monkeypatch.setattr(runner, "check_machine", lambda machine: (_ for _ in ()).throw(MemoryError("all of it")))
    outcomes = run_all([run], Store(tmp_path / "store"), workers=0)
    assert outcomes.lost == {run.key: "MemoryError: all of it"} and not outcomes.failed


def test_a_worker_does_not_do_another_run(tmp_path, log):
    """Key and code are found anew where a run arrives: there the files may be others."""
    (run,) = counted_runs(log, 1)
    assert run.key and "key" in vars(run) and "key" not in vars(pickle.loads(pickle.dumps(run)))
    with pytest.raises(OtherRunError):
        do_run(replace(run, number=2), run.key, store=Store(tmp_path), fresh=False)


def test_negative_workers_are_refused(tmp_path):
    with pytest.raises(UserError, match="workers: found -1, allowed is a whole number from 0"):
        run_all([], Store(tmp_path), workers=-1)


def test_without_dask_it_is_said_what_to_install(tmp_path, log, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(UserError, match=r"pip install 't3sim\[study\]', or --workers 0"):
        run_all(counted_runs(log, 1, 2), Store(tmp_path / "store"), workers=2)
    assert not run_all(counted_runs(log, 1, 2), Store(tmp_path / "store"), workers=1).lost


def test_the_store_keeps_what_a_study_needs(tmp_path, log):
    """However small its bound; when the study has ended they may go."""
    store = Store(tmp_path / "store", max_bytes=0)
    runs = counted_runs(log, 1, 2)
    with reserved(store, runs) as keeping:
        outcomes = run_all(runs, keeping, workers=0)
        Store(store.folder, max_bytes=0).prune(0)
        assert [outcomes.result(run).figures["square"] for run in runs] == [1, 4]
    assert len(store.prune(0)) == 2 and list(store.folder.iterdir()) == []


HOLD = """
import sys, time
from pathlib import Path
from sim.run.hold import holding
with holding(Path(sys.argv[1]), sys.argv[2:]):
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_hold_of_a_killed_process_counts_no_more(tmp_path):
    killed = started(HOLD, tmp_path, "a", "b")
    with holding(tmp_path, ["c"]):
        assert held_keys(tmp_path) == {"a", "b", "c"}
        kill(killed)
        assert held_keys(tmp_path) == {"c"}
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_is_replaced(tmp_path, log):
    (tmp_path / "file").write_text("in the way")
    (run,) = counted_runs(log, 3)
    warning = pytest.warns(Notice, match="results cannot be kept in .*store .*a temporary folder")
    with warning, reserved(Store(tmp_path / "file" / "store"), [run]) as keeping:
        assert run_all([run], keeping, workers=0).result(run).figures == {"square": 9}
    assert not keeping.folder.exists()
    with pytest.raises(UserError, match="store: cannot write"):
        run_all([run], Store(tmp_path / "file" / "store"), workers=0)


def test_a_policy_has_a_process_of_its_own(tmp_path):
    """A mistake in it fails its run alone. The runs that read no arbiter are the same with and without it."""
    (tmp_path / "bad.py").write_text("print('not the answer of the process')\nx = 1\n")
    source = GemmSource(fp16_problem(64, 64, 32), TILE)
    user, other = small_preset("hbm.arbiter=user"), small_preset()
    bad = KernelRun(preset=user, source=CommandSequence([source]), policy=str(tmp_path / "bad.py"))
    idle = KernelRun(preset=other, source=CommandSequence([source]), policy=str(tmp_path / "bad.py"))
    plain = gemm_run(other, source)
    assert idle.key == plain.key != bad.key and bad.foreign_policy and not idle.foreign_policy
    outcomes = run_all([bad, plain], Store(tmp_path / "store"), workers=0)
    assert list(outcomes.failed) == [bad.key] and "no function pick" in outcomes.failed[bad.key]
    assert outcomes.result(plain).time_ps > 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9 has killed its separate process"),
        ("raise MemoryError('full')", "MemoryError: full"),
    ],
)
def test_a_process_of_a_policy_that_is_killed_is_lost(line, words, tmp_path, monkeypatch):
    """A new try can succeed: the run has not failed."""
    monkeypatch.setattr(apart, "CHILD", apart.CHILD.replace("    answer = serve()", f"    {line}"))
    (tmp_path / "rule.py").write_text("def pick(channel, now_ps):\n    return -1\n")
    source = CommandSequence([GemmSource(fp16_problem(64, 64, 32), TILE)])
    run = KernelRun(preset=small_preset("hbm.arbiter=user"), source=source, policy=str(tmp_path / "rule.py"))
    outcomes = run_all([run], Store(tmp_path / "store"), workers=0)
    assert not outcomes.failed and words in outcomes.lost[run.key]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("return plain(now_ps)", r":6: cannot be compiled: TypingError: Untyped global name 'plain'"),
        (
            "return channel.queued + 'a'",
            r":6: cannot be compiled: TypingError: No implementation .*add\(nestedarray.*\)$",
        ),
        ("return channel.colour", r": cannot be compiled: no field 'colour'; docs/policies.md lists"),
        ("if now_ps >= 0:\n        raise ValueError('late')\n    return -1", r":7: ValueError: late$"),
    ],
)
def test_what_fails_in_a_policy_has_its_line(line, words, tmp_path):
    """As on the command line, though it happens in another process."""
    path = tmp_path / "bad.py"
    path.write_text(f"def plain(now_ps):\n    return -1\n\n\ndef pick(channel, now_ps):\n    {line}\n")
    source = CommandSequence([GemmSource(fp16_problem(64, 64, 32), TILE)])
    run = KernelRun(preset=small_preset("hbm.arbiter=user"), source=source, policy=str(path))
    (reason,) = run_all([run], Store(tmp_path / "store"), workers=0).failed.values()
    assert re.match(re.escape(str(path)) + words, reason), reason


KILLED = """
import sys
from pathlib import Path
from sim.run.runner import run_all
from sim.run.store import Store
from tests.support.fake_runs import SLOW, counted_runs
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    run_all(counted_runs(folder / "log", 1, 2, 3, SLOW), Store(folder / "store"), workers=2)
"""


@pytest.mark.slow
def test_after_a_kill_nothing_done_is_lost_and_no_worker_stays(tmp_path, log, monkeypatch):
    (tmp_path / "killed.py").write_text(KILLED)
    command = [sys.executable, str(tmp_path / "killed.py"), str(tmp_path)]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    store, until = Store(tmp_path / "store"), time.monotonic() + 90
    while len(store.entries()) < 3 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    runs = counted_runs(log, 1, 2, 3)
    assert run_all(runs, store, workers=0).from_store == {run.key for run in runs}
    assert sorted(lines(log)) == ["run 1", "run 2", "run 3"]
    while _alive(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(process.pid)
    assert any(scratch.glob("t3sim-dask-*"))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert not run_all(counted_runs(log, 4, 5), store, workers=2).lost
    assert list(scratch.iterdir()) == [], "the next study removes what the killed one left"


def _alive(group):
    """Is any process of the group left?"""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
