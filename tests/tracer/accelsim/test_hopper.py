"""Lines of Accel-Sim 2.0's tracer: barriers with two immediates, TMA copies, matrix instructions of warpgroups."""

import re

import pytest

from tests.support.accelsim_texts import block_text, events_of, kernel_text, read, write
from tracer.accelsim.problems import TraceError
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.writer import export_accelsim
from traces.schema import ARRIVE_ONLY, Kind, Pipe, Space

ENDS = {"5": "0 0 ", "6": "0 0 NoVal "}
"""Accel-Sim 2.0 calls its traces version 6 if they have values of registers, else 5."""


@pytest.mark.parametrize("version", ENDS)
def test_barriers_of_tracers_of_2026_have_number_and_threads(tmp_path, version):
    """The number may be in a register: then the first immediate is the threads, and only tracer 6 knows the number."""
    values = {"5": ("", "", ""), "6": ("NoVal ", "Val 1 b ", "Val 32" + " 5" * 32 + " 1 2 ")}[version]
    lines = [
        f"0000 ffffffff 0 BAR.SYNC.DEFER_BLOCKING 0 0 0 0 {values[0]}",
        f"0010 ffffffff 0 BAR.SYNC.DEFER_BLOCKING 0 0 3 128 {values[0]}",
        f"0020 ffffffff 0 BAR.ARV 0 0 9 64 {values[0]}",
        f"0030 ffffffff 1 R7 BAR.SYNC 0 0 96 0 {values[1]}",
        f"0040 ffffffff 1 UR4 BAR.SYNC 1 R3 0 32 0 {values[2]}",
        f"0050 ffffffff 1 R7 BAR.SYNC 0 0 4 64 {values[1]}",
        f"0060 ffffffff 0 EXIT 0 0 0 0 {values[0]}",
    ]
    events = events_of(tmp_path, lines, block="128,1,1", version=version, architecture=90)
    found = [(int(e["slot"]), int(e["work"]), int(e["space"])) for e in events[:-1]]
    named = [(11, 96, 0), (5, 32, 0)] if version == "6" else [(3, 96, 0), (1, 32, 0)]
    assert found == [(0, 0, 0), (3, 128, 0), (9, 64, ARRIVE_ONLY), *named, (4, 64, 0)]


def test_an_impossible_barrier_is_refused(tmp_path):
    line, end = "0000 ffffffff 0 BAR.SYNC 0 0 {} 0 NoVal ", "0010 ffffffff 0 EXIT 0 0 0 0 NoVal "
    for number in (16, 300, -1):
        with pytest.raises(TraceError, match="slot: found 255, allowed of a barrier 0 to 15"):
            events_of(tmp_path, [line.format(number), end], version=6, architecture=90)
        assert read(tmp_path / "kernel-1.traceg", lenient=True)[0] == []  # left out
    with pytest.raises(TraceError, match=r"bad register values after `Val`: .*Val 1 zz"):
        events_of(tmp_path, ["0000 ffffffff 1 R7 BAR.SYNC 0 0 64 0 Val 1 zz ", end], version=6, architecture=90)


MATRIX = 0x7F4000000000


@pytest.mark.parametrize(
    ("columns", "last"),
    [
        (f"LDG.E 1 R4 4 0 {MATRIX:#x} {MATRIX + 4096:#x} {MATRIX:#x}", f"{MATRIX + 64:#x}"),
        (f"LDG.E 1 R4 4 2 {MATRIX:#x} 4096 4096", "4096"),
        (f"UTMALDG.2D 2 UR4 UR8 32 0x400 0 128 0 3 3 {MATRIX:#x} {MATRIX + 32:#x}", f"{MATRIX + 64:#x}"),
        (f"UTMALDG.2D 2 UR4 UR8 32 0x400 0 128 0 4 {MATRIX:#x} 4 32 32", "32"),
    ],
)
def test_an_immediate_is_no_address_that_is_missing(tmp_path, columns, last):
    end = "0010 ffffffff 0 EXIT 0 0 0 0 NoVal "
    events_of(tmp_path, [f"0000 0000000f 0 {columns} {last} 0 0 NoVal ", end], version=6, architecture=90)
    with pytest.raises(TraceError, match=r"kernel-1\.traceg:\d+: (fewer addresses|.* lacks an address or delta)"):
        events_of(tmp_path, [f"0000 0000000f 0 {columns} 0 0 NoVal ", end], version=6, architecture=90)


HALF_LINES = "16 " * 3 + "208 " + "16 " * 3
"""Deltas of two rows of 64 bytes, 256 bytes apart, in transfers of 16 bytes."""


