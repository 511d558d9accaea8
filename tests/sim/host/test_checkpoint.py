"""A run that is interrupted and continues from its checkpoint gives the bytes of one that is not."""

import random

import pytest

import sim.host.gpu
from sim.host.checkpoint import Checkpoint
from sim.results import write_results
from sim.run.one_gpu import simulate
from sim.run.run import KernelRun
from tests.support.accelsim_texts import block_text, kernel_text, write
from tests.support.interrupted import Interrupted, PulledPlug
from tests.support.programs import TIGHT, compute, kernel, lines, load, random_kernel, small_preset, store
from tracer.accelsim.reader import open_accelsim
from tracer.sequence import CommandSequence
from traces.errors import Notice, UserError
from traces.schema import Kind
from traces.source import Prefill

A = 1 << 20
PROGRAMS = [[[load(A + 4096 * k, slot=1), compute(3, wait=[1]), store(A + 128 * k)]] for k in range(150)]
MANY = kernel(PROGRAMS, name="m", shared_bytes=40_000)  # a few at a time: more than the trace window holds
TRACE = CommandSequence([random_kernel(1), Prefill(A, 4096), MANY, Prefill(2 * A, 4096), random_kernel(2)])
STREAM = CommandSequence([kernel([[[lines(Kind.LOAD, A + 4096 * k, 32, slot=1)]] for k in range(40)], name="s")])


@pytest.fixture(autouse=True)
def frequent_save_points(monkeypatch):
    monkeypatch.setattr(sim.host.gpu, "WINDOWS_PER_CALL", 7)


def results_bytes(folder, trace, preset, **options):
    write_results(folder / "r.h5", simulate(trace, preset, **options))
    return (folder / "r.h5").read_bytes()


def lives(folder, trace, preset, writes, **options):
    """(bytes, how often the program was ended) of a run that ends after so many checkpoints, until it comes through."""
    for count in range(10_000):
        try:
            save_points = Interrupted(folder / "c", writes).save_points()
            return results_bytes(folder, trace, preset, save_points=save_points, **options), count
        except PulledPlug:
            continue
    raise AssertionError("no end")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "options", "writes"),
    [
        ((), {}, 5),
        (("dispatch.jitter_ps=9000",), {"interval_ps": 77, "flush_l2": False}, 7),
        (TIGHT, {"interval_ps": 50_000}, 30),
        ((), {"kernels": [2]}, 2),
    ],
)
def test_an_interrupted_run_ends_in_the_same_bytes(tmp_path, changes, options, writes):
    preset = small_preset(*changes)
    whole = results_bytes(tmp_path, TRACE, preset, **options)
    parts, interruptions = lives(tmp_path, TRACE, preset, writes, **options)
    assert interruptions > 2
    assert parts == whole


def test_an_interrupted_run_of_a_text_has_all_its_warnings(tmp_path):
    """Also those of finished kernels, and of workgroups of the kernel in progress that were read before."""
    load_only = ["0000 ffffffff 1 R8 LDG.E 1 R2 4 1 0x7f4000000000 4 0 "]
    kernel_1 = kernel_text([load_only])
    kernel_2 = kernel_text([load_only], grid="150,1,1")
    kernel_2 += "".join(block_text([["0000 ffffffff 0 NOPE 0 0 0 ", *load_only]], f"{k},0,0") for k in range(1, 149))
    for name, text in (("kernel-1.traceg", kernel_1), ("kernel-2.traceg", kernel_2), ("kernel-3.traceg", kernel_1)):
        write(tmp_path, text, name)
    write(tmp_path, "kernel-1.traceg\nkernel-2.traceg\nkernel-3.traceg\n", "kernelslist.g")

    def warnings_of_a_life(save_points=None):
        run = KernelRun(preset=small_preset(), source=open_accelsim(tmp_path))
        return run.execute(save_points=save_points).warnings

    whole = warnings_of_a_life()
    assert [line.rpartition(": ")[2] for line in whole] == [
        "taken as ended there (151 times)",
        "unknown opcode NOPE, taken as ALU work",
        "they did nothing",
    ]
    interruptions = 0
    while True:
        try:
            assert warnings_of_a_life(Interrupted(tmp_path / "c", 3).save_points()) == whole
            break
        except PulledPlug:
            interruptions += 1
    assert interruptions > 2


def test_a_checkpoint_changes_nothing_and_goes_when_told(tmp_path):
    whole = results_bytes(tmp_path, STREAM, small_preset())
    checkpoint = Checkpoint(tmp_path / "c", "key", 0)
    assert results_bytes(tmp_path, STREAM, small_preset(), save_points=checkpoint.save_points()) == whole
    assert (tmp_path / "c").exists()
    checkpoint.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.h5"]


def test_it_is_written_when_the_time_has_come(tmp_path):
    now_s = [0.0]
    checkpoint = Checkpoint(tmp_path / "c", "key", 10, clock_s=lambda: now_s[0])
    simulate(STREAM, small_preset(), save_points=checkpoint.save_points())
    assert not (tmp_path / "c").exists()
    now_s[0] = 10.0
    assert checkpoint.due()
    simulate(STREAM, small_preset(), save_points=checkpoint.save_points())
    assert (tmp_path / "c").exists() and not checkpoint.due()


def test_a_full_disk_costs_a_warning_and_not_the_run(tmp_path):
    whole = results_bytes(tmp_path, STREAM, small_preset())
    (tmp_path / "store").mkdir()
    checkpoint = Checkpoint(tmp_path / "store" / "c", "key", 0)
    (tmp_path / "store").rmdir()
    with pytest.warns(Notice, match="no checkpoint is saved: .*c: cannot write"):
        assert results_bytes(tmp_path, STREAM, small_preset(), save_points=checkpoint.save_points()) == whole


def interrupted(folder, key="key"):
    """A checkpoint of a run that was ended."""
    with pytest.raises(PulledPlug):
        simulate(STREAM, small_preset(), save_points=Interrupted(folder / "c", 2, key).save_points())
    return folder / "c"


def test_the_checkpoint_of_another_run_does_not_count(tmp_path):
    path = interrupted(tmp_path)
    assert Checkpoint(path, "key").read() is not None
    assert Checkpoint(path, "other").read() is None


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"hello\n"])
def test_what_is_no_checkpoint_does_not_count(tmp_path, content):
    (tmp_path / "c").write_bytes(content)
    assert Checkpoint(tmp_path / "c", "key").read() is None


@pytest.mark.slow
def test_a_damaged_checkpoint_does_no_harm(tmp_path):
    """The run begins anew; a byte of no meaning (a date in the zip) may change."""
    whole = results_bytes(tmp_path, STREAM, small_preset())
    path = interrupted(tmp_path)
    good, chance, unread = path.read_bytes(), random.Random(4), 0
    damaged = [good[: len(good) * part // 4] for part in (1, 2, 3)] + [good[:-1]]
    for _ in range(12):
        place = chance.randrange(len(good))
        damaged.append(good[:place] + bytes([good[place] ^ 1 << chance.randrange(8)]) + good[place + 1 :])
    for content in damaged:
        path.write_bytes(content)
        save_points = Checkpoint(path, "key", 1e9).save_points()
        unread += save_points.state is None
        assert results_bytes(tmp_path, STREAM, small_preset(), save_points=save_points) == whole
    assert unread >= 12


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        Checkpoint(tmp_path / "no" / "c", "key")
