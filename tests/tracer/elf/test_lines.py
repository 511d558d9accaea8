"""Line tables; the expected rows are those of `llvm-dwarfdump --debug-line`, at one address the last one."""

from pathlib import Path

import numpy as np
import pytest

from tracer.elf.by_line import attribute
from tracer.elf.cursor import Cursor
from tracer.elf.line_table import line_table
from traces.errors import UserError
from traces.schema import EVENT, EXPLICIT, PLAIN_STRIDE, Kind, Space
from traces.source import Workgroup

BINARIES = Path(__file__).parent / "binaries"
CU, CUH, CL = "/src/kernels.cu", "/src/lines.cuh", "/src/kernels.cl"


def test_cubin_with_inlined_code_from_another_file():
    table = line_table(BINARIES / "lines_sm90.cubin", "stencil::scale")
    assert table.kernel == "_ZN7stencil5scaleIfEEvPT_PKS1_5Shapec"
    assert table.rows()[:4] == [(0x0, CU, 20), (0x10, CU, 21), (0x20, CU, 22), (0x30, CU, 21)]
    assert table.rows()[8:12] == [(0xA0, CU, 22), (0xB0, CUH, 3), (0xD0, CU, 23), (0xF0, CUH, 3)]
    assert table.end_pc == 0x300


@pytest.mark.parametrize(
    ("file", "rows"),
    [
        ("lines_sm90.cubin", [(0x0, CU, 51), (0x10, CU, 52), (0x60, CU, 53), (0x100, "", 0)]),
        (
            "kernels_gfx90a.co",
            [(0x0, CL, 7), (0x20, CL, 9), (0x44, CL, 7), (0x50, CL, 8), (0x58, CL, 9), (0x6C, CL, 10)],
        ),
    ],
)
def test_rows_count_from_the_kernel(file, rows):
    """Relocated (CUDA) and absolute (AMD, DWARF 5) programs alike."""
    assert line_table(BINARIES / file, "promised").rows() == rows


def test_older_abi_with_implicit_addends():
    table = line_table(BINARIES / "kernels_sm70.cubin", "bounded")
    assert table.rows()[:3] == [(0x0, CU, 29), (0x20, CU, 31), (0x60, CU, 33)]
    assert table.rows()[-1] == (0x180, "", 0)


def test_lines_of_program_counters():
    table = line_table(BINARIES / "lines_sm90.cubin", "promised")
    at = table.ranges_of(np.array([0x0, 0xF, 0x10, 0x50, 0x60, 0xF0, 0x100, 0x1000]))
    assert table.lines[at[:6]].tolist() == [51, 51, 52, 52, 53, 53] and not table.file_numbers[at[:6]].any()
    assert at[6:].tolist() == [len(table.pcs)] * 2


@pytest.mark.parametrize(
    ("file", "kernel", "architecture", "message"),
    [
        ("kernels_sm90.cubin", "bounded", None, "-lineinfo"),
        ("lines_sm90.cubin", "absent", None, r"no kernel absent, only bounded \(sm_90\)"),
        ("host_zstd.o", "bounded", None, "bounded for sm_75, bounded for sm_90"),
        ("host_zstd.o", "bounded", "sm_80", "no kernel bounded for sm_80"),
    ],
)
def test_what_is_missing_is_named(file, kernel, architecture, message):
    with pytest.raises(UserError, match=message):
        line_table(BINARIES / file, kernel, architecture)


def event(kind, pc, **fields):
    row = np.zeros((), EVENT)
    row["kind"], row["pc"], row["count"], row["inner"], row["mask"] = kind, pc, 1, PLAIN_STRIDE, 2**32 - 1
    for name, value in fields.items():
        row[name] = value
    return row


@pytest.mark.slow
def test_traffic_by_line():
    """Every event is a row of a twin written by hand: 32 lanes of 4 bytes are 4 sectors, 32 rows apart are 32."""
    table = line_table(BINARIES / "lines_sm90.cubin", "promised")
    events = np.array(
        [
            event(Kind.COMPUTE, 0x0, count=5),
            event(Kind.LOAD, 0x10, base=0x1000, stride=4, width_bytes=4),
            event(Kind.LOAD, 0x20, base=0x1000, stride=4096, width_bytes=4),
            event(Kind.LOAD, 0x30, base=0x1000, stride=4, width_bytes=4, space=Space.SHARED),
            event(Kind.STORE, 0x60, inner=EXPLICIT, base=0, mask=0b11, width_bytes=8),
            event(Kind.REDUCE, 0x60, base=0x40, stride=0, width_bytes=4),
            event(Kind.STORE, 0x9990, base=0, stride=4, width_bytes=4, mask=0),
            event(Kind.EXIT, 0x70),
        ]
    )
    addresses = np.array([0x2000, 0x2040], np.uint64)
    workgroup = Workgroup(0, np.zeros(1, np.uint16), np.array([0, events.size]), events, addresses)
    found = {(traffic.file, traffic.line): traffic for traffic in attribute([workgroup, workgroup], table)}
    assert list(found) == [(CU, 52), (CU, 53), ("", 0), (CU, 51)]
    assert (found[CU, 52].loads, found[CU, 52].load_sectors, found[CU, 52].shared) == (4, 2 * 36, 2)
    assert (found[CU, 53].stores, found[CU, 53].store_sectors) == (2, 4)
    assert (found[CU, 53].atomics, found[CU, 53].atomic_sectors) == (2, 2)
    assert (found["", 0].stores, found["", 0].store_sectors) == (2, 0)
    assert sum(traffic.instructions for traffic in found.values()) == 2 * 12


def test_numbers_of_variable_length():
    assert Cursor(bytes([0xE5, 0x8E, 0x26])).uleb() == 624485
    assert Cursor(bytes([0x80, 0x7F])).sleb() == -128
    assert Cursor(bytes([0x3F])).sleb() == 63
    with pytest.raises(ValueError, match="more than 64 bits"):
        Cursor(b"\xff" * 12).uleb()
    with pytest.raises(ValueError, match="data ends"):
        Cursor(b"\xff").uleb()