@pytest.mark.parametrize("version", ENDS)
@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (f"16 0x00000400 0 128 0 4 0x7f4000000000 8 {HALF_LINES}", [(0, 64), (256, 320)]),
        (f"16 0x00000400 1 0x0003 128 0 4 0x7f4000000000 8 {HALF_LINES}", [(0, 64), (256, 320)]),
        ("4 0x00000400 0 64 32 4 0x7f4000000000 16 " + "4 " * 15, [(0, 64)]),
        ("32 0x00000000 0 64 0 3 2 0x00007f4000000100 0x00007f4000000000 ", [(256, 288), (0, 32)]),
    ],
)
def test_bulk_copies_move_their_transfers(tmp_path, columns, rows, version):
    """Transfers that follow each other are one row; a row is lanes of 16 bytes. rows: begin and end of each."""
    events = events_of(tmp_path, [
        f"0000 ffffffff 1 R4 IADD3 1 UR4 0 {ENDS[version]}",
        f"0010 00000001 0 UTMALDG.2D 1 UR8 {columns}{ENDS[version]}",
        f"0020 ffffffff 0 EXIT 0 0 {ENDS[version]}",
    ], version=version, architecture=90)  # fmt: skip
    (copy,) = events[events["kind"] == Kind.ASYNC_COPY]
    workgroups, problems = read(tmp_path / "kernel-1.traceg")
    lanes = workgroups[0].addresses - 0x7F4000000000
    expected = [lane for begin, end in rows for lane in range(begin, end, 16)]
    found = (lanes.tolist(), int(copy["mask"]), int(copy["width_bytes"]))
    assert found == (expected, (1 << len(expected)) - 1, 16)
    assert events["count"].sum() == 3 and problems == []


