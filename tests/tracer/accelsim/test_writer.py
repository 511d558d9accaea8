"""Export: what Accel-Sim can read, and import - export - import as the identity."""

import re
from dataclasses import replace

import numpy as np
import pytest

import t3sim
from tests.support.accelsim_texts import kernel_text, write
from tests.support.cluster_texts import Pipeline, text_of, trace
from tests.support.programs import barrier, bulk, kernel, phase_arrive, remote
from tests.support.random_instructions import random_actions
from tests.support.trace_samples import ListKernel, ListSource, random_kernel
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.writer import export_accelsim, same_events
from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from traces.errors import UserError
from traces.schema import Bulk, Kind, Pipe
from traces.source import Prefill

LINE = re.compile(
    r"[0-9a-f]{4,8} [0-9a-f]{8} (0|1 R\d+) (?P<opcode>[A-Z][A-Za-z0-9_.]+) ([0-4])((?: R\d+)*) "
    r"(0|\d+ 1 0x[0-9a-f]+ -?\d+|\d+ 0( 0x[0-9a-f]+)+|\d+ 2 0x[0-9a-f]+( -?\d+)*) -?\d+( T3 \d+ 0x[0-9a-f]+ \d)? "
)


VOLTA = {
    "IADD3", "FFMA", "DADD", "MUFU", "HMMA", "BRA", "LDC", "BAR", "EXIT", "DEPBAR", "LDG", "LDL", "LDS", "STG", "STL",
    "STS", "ATOMG", "ATOMS", "RED",
}  # fmt: skip
"""Opcodes of Accel-Sim's table for sm_70 that the writer uses."""
AMPERE = VOLTA | {"LDGSTS", "LDGDEPBAR"}


def same(left, right):
    """Every workgroup of two sources comes back."""
    for ours, theirs in zip(left.commands(), right.commands(), strict=True):
        if isinstance(ours, Prefill):
            assert ours == theirs
            continue
        for one, other in zip(ours.workgroups(), theirs.workgroups(), strict=True):
            assert same_events(one, other), one.index


def check_text(folder):
    """Every file looks like a version-5 trace: columns, sources, EXIT at the end of every warp, counts."""
    for path in folder.glob("*.traceg"):
        text = path.read_text()
        assert "-accelsim tracer version = 5\n" in text
        known = VOLTA if "-binary version = 70\n" in text else AMPERE
        for body in text.split("\nwarp = ")[1:]:
            _, count, *lines = body.split("\n#END_TB")[0].rstrip("\n").split("\n")
            assert count == f"insts = {len(lines)}"
            assert " EXIT " in lines[-1]
            for line in lines:
                match = LINE.fullmatch(line)
                assert match, line
                assert len(match[4].split()) == int(match[3]), line
                assert match["opcode"].split(".")[0] in known, line


@pytest.mark.parametrize(("seed", "registers"), [(1, 30), (2, 250), (3, 250)])
def test_random_programs_come_back_without_notes(tmp_path, seed, registers):
    _, lines = random_actions(np.random.default_rng(seed), 400, registers)
    first = open_accelsim(write(tmp_path, kernel_text([[*lines, "f000 ffffffff 0 EXIT 0 0 0 "]], architecture=80)))
    summary = export_accelsim(first, tmp_path / "out")
    assert summary.changed_workgroups == 0
    same(first, open_accelsim(tmp_path / "out"))
    check_text(tmp_path / "out")


def test_a_list_with_prefills_and_xz(tmp_path):
    write(tmp_path, kernel_text([["0000 ffffffff 1 R8 LDG.E.CG 1 R2 4 1 0x7f40 4 0 ", "0010 ffffffff 0 EXIT 0 0 0 "]]))
    write(tmp_path, "MemcpyHtoD,0x00007f0000000000,4096\nkernel-1.traceg\n", "kernelslist.g")
    first = open_accelsim(tmp_path)
    summary = export_accelsim(first, tmp_path / "out", xz=True)
    assert (summary.kernels, summary.prefills, summary.noted_workgroups) == (1, 1, 0)
    assert (
        tmp_path / "out" / "kernelslist.g"
    ).read_text() == "MemcpyHtoD,0x00007f0000000000,4096\nkernel-1.traceg.xz\n"
    same(first, open_accelsim(tmp_path / "out"))
    kernels = [list(trace.commands())[1].info for trace in (first, open_accelsim(tmp_path / "out"))]
    assert kernels[0].name == kernels[1].name
    assert (kernels[0].registers, kernels[0].block) == (kernels[1].registers, kernels[1].block)


GEMMS = [
    GemmSource(GemmProblem(300, 200, 77, with_c=True), GemmKernel(64, 64, 32, 2, 2)),
    GemmSource(GemmProblem(130, 90, 77), GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.ASYNC)),
]


@pytest.mark.parametrize("gemm", GEMMS, ids=["loads", "copies"])
def test_synthesised_gemms_come_back(tmp_path, gemm):
    source = CommandSequence([gemm])
    summary = export_accelsim(source, tmp_path / "out")
    assert summary.changed_workgroups == 0
    same(source, open_accelsim(tmp_path / "out"))
    check_text(tmp_path / "out")


