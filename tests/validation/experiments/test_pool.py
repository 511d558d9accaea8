"""Tasks are done once, in any number of processes with the same result, and go on after a kill."""

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from tests.support.fake_tasks import make_tasks, refused
from tests.support.paths import ROOT
from traces.errors import UserError
from validation.experiments.pool import run_tasks
from validation.experiments.store import Store
from validation.experiments.task import Task


def contents(store):
    return {path.name: path.read_bytes() for path in store.folder.iterdir()}


def test_two_workers_give_the_same_bytes_as_one(tmp_path):
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    first = run_tasks(make_tasks(tmp_path / "log", 5), one, workers=1)
    second = run_tasks(make_tasks(tmp_path / "log", 5), two, workers=2)
    assert first == second and list(first[0]) == list(second[0])
    assert contents(one) == contents(two)


def test_each_task_is_done_once(tmp_path):
    log, store = tmp_path / "log", Store(tmp_path / "store")
    tasks = make_tasks(log, 4)
    run_tasks([*tasks[:2], tasks[0]], store)
    found, failed = run_tasks(tasks, store)
    assert sorted(log.read_text().split("\n")[:-1]) == ["task 0", "task 1", "task 2", "task 3"]
    assert [each["value"] for each in found.values()] == [0, 1, 4, 9] and failed == {}


def test_the_dearest_starts_first(tmp_path):
    log = tmp_path / "log"
    run_tasks(make_tasks(log, 3), Store(tmp_path / "store"))
    assert log.read_text() == "task 2\ntask 1\ntask 0\n"


def test_a_damaged_outcome_is_made_again(tmp_path):
    store = Store(tmp_path / "store")
    tasks = make_tasks(tmp_path / "log", 1)
    run_tasks(tasks, store)
    (store.folder / "key0.json").write_bytes(b'{"value"')
    assert run_tasks(tasks, store)[0]["key0"] == {"value": 0}


@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_fails_does_not_stop_the_rest(tmp_path, workers):
    bad = Task("bad", "bad", 9.0, partial(refused, "it"))
    found, failed = run_tasks([bad, *make_tasks(tmp_path / "log", 2)], Store(tmp_path / "store"), workers)
    assert failed == {"bad": "it cannot run"} and list(found) == ["key0", "key1"]


def test_no_workers_are_refused(tmp_path):
    with pytest.raises(UserError, match="workers"):
        run_tasks([], Store(tmp_path), 0)


KILLED = """
import sys, time
from functools import partial
from pathlib import Path
from tests.support.fake_tasks import make_tasks
from validation.experiments.pool import run_tasks
from validation.experiments.store import Store
from validation.experiments.task import Task
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    slow = Task("slow", "slow", -1.0, partial(time.sleep, 600))
    run_tasks([*make_tasks(folder / "log", 3), slow], Store(folder / "store"), 2)
"""


def test_after_a_kill_nothing_done_is_lost_and_no_worker_stays(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    store = tmp_path / "store"
    until = time.monotonic() + 60
    while len(list(store.glob("key*.json")) if store.is_dir() else []) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run_tasks(make_tasks(tmp_path / "log", 3), Store(store))[0]["key2"] == {"value": 4}
    assert len((tmp_path / "log").read_text().split()) == 6  # "task n", three times and no more
    while _alive(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(process.pid)


def _alive(group):
    """Is any process of the group left?"""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
