"""The store of finished runs: many writers, damaged entries, its bound, folders that cannot be written."""

import os
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest

from sim.results import ResultsError, open, write_results
from sim.results.layout import run_digest
from sim.run import store as store_module
from sim.run.many_gpus import replace_unit
from sim.run.run import gemm_run
from sim.run.runner import reserved
from sim.run.store import Store, run_or_get
from sim.scenario.scenario import Scenario, simulate_scenario
from tests.support.killed import kill, started
from tests.support.paths import ROOT
from tests.support.programs import small_preset
from tests.support.result_samples import sample_results
from tests.support.t3_cases import TILE, fp16_problem
from tracer.gemm.source import GemmSource
from traces.command.cli import main
from traces.errors import Notice, UserError
from traces.output import SUFFIX

RUN = gemm_run(small_preset(), GemmSource(fp16_problem(64, 64, 32), TILE))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def keys(count):
    return [f"{number:064x}" for number in range(count)]


def test_a_run_is_simulated_once(store):
    first, second = run_or_get(RUN, store), run_or_get(RUN, store)
    assert (first.from_store, second.from_store) == (False, True)
    assert run_digest(first.result) == run_digest(second.result)
    anew = run_or_get(RUN, store, fresh=True)
    assert not anew.from_store and run_digest(anew.result) == run_digest(first.result)
    assert [entry.key for entry in store.entries()] == [RUN.key]


def test_what_made_an_entry_is_in_it(store):
    run_or_get(RUN, store)
    (entry,) = store.entries()
    found = open(entry.path)
    kept = found.run()
    assert found.study == RUN.key and kept.code == RUN.code and kept.preset == RUN.preset
    assert kept.input["problem"]["m"] == 64 and kept.options == {"kernels": None, "flush_l2": True}


def test_an_entry_answers_with_the_machine_that_was_asked_for(store):
    """Names and sources of values, and values that the run does not read, are those of the asker."""
    run_or_get(RUN, store)
    asked = replace(RUN, preset=small_preset("link.GB_per_s=75", f"l2.mshrs={RUN.preset.values()['l2.mshrs']}"))
    found = run_or_get(asked, store)
    assert found.from_store and found.result.preset == asked.preset
    assert run_digest(found.result) == run_digest(asked.execute())


def test_a_machine_that_is_too_large_is_refused_whatever_the_store_has(store):
    run_or_get(RUN, store)
    with pytest.raises(UserError, match=r"link\.credits: found 1000000"):
        machine = replace_unit(RUN.preset.machine, link={"credits": 1_000_000})
        run_or_get(replace(RUN, preset=replace(RUN.preset, machine=machine)), store)


def test_scenarios_over_link_speeds_simulate_their_gemm_once(store):
    case = Scenario(small_preset(), fp16_problem(96, 96, 32), TILE, 3)
    assert simulate_scenario(case, ("T3", "Sequential"), store=store).from_store == ()
    slow = replace(case, preset=small_preset("link.GB_per_s=75"))
    assert simulate_scenario(slow, ("T3", "Sequential"), store=store).from_store == ("gemm",)
    longer = replace(case, problem=fp16_problem(96, 96, 64))
    assert simulate_scenario(longer, ("T3", "Sequential"), store=store).from_store == ("rs", "ag")


@pytest.mark.parametrize("damage", [lambda content: content[:-100], lambda content: b"", lambda content: b"hello"])
def test_a_damaged_entry_is_removed_and_run_again(store, damage):
    good = run_or_get(RUN, store).result
    path = store.path(RUN.key)
    content = path.read_bytes()
    path.write_bytes(damage(content))
    found = run_or_get(RUN, store)
    assert not found.from_store and run_digest(found.result) == run_digest(good)
    assert path.read_bytes() == content


