"""Synthesised kernels survive the archive unchanged."""

from tracer.gemm.source import Copy, GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from tracer.streams import BufferStream, Flow, PointerChase
from tracer.verify import verify_archive
from traces.archive import open_archive
from traces.source import Prefill
from traces.write import write_archive

KERNELS = [
    GemmSource(GemmProblem(300, 200, 77, with_c=True), GemmKernel(64, 64, 32, 2, 2)),
    GemmSource(GemmProblem(100, 90, 77), GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.ASYNC, lanes=64, persistent=3)),
    BufferStream(Flow.COPY, 1 << 16, workgroup_count=3),
    PointerChase(4096, 100),
]


def test_archive_gives_back_every_workgroup(tmp_path):
    prefill = Prefill(1 << 36, 4096)
    write_archive(tmp_path / "kernels.h5", CommandSequence([prefill, *KERNELS]))
    verify_archive(tmp_path / "kernels.h5")
    with open_archive(tmp_path / "kernels.h5") as archive:
        first, *stored = archive.commands()
        assert first == prefill
        for made, read in zip(KERNELS, stored, strict=True):
            assert read.info == made.info
            for ours, theirs in zip(made.workgroups(), read.workgroups(), strict=True):
                assert ours.index == theirs.index
                assert (ours.events == theirs.events).all()
                assert (ours.first_event == theirs.first_event).all()
                assert (ours.warp == theirs.warp).all()


def test_fingerprint_of_a_sequence_depends_on_order_and_copies():
    orders = [KERNELS, KERNELS[::-1], [Prefill(0, 32), *KERNELS], [Prefill(0, 64), *KERNELS]]
    assert len({CommandSequence(commands).fingerprint() for commands in orders}) == len(orders)