def test_copies_of_a_gemm_are_waited_for_by_depbar(tmp_path):
    """Accel-Sim sees LDGSTS only through LDGDEPBAR and DEPBAR: both stand in the text."""
    export_accelsim(CommandSequence([GEMMS[1]]), tmp_path / "out")
    text = (tmp_path / "out" / "kernel-1.traceg").read_text()
    assert text.count(" LDGDEPBAR ") > 0
    assert text.count(" DEPBAR.LE ") > 0


def test_random_events_keep_their_meaning(tmp_path):
    """Any archive can be exported; what SASS has no form for is counted."""
    kernel = random_kernel(3, workgroups=3)
    for item in kernel.items:
        events = item.events
        events["width_bytes"] = 4
        events["count"] = np.minimum(events["count"], 20)
        ends = item.first_event[1:] - 1
        events["kind"][(events["kind"] == Kind.EXIT)] = Kind.STORE
        for end, begin in zip(ends, item.first_event[:-1], strict=True):
            if end >= begin:
                events["kind"][end] = Kind.EXIT
    summary = export_accelsim(ListSource([kernel]), tmp_path / "out")
    assert summary.workgroups == 3
    for command in open_accelsim(tmp_path / "out").commands():
        list(command.workgroups())


def test_refusals(tmp_path):
    wide = GemmSource(GemmProblem(100, 90, 77), GemmKernel(64, 64, 32, 2, 2, 3, lanes=64))
    with pytest.raises(UserError, match="64 lanes per warp, an Accel-Sim trace has 32"):
        export_accelsim(CommandSequence([wide]), tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the folder"):
        export_accelsim(CommandSequence([GEMMS[0]]), tmp_path / "file")


HOPPER = [
    (GemmProblem(500, 256, 200), GemmKernel(128, 128, 64, 4, 1, 4, copy=Copy.PRODUCER, warpgroup=4)),
    (GemmProblem(512, 256, 256), GemmKernel(128, 128, 64, 4, 1, 4, copy=Copy.PRODUCER, warpgroup=4, cluster_m=2)),
    (GemmProblem(256, 256, 200), GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.BULK, cluster_m=2, cluster_n=2)),
    (GemmProblem(256, 256, 200), GemmKernel(64, 64, 32, 2, 2, 8, copy=Copy.BULK, cluster_n=2, persistent=4)),
]
HOPPER_LINE = re.compile(
    r"[0-9a-f]{4,8} [0-9a-f]{8} (0|1 R\d+) (?P<opcode>[A-Z][A-Za-z0-9_.]+) ([0-4])((?: R\d+)*) "
    r"(0|\d+ 1 0x[0-9a-f]+ -?\d+|\d+ 0( 0x[0-9a-f]+)+|\d+ 2 0x[0-9a-f]+( -?\d+)*"
    r"|\d+ 0x[0-9a-f]{8} (0|1 0x[0-9a-f]{4}) \d+ 0 4 0x[0-9a-f]+ \d+( \d+)*) "
    r"\d+ \d+ (NoVal|Val 1 0 1 [0-9a-f]+) (T3 \d+ 0x[0-9a-f]+ \d )?"
)


@pytest.mark.parametrize(("problem", "shape"), HOPPER)
def test_gemms_of_hopper_come_back(tmp_path, problem, shape):
    """Every event, the clusters, and so the time on the machine."""
    source = CommandSequence([GemmSource(problem, shape)])
    summary = export_accelsim(source, tmp_path)
    assert summary.changed_workgroups == 0
    same(source, open_accelsim(tmp_path))
    text = (tmp_path / "kernel-1.traceg").read_text()
    assert "-accelsim tracer version = 6\n" in text and "-binary version = 90\n" in text
    for body in text.split("\nwarp = ")[1:]:
        _, count, *lines = body.split("\n#END_TB")[0].rstrip("\n").split("\n")
        assert count == f"insts = {len(lines)}"
        for line in lines:
            assert HOPPER_LINE.fullmatch(line), line
    ours, theirs = (t3sim.run(one, machine="h100_sxm") for one in (source, tmp_path))
    assert ours.headline()["time_ns"] == theirs.headline()["time_ns"]


@pytest.mark.parametrize(
    ("problem", "shape"),
    [
        (GemmProblem(22, 32, 48), GemmKernel(32, 32, 64, 2, 1, 2, copy=Copy.PRODUCER)),  # rows of a tile without gaps
        (GemmProblem(33, 32, 64), GemmKernel(32, 32, 16, 2, 1, 2, copy=Copy.PRODUCER)),  # a tile of one row
    ],
)
def test_rows_without_gaps_are_one_row(tmp_path, problem, shape):
    """A trace has transfers, not rows. The machine has one row, too."""
    assert export_accelsim(CommandSequence([GemmSource(problem, shape)]), tmp_path).changed_workgroups == 0


