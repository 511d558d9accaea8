"""A changed bit anywhere in an archive, store entry or checkpoint is noticed by everything that opens it."""

import shutil

import h5py
import numpy as np
import pytest

from sim.host.checkpoint import Checkpoint
from sim.host.state import State
from sim.results import ResultsError, write_results, write_runs
from sim.results import open as open_results
from sim.results.check import OF_CONFIGURATION
from sim.run.result import RunResult
from sim.run.store import Store
from sim.scenario.archive import open_scenario
from sim.scenario.result import COLUMN, WHOLE
from tests.support.hostile_files import one_kernel_archive
from tests.support.result_samples import sample_results
from tests.support.sealed import changed_archive, cut_seal, write_sealed
from traces.archive import open_archive
from traces.command.cli import main
from traces.errors import UserError
from traces.seal import SEAL_BYTES, check_seal, is_sealed

KEY = "ab" * 32


def scenario(path):
    run = sample_results()
    figures = dict.fromkeys((f"Sequential.{name}" for name in OF_CONFIGURATION), 1)
    row = RunResult(run.preset, {}, {}, [], figures=figures, point={COLUMN: WHOLE})
    run.point = {COLUMN: "rs"}
    write_runs(path, [row, run])


def checkpoint(path):
    Checkpoint(path, KEY).write(State({"kernel": 1}, {"node.cu": np.arange(3000), "series": np.zeros((4, 5))}))


def read_checkpoint(path):
    state = Checkpoint(path, KEY).read()
    if state is None:
        raise UserError(f"{path}: damaged: not used")
    return state


def read_entry(path):
    """The entry of the store at KEY, which has a copy of the file."""
    store = Store(path.parent / "store")
    store.folder.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(path, store.path(KEY))
    found = store.get(KEY)
    assert store.path(KEY).exists() == (found is not None)
    if found is None:
        raise UserError(f"{path}: damaged: removed")
    return found


KINDS = {
    "trace": (one_kernel_archive, lambda path: open_archive(path).close()),
    "result": (lambda path: write_results(path, sample_results()), open_results),
    "scenario": (scenario, open_scenario),
    "entry": (lambda path: write_runs(path, [sample_results()], KEY), read_entry),
    "checkpoint": (checkpoint, read_checkpoint),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


@EVERY_KIND
def test_every_flipped_bit_is_noticed(tmp_path, kind):
    """In the superblock, the data, the attributes and the seal."""
    make, read = KINDS[kind]
    path = tmp_path / "a.h5"
    make(path)
    read(path)
    content = path.read_bytes()
    random = np.random.default_rng(5)
    places = [*range(0, 64, 3), *random.integers(64, len(content) - SEAL_BYTES, 60), *range(-SEAL_BYTES, 0, 4)]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"damaged|not an HDF5 file"):
            read(path)


@EVERY_KIND
def test_cut_or_longer_files_are_noticed(tmp_path, kind):
    make, read = KINDS[kind]
    path = tmp_path / "a.h5"
    make(path)
    content = path.read_bytes()
    for end in (0, 10, SEAL_BYTES, len(content) // 2, -SEAL_BYTES - 1, -SEAL_BYTES, -SEAL_BYTES + 1, -1):
        path.write_bytes(content[:end])
        with pytest.raises(UserError):
            read(path)
    for more in (b"\0", b"\n" * SEAL_BYTES):
        path.write_bytes(content + more)
        with pytest.raises(UserError):
            read(path)


VERBS = {
    "trace": (
        ("trace", "info", "IN"), ("trace", "verify", "IN"), ("trace", "export", "IN", "-o", "OUT"), ("run", "IN"),
    ),
    "result": (
        ("show", "IN"), ("show", "IN", "--json"), ("diff", "IN", "GOOD"), ("diff", "GOOD", "IN"),
        ("merge", "GOOD", "IN", "-o", "OUT.h5"), ("timeline", "IN", "-o", "OUT.json"),
        ("plot", "rates", "IN", "-o", "OUT.png"), ("plot", "speedups", "IN", "--table"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "verb"), [(kind, verb) for kind, verbs in VERBS.items() for verb in verbs])
def test_every_verb_notices_a_changed_digit(tmp_path, kind, verb, capsys):
    """In the data of the file, and in an attribute that nobody needs."""
    make, _ = KINDS[kind]
    make(tmp_path / "good.h5")
    content = (tmp_path / "good.h5").read_bytes()
    words = [
        word.replace("IN", str(tmp_path / "in.h5")).replace("GOOD", str(tmp_path / "good.h5"))
        .replace("OUT", str(tmp_path / "out")) for word in verb
    ]  # fmt: skip
    for place in (len(content) // 3, content.index(b"writer") + 10):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / "in.h5").write_bytes(changed)
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "in.h5: damaged: the content does not fit its seal" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good.h5", "in.h5"]


@pytest.mark.parametrize("kind", ["trace", "result"])
@pytest.mark.parametrize("version", [0, -1, 99, 2.0, "2", [1, 2], None])
def test_other_versions_are_refused(tmp_path, kind, version):
    make, read = KINDS[kind]
    path = tmp_path / "a.h5"
    make(path)
    with changed_archive(path) as file:
        del file.attrs["format_version"]
        if version is not None:
            file.attrs["format_version"] = version
    with pytest.raises(UserError, match="format_version"):
        read(path)


@pytest.mark.parametrize("kind", ["trace", "result"])
def test_a_file_changed_with_other_tools_has_no_seal(tmp_path, kind):
    make, read = KINDS[kind]
    path = tmp_path / "a.h5"
    make(path)
    with h5py.File(path, "r+") as file:
        file.attrs["writer"] = "me"
    assert not is_sealed(path)
    with pytest.raises(UserError, match="damaged: its seal is missing"):
        read(path)


def test_seals_are_of_the_bytes_before_them(tmp_path):
    write_sealed(tmp_path / "f", b"x" * 3_000_000)
    assert check_seal(tmp_path / "f")
    cut_seal(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"x" * 3_000_000 and not check_seal(tmp_path / "f")


def test_an_entry_that_cannot_be_read_now_is_not_removed(tmp_path, monkeypatch):
    """A full memory or table of files says nothing about the entry."""
    store = Store(tmp_path / "store")
    store.put(KEY, sample_results())
    for problem, seen in ((OSError(24, "Too many open files"), None), (MemoryError(), MemoryError)):
        with monkeypatch.context() as patch:
            patch.setattr("sim.results.archive.open_hdf5", lambda path, problem=problem: (_ for _ in ()).throw(problem))
            if seen:
                with pytest.raises(seen):
                    store.get(KEY)
            else:
                assert store.get(KEY) is None
        assert store.get(KEY) is not None
    with pytest.raises(ResultsError, match="no such file"):
        open_results(tmp_path / "none.h5")