def test_any_changed_byte_is_noticed_or_means_nothing(store):
    run_or_get(RUN, store)
    path, whole = store.path(RUN.key), run_digest(store.get(RUN.key))
    content = path.read_bytes()
    refused = 0
    for place in range(50, len(content), len(content) // 60):
        changed = bytearray(content)
        changed[place] ^= 4
        path.write_bytes(changed)
        found = store.get(RUN.key)
        refused += found is None
        assert path.exists() == (found is not None)
        assert found is None or run_digest(found) == whole
    assert refused > 20


def test_an_entry_under_another_name_does_not_count(store):
    run_or_get(RUN, store)
    foreign = store.path(keys(1)[0])
    foreign.write_bytes(store.path(RUN.key).read_bytes())
    write_results(store.path(keys(2)[1]), sample_results())
    assert sorted(store.check()) == [store.path(key) for key in keys(2)]
    assert [entry.key for entry in store.entries()] == [RUN.key]


def test_check_says_what_was_damaged_and_leaves_the_order_of_use(store):
    for number, key in enumerate(keys(3)):
        store.put(key, sample_results())
        os.utime(store.path(key), (1000 + number, 1000 + number))
    store.path(keys(2)[1]).write_bytes(b"hello")
    os.utime(store.path(keys(2)[1]), (5000, 5000))
    assert store.check() == [store.path(keys(2)[1])]
    assert [(entry.key, entry.used_s) for entry in store.entries()] == [(keys(3)[2], 1002), (keys(3)[0], 1000)]
    assert store.check() == []


def test_what_was_not_used_for_longest_goes_first(store):
    for number, key in enumerate(keys(4)):
        store.put(key, sample_results())
        os.utime(store.path(key), (1000 + number, 1000 + number))
    size_bytes = store.entries()[0].size_bytes
    assert store.get(keys(1)[0]) is not None  # used now
    assert store.prune(2 * size_bytes + 10) == [store.path(keys(4)[2]), store.path(keys(4)[1])]
    assert [entry.key for entry in store.entries()] == [keys(4)[0], keys(4)[3]]
    assert store.prune(2 * size_bytes + 10) == []
    store.max_bytes = 3 * size_bytes
    for key in keys(9)[4:]:
        store.put(key, sample_results())
    assert len(store.entries()) == 3


HALF = """
import sys, time
from sim.run.store import Store
from tests.support.result_samples import sample_results
from traces.sink import Sink
def stop(*_):
    print("ready", flush=True)
    time.sleep(600)
Sink.close = stop
Store(sys.argv[1]).put("0" * 64, sample_results())
"""


@pytest.mark.slow
def test_what_a_killed_process_was_writing_goes(store):
    killed, living = (started(HALF, store.folder) for _ in range(2))
    try:
        kill(killed)
        assert len(list(store.folder.iterdir())) == 2 and store.entries() == []
        run_or_get(RUN, store)
        left = sorted(path.name for path in store.folder.iterdir())
        assert left == [f".{keys(1)[0]}.h5.{living.pid}{SUFFIX}", f"{RUN.key}.h5"]
    finally:
        kill(living)
    store.prune(store.max_bytes)
    assert [path.name for path in store.folder.iterdir()] == [f"{RUN.key}.h5"]


def test_the_checkpoint_of_a_process_that_was_killed_behind_its_result_goes(store):
    """Its result was stored, its checkpoint was not yet removed: the next call with checkpoints does it."""
    run_or_get(RUN, store)
    left = store.path(RUN.key, store_module.STATE)
    left.write_bytes(b"state")
    assert run_or_get(RUN, store).from_store and left.exists()
    assert run_or_get(RUN, store, checkpoint_every_s=60).from_store and not left.exists()
    assert run_or_get(RUN, store, checkpoint_every_s=60).from_store, "nothing is left"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows keeps profiles apart")
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_is_not_used(store, mode, tmp_path, monkeypatch, capsys):
    """A planted result is not shown, and nothing is removed."""
    run_or_get(RUN, store)
    planted = replace(store.get(RUN.key), figures={"planted": 1})
    store.write(RUN.key, planted)
    store.folder.chmod(mode)
    store_module._warn_once.cache_clear()
    with pytest.warns(Notice, match="results in .*store are not used: others may write there; chmod"):
        found = run_or_get(RUN, store, checkpoint_every_s=0)
    assert not found.from_store and "planted" not in found.result.figures
    with (
        pytest.warns(Notice, match=r"others may write there.*a temporary folder"),
        reserved(store, [RUN]) as used,
    ):
        assert used.folder != store.folder
    monkeypatch.setenv("T3SIM_STORE", str(store.folder))
    for verb in ("list", "check", "prune"):
        assert main(["store", verb]) == 2
        assert "are not used: others may write there; chmod -R go-w" in capsys.readouterr().err
    assert main(["doctor"]) == 1 and "others may write there" in capsys.readouterr().out
    store.folder.chmod(0o755)
    assert store.get(RUN.key).figures == {"planted": 1}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_another_user_is_not_used(store):
    store.put(keys(1)[0], sample_results())
    os.chown(store.folder, 12345, -1)
    assert store.get(keys(1)[0]) is None and store.path(keys(1)[0]).exists()
    with pytest.raises(UserError, match="some of it belongs to user 12345, not to you"):
        store.write(keys(1)[0], sample_results())


def test_a_new_folder_is_closed_to_others_and_other_files_stay(store):
    before = os.umask(0)
    try:
        store.put(keys(1)[0], sample_results())
    finally:
        os.umask(before)
    assert store.folder.stat().st_mode & 0o777 == 0o700
    (store.folder / "thesis.h5").write_text("not an entry")
    store.check()
    store.prune(0)
    assert [path.name for path in store.folder.iterdir()] == ["thesis.h5"]


def test_the_bound_and_the_place_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "here"))
    monkeypatch.setenv("T3SIM_STORE_BYTES", "12345")
    assert (Store().folder, Store().max_bytes) == (tmp_path / "here", 12345)
    monkeypatch.setenv("T3SIM_STORE_BYTES", "2 GiB")
    with pytest.raises(UserError, match="T3SIM_STORE_BYTES: found '2 GiB', allowed is a whole number"):
        Store()
    monkeypatch.setenv("T3SIM_STORE_BYTES", "1" * 5000)
    with pytest.raises(UserError, match=r"found '1{20}'\.\.\., allowed is a whole number from 0 to"):
        Store()
    monkeypatch.setenv("T3SIM_STORE_BYTES", "")
    assert Store().max_bytes == 2 << 30
    monkeypatch.delenv("T3SIM_STORE_BYTES")
    monkeypatch.delenv("T3SIM_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if sys.platform == "linux":
        assert Store().folder == tmp_path / "cache" / "t3sim" / "store"
    assert Store().max_bytes == 2 << 30


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file: is no folder; the store needs one \(T3SIM_STORE\)"):
        Store(tmp_path / "file")


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store")
    store_module._warn_once.cache_clear()
    with pytest.warns(Notice, match="results cannot be kept in .*store"):
        found = run_or_get(RUN, store)
    assert not found.from_store and found.result.time_ps > 0
    assert store.entries() == [] and store.check() == [] and store.prune(0) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_or_get(RUN, store)  # says it once


def test_a_warning_is_one_line_without_the_place_in_the_code(tmp_path):
    """Also in a worker, which imports the runner and no command."""
    (tmp_path / "file").write_text("in the way")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "T3SIM_STORE": str(tmp_path / "file" / "store")}
    command = [sys.executable, "-c", "from sim.run.runner import Store; Store().put('key', None)"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("t3sim: results cannot be kept in ") and done.stderr.count("\n") == 1


WRITER = """
import sys
from sim.run.store import Store
from tests.support.result_samples import sample_results
store = Store(sys.argv[1])
for turn in range(6):
    for number in range(4):
        key = f"{number:064x}"
        store.put(key, sample_results())
        assert store.get(key) is not None
"""


@pytest.mark.slow
def test_several_processes_write_and_read_at_once(store):
    """A reader sees a whole entry or none; all end with the same four."""
    command = [sys.executable, "-c", WRITER, str(store.folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    whole = run_digest(sample_results())
    seen = 0
    while any(writer.poll() is None for writer in writers):
        for key in keys(4):
            if store.path(key).exists():
                found = store.get(key)
                assert found is not None and run_digest(found) == whole
                seen += 1
    assert [writer.communicate()[1] for writer in writers] == ["", "", ""]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert seen and sorted(entry.key for entry in store.entries()) == keys(4)
    assert len(list(store.folder.iterdir())) == 4, "nothing temporary is left"
    contents = {entry.path.read_bytes() for entry in store.entries()}
    assert len(contents) == 4  # of four keys
    with pytest.raises(ResultsError):
        open(store.path("none"))