def test_bytes_that_others_bring_are_announced_where_their_line_stands(tmp_path):
    """The last workgroup of the cluster has too few rows and columns to load a part of them itself."""
    shape = GemmKernel(32, 32, 16, 2, 1, 2, copy=Copy.PRODUCER, cluster_m=2, cluster_n=2)
    gemm = GemmSource(GemmProblem(33, 40, 64), shape)
    *_, last = gemm.workgroups()
    assert not (last.events["kind"] == Kind.BULK).any()
    assert export_accelsim(CommandSequence([gemm]), tmp_path).changed_workgroups == 0


def test_matrix_instructions_of_warpgroups_keep_their_work(tmp_path):
    """HGMMA 64 x 64 x 16 of an imported pipeline: each warp does a quarter."""
    source = open_accelsim(write(tmp_path, text_of(*trace(Pipeline()))))
    export_accelsim(source, tmp_path / "out")
    for one in (source, open_accelsim(tmp_path / "out")):
        (kernel,) = one.commands()
        events = np.concatenate([workgroup.events for workgroup in kernel.workgroups()])
        tensor = events[(events["kind"] == Kind.COMPUTE) & (events["pipe"] == Pipe.TENSOR)]
        assert set(tensor["work"] // tensor["count"]) == {16384}


def test_barriers_are_made_before_all_warps_meet(tmp_path):
    """With the arrivals of a phase: one of the producer, those of the consumers of both workgroups."""
    export_accelsim(CommandSequence([GemmSource(*HOPPER[1])]), tmp_path)
    bodies = (tmp_path / "kernel-1.traceg").read_text().split("\nwarp = ")[1:]
    first, second, *_ = [[line for line in body.split("\n") if " T3 254 " in line] for body in bodies]
    made = [int(line.split(" Val 1 0 1 ")[1].split()[0], 16) for line in first if " SYNCS.EXCH.64 " in line]
    assert [(0x200000 - value) // 2 for value in made] == [1] * 4 + [8] * 4
    assert " BAR.SYNC" in first[-1] and len(second) == 1 and " BAR.SYNC" in second[0]


def test_bulk_stores_come_back_as_stores_of_the_same_bytes(tmp_path):
    """The reader has TMA stores as stores of warps (D47)."""
    shape = GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.BULK, epilogue=Epilogue.BULK)
    source = CommandSequence([GemmSource(GemmProblem(128, 128, 64), shape)])
    summary = export_accelsim(source, tmp_path)
    assert summary.changed_workgroups == summary.workgroups
    ours, theirs = (t3sim.run(one, machine="h100_sxm").frame("l2") for one in (source, tmp_path))
    assert ours["write_sectors"].sum() == theirs["write_sectors"].sum()


def test_an_imported_cluster_keeps_its_shape(tmp_path):
    """A cluster of one column and two rows: its workgroups are not neighbours in the grid."""
    shape = GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.BULK, cluster_m=2)
    gemm = GemmSource(GemmProblem(256, 256, 64), shape)
    items = list(gemm.workgroups())
    rows = [item._replace(index=n // 2 % 4 + 4 * (n % 2) + 8 * (n // 8)) for n, item in enumerate(items)]
    placed = ListSource([ListKernel(replace(gemm.info, grid=(4, 4, 1)), rows)])
    assert export_accelsim(placed, tmp_path / "out").changed_workgroups == 0
    kernel = next(iter(open_accelsim(tmp_path / "out").commands()))
    assert kernel.info.cluster == 2 and [w.index for w in kernel.workgroups()] == [w.index for w in rows]
    for first in (0, 2):  # in the first cluster, and in a later one
        other = [*items[:first], items[first + 1], items[first], *items[first + 2 :]]
        message = f"found workgroups {first + 1}, {first} of a grid of 16 x 1 x 1, allowed are those of a box of the"
        with pytest.raises(UserError, match=message):
            export_accelsim(ListSource([ListKernel(gemm.info, other)]), tmp_path / "no")
        assert not list((tmp_path / "no").iterdir())


def test_what_no_version_tells_is_refused(tmp_path):
    together = {"cluster": 2, "warps": 1}
    for event, message in (
        (bulk(0, 1, 64, kind=Bulk.SEND, barrier=0, to=[1]), "space of a bulk copy: found 3"),
        (remote(Kind.LOAD, 1, 0), "space: found 3"),
        (bulk(0, 257, 1024, 2048), "work: found 257 rows of 1024 bytes"),
        (phase_arrive(0, 1, at=[0, 1], expected_bytes=16), "row_stride: found 16 bytes"),
    ):
        with pytest.raises(UserError, match=message):
            export_accelsim(ListSource([kernel([[[event]], [[event]]], **together)]), tmp_path / "out")
    late = kernel([[[barrier(0)]], [[phase_arrive(0)]]])
    with pytest.raises(UserError, match="workgroup 1: found bulk copies or transaction barriers, allowed only if the"):
        export_accelsim(ListSource([late]), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.traceg"))
