"""Files are written completely or not at all; what killed processes left goes with the next command."""

import os
import tempfile

import pytest

from tests.support.killed import kill, started
from traces.errors import UserError
from traces.output import SUFFIX, left_over, remove_leftovers, replacing, scratch_folder

WRITE = """
import sys, time
from pathlib import Path
from traces.output import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("ready", flush=True)
    time.sleep(600)
"""
SCRATCH = """
import sys, time
from traces.output import scratch_folder
with scratch_folder("test") as folder:
    (folder / "large").write_text("x")
    print("ready", flush=True)
    time.sleep(600)
"""


def is_left(path):
    with left_over(path) as left:
        return left


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_when_the_block_ends(tmp_path):
    path = tmp_path / "f"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old" and temporary.name.endswith(SUFFIX)
    assert path.read_text() == "new" and names(tmp_path) == ["f"]
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(str(1 / 0))
    assert path.read_text() == "new" and names(tmp_path) == ["f"]


def test_rights_follow_the_umask_or_are_smaller(tmp_path):
    before = os.umask(0o027)
    try:
        for name, mode, expected in (("open", 0o666, 0o640), ("own", 0o600, 0o600)):
            with replacing(tmp_path / name, mode):
                pass
            assert (tmp_path / name).stat().st_mode & 0o777 == expected
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(tmp_path):
    killed, living = (started(WRITE, tmp_path / name) for name in ("killed", "living"))
    try:
        kill(killed)
        assert len(names(tmp_path)) == 2
        with replacing(tmp_path / "other") as temporary:
            temporary.write_text("x")
        assert names(tmp_path) == [f".living.{living.pid}{SUFFIX}", "other"]
    finally:
        kill(living)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["other"]


def test_a_file_of_another_user_or_a_link_is_not_left_over(tmp_path):
    mine, link = tmp_path / f".a.1{SUFFIX}", tmp_path / f".b.1{SUFFIX}"
    mine.write_text("")
    link.symlink_to(mine)
    assert is_left(mine) and not is_left(link)
    os.mkfifo(tmp_path / f".c.1{SUFFIX}")
    remove_leftovers(tmp_path)  # does not wait for a writer of the fifo
    if os.geteuid() == 0:
        mine.write_text("")
        os.chown(mine, 12345, -1)
        assert not is_left(mine)


REPEAT = """
import sys
from pathlib import Path
from traces.output import replacing
print("ready", flush=True)
for _ in range(200):
    with replacing(Path(sys.argv[1])) as temporary:
        temporary.write_text(sys.argv[2] * 200_000)
"""


def test_several_writers_of_one_file_at_once(tmp_path):
    """All are right: the file is always a whole one, the last is left."""
    path, texts = tmp_path / "f", [letter * 200_000 for letter in "abc"]
    path.write_text(texts[0])
    writers = [started(REPEAT, path, text[0]) for text in texts]
    while any(writer.poll() is None for writer in writers):
        assert path.read_text() in texts
    assert [writer.wait() for writer in writers] == [0, 0, 0] and names(tmp_path) == ["f"]
    for writer in writers:
        writer.stdout.close()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")
def test_scratch_folders_of_killed_processes_go(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, living = (started(SCRATCH, TMPDIR=str(tmp_path)) for _ in range(2))
    try:
        kill(killed)
        (tmp_path / "t3sim-of-somebody").mkdir()
        with scratch_folder("mine") as folder:
            assert folder.parent == tmp_path and len(names(tmp_path)) == 3
        assert len(names(tmp_path)) == 2 and "t3sim-of-somebody" in names(tmp_path)
    finally:
        kill(living)


def test_a_full_disk_is_one_line(tmp_path):
    with pytest.raises(UserError, match="f: cannot write: No space left"), replacing(tmp_path / "f"):
        raise OSError(28, "No space left on device")
    assert names(tmp_path) == []