@pytest.mark.parametrize(
    ("transfers", "sectors"),
    [("4 {:#x} 4 8 8 8", [0]), ("4 {:#x} 3 32 32", [0, 1, 2]), ("3 2 {:#x} 0x7f400000003c", [0, 1])],
)
def test_transfers_that_are_apart_move_their_sectors_only(tmp_path, transfers, sectors):
    """4 bytes at every second, or every eighth place: a tensor map with element strides."""
    columns = f"4 0x00000400 0 16 0 {transfers.format(MATRIX)} 0 0 NoVal "
    events = events_of(tmp_path, [
        f"0010 00000001 0 UTMALDG.2D 1 UR8 {columns}", "0020 ffffffff 0 EXIT 0 0 0 0 NoVal ",
    ], version=6, architecture=90)  # fmt: skip
    workgroups, _ = read(tmp_path / "kernel-1.traceg")
    (copy,) = events[events["kind"] == Kind.ASYNC_COPY]
    offsets = (workgroups[0].addresses - MATRIX).astype(int)
    found = {sector for offset in offsets for sector in (offset // 32, (offset + int(copy["width_bytes"]) - 1) // 32)}
    assert sorted(found) == sectors


def test_a_workgroup_does_not_depend_on_the_one_before(tmp_path):
    """The copy stands where the workgroup before has a load with a stride."""
    load = f"0010 ffffffff 1 R8 LDG.E 1 R2 4 1 {MATRIX:#x} 4 0 0 "
    copy = f"0010 00000001 0 UTMALDG.2D 1 UR8 16 0x400 0 128 0 4 {MATRIX:#x} 8 {HALF_LINES}0 0 "
    end = "0020 ffffffff 0 EXIT 0 0 0 0 "
    text = kernel_text([[copy, end]], grid="3,1,1", architecture=90)
    text += block_text([[load, end]], "1,0,0") + block_text([[copy, end]], "2,0,0")
    (first, _, last), _ = read(write(tmp_path, text))
    assert first.events.tolist() == last.events.tolist()


def test_a_long_bulk_copy_is_several_events(tmp_path):
    events = events_of(tmp_path, [
        "0010 00000001 0 UTMALDG.2D 1 UR8 16 0x400 0 2048 0 4 0x7f4000000000 128 " + "16 " * 127 + "0 0 NoVal ",
        "0020 ffffffff 0 EXIT 0 0 0 0 NoVal ",
    ], version=6, architecture=90)  # fmt: skip
    copies = events[events["kind"] == Kind.ASYNC_COPY]
    assert list(copies["count"]) == [1, 0, 0, 0]
    assert list(copies["mask"]) == [0xFFFFFFFF] * 4


@pytest.mark.parametrize("opcode", ["UBLKCP.S.G", "UBLKCP.G.S"])
def test_no_sector_of_a_long_bulk_copy_is_in_two_events(tmp_path, opcode):
    """2048 bytes that begin in the middle of a sector."""
    events = events_of(tmp_path, [
        f"0010 00000001 0 {opcode} 1 UR8 1024 0x400 0 2048 0 4 {MATRIX + 16:#x} 2 1024 0 0 NoVal ",
        "0020 ffffffff 0 EXIT 0 0 0 0 NoVal ",
    ], version=6, architecture=90)  # fmt: skip
    (workgroup,), _ = read(tmp_path / "kernel-1.traceg")
    found = []
    for event in events[events["base"] < 128][:-1]:
        lanes = workgroup.addresses[event["base"] :][: int(event["mask"]).bit_count()] - MATRIX
        found += sorted({int(lane) // 32 for lane in lanes})
    assert found == list(range(65))


@pytest.mark.parametrize("version", ENDS)
def test_bulk_copies_without_transfers_or_address_move_nothing(tmp_path, version):
    """Predicated off, all outside the tensor, one transfer (the tracer leaves out its address), an old tracer."""
    end = ENDS[version]
    lines = [
        f"0000 00000000 0 UTMALDG.2D 1 UR8 0 0x0 0 0 0 4 0x0 0 {end}",
        f"0010 00000001 0 UTMALDG.2D 1 UR8 16 0x00000400 0 0 128 4 0x0 0 {end}",
        f"0020 00000001 0 UBLKCP.S.G 2 UR8 UR6 16 0x00000400 0 16 0 4 0x0 1 {end}",
        f"0030 00000001 0 UTMACCTL.PF 1 UR8 4 1 0x7f4000000000 0 {end}",
        f"0040 00000001 0 UTMACMDFLUSH 0 0 {end}",
        f"0050 00000001 0 UTMALDG.2D 1 UR8 0 {end}",
        f"0060 ffffffff 0 EXIT 0 0 {end}",
    ]
    workgroups, problems = read(write(tmp_path, kernel_text([lines], version=version, architecture=90)))
    assert set(workgroups[0].events["kind"]) == {Kind.COMPUTE, Kind.EXIT}
    assert workgroups[0].events["count"].sum() == 7
    number = (tmp_path / "kernel-1.traceg").read_text().split("\n").index(lines[5]) + 1
    assert len(problems) == 2 and "a bulk copy of one transfer, whose address" in problems[0]
    assert problems[1].startswith(f"kernel-1.traceg:{number}: a TMA instruction of width 0")


def test_too_large_a_bulk_copy_is_refused(tmp_path):
    line = "0010 00000001 0 UTMALDG.2D 1 UR8 1024 0x400 0 0 0 4 0x7f4000000000 300 " + "1024 " * 299 + "0 0 "
    with pytest.raises(TraceError, match="bulk copy: transfers: allowed are up to 16384 pieces"):
        events_of(tmp_path, [line, "0020 ffffffff 0 EXIT 0 0 0 0 "], architecture=90)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("0xzz 0 128 0 4 0x7f4000000000 1", "barrier: allowed is an address"),
        ("0x400 x 128 0 4 0x7f4000000000 1", "multicast: allowed 0, or 1"),
        ("0x400 1 zz 128 0 4 0x7f4000000000 1", "multicast: allowed 0, or 1"),
        ("0x400 0 128 x 4 0x7f4000000000 1", "bytes and bytes outside: allowed are two"),
        ("0x400 0 128 0 2 0x7f4000000000 1", "address mode: allowed 3, 4"),
        ("0x400 0 128 0 4 0x7f4000000000 -1", "number of transfers (mode 4: behind a base address): allowed 0 and"),
    ],
)
def test_a_bad_column_of_a_bulk_copy_is_named(tmp_path, columns, message):
    line = f"0010 00000001 0 UTMALDG.2D 1 UR8 16 {columns} 0 0 "
    with pytest.raises(TraceError, match=rf"kernel-1\.traceg:\d+: bulk copy: {re.escape(message)}.*: '0010 "):
        events_of(tmp_path, [line, "0020 ffffffff 0 EXIT 0 0 0 0 "], architecture=90)


@pytest.mark.parametrize(("version", "columns"), [("5", "0 0 "), ("5", "1 0 0 0 "), ("6", "1 0 0 0 NoVal ")])
def test_matrix_instructions_of_warpgroups(tmp_path, version, columns):
    """Tracers of 2026 write a flag before the width."""
    events = events_of(tmp_path, [
        f"0000 ffffffff 1 R24 HGMMA.64x128x16.F32 1 R24 {columns}",
        f"0010 ffffffff 0 EXIT 0 0 0 0 {'NoVal ' if version == '6' else ''}",
    ], version=version, architecture=90)  # fmt: skip
    assert events["work"].max() == 64 * 128 * 16 // 4
    assert events["pipe"][0] == Pipe.TENSOR


@pytest.mark.parametrize(("opcode", "kind"), [("UBLKCP.S.G", Kind.ASYNC_COPY), ("UBLKCP.G.S", Kind.STORE)])
def test_a_bulk_copy_to_global_memory_is_a_store_and_comes_back(tmp_path, opcode, kind):
    text = kernel_text([[
        f"0000 00000001 0 {opcode} 1 UR8 512 0x400 0 512 0 3 1 0x7f4000000000 0 0 NoVal ",
        "0030 ffffffff 0 EXIT 0 0 0 0 NoVal ",
    ]], version=6, architecture=90)  # fmt: skip
    source = open_accelsim(write(tmp_path, text))
    export_accelsim(source, tmp_path / "out")
    for trace in (source, open_accelsim(tmp_path / "out")):
        (workgroup,) = next(trace.commands()).workgroups()
        copy = workgroup.events[0]
        found = (copy["kind"], copy["space"], copy["width_bytes"], copy["mask"])
        assert found == (kind, Space.GLOBAL, 16, 0xFFFFFFFF)  # 512 bytes
