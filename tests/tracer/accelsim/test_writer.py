"""Export: what Accel-Sim can read, and import - export - import as the identity."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.support.accelsim_texts import kernel_text, write
from tests.support.programs import kernel, phase_arrive
from tests.support.random_instructions import random_actions
from tests.support.trace_samples import ListSource, random_kernel
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.writer import export_accelsim, same_events
from tracer.gemm.source import Copy, GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from traces.errors import UserError
from traces.schema import Kind
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
    bulk = GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.BULK)
    clustered = GemmSource(GemmProblem(128, 128, 64), replace(bulk, cluster_m=2))
    with pytest.raises(UserError, match="found clusters of 2 workgroups, an Accel-Sim trace has none"):
        export_accelsim(CommandSequence([clustered]), tmp_path / "out")
    with pytest.raises(UserError, match=r"found a bulk copy .* does not tell its box"):
        export_accelsim(CommandSequence([GemmSource(GemmProblem(128, 128, 64), bulk)]), tmp_path / "bulk")
    with pytest.raises(UserError, match="has no transaction barriers"):
        export_accelsim(CommandSequence([kernel([[[phase_arrive(0)]]])]), tmp_path / "phases")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the folder"):
        export_accelsim(CommandSequence([GEMMS[0]]), tmp_path / "file")
