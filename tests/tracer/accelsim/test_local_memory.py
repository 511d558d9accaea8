"""Local memory: each thread has its own, in words that lie side by side for the lanes of a warp."""

import numpy as np
import pytest

from tests.support.accelsim_texts import block_text, events_of, kernel_text, read, write
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.warp_lines import lane_addresses, rows_of
from tracer.accelsim.writer import export_accelsim, same_events
from traces.schema import Kind, Space

EXIT = "0f00 ffffffff 0 EXIT 0 0 0 "
BASE = 1 << 50


def lanes_of(workgroup):
    """(width, addresses of the lanes) of each memory event."""
    rows = [row for row in rows_of(workgroup.events) if row.kind <= Kind.ASYNC_COPY]
    return [(row.width_bytes, np.array(lane_addresses(row, workgroup.addresses))) for row in rows]


def sectors(width, lanes):
    return {int(address) // 32 for lane in lanes for address in range(lane, lane + width)}


def local(tmp_path, opcode, width, mask="ffffffff", columns="1 0xfffcd0 0"):
    """Addresses of the lanes of one access."""
    line = f"0000 {mask} 1 R8 {opcode} 1 R2 {width} {columns} 0 "
    workgroups, _ = read(write(tmp_path, kernel_text([[line, EXIT]])))
    (access,) = lanes_of(workgroups[0])
    return access


def test_each_warp_of_the_grid_has_its_own_local_memory(tmp_path):
    """4 blocks of 2 warps spill 8 bytes of each lane and read them again: 8 sectors a warp."""
    spill = ["0000 ffffffff 0 STL.64 2 R1 R8 8 1 0xfffcd0 0 0 ", "0010 ffffffff 1 R8 LDL.64 1 R1 8 1 0xfffcd0 0 0 "]
    warps = [[*spill, EXIT]] * 2
    text = kernel_text(warps, grid="2,2,1", block="64,1,1")
    text += "".join(block_text(warps, block) for block in ("1,0,0", "0,1,0", "1,1,0"))
    source = open_accelsim(write(tmp_path, text))
    (kernel,) = source.commands()
    found = [sectors(*access) for workgroup in kernel.workgroups() for access in lanes_of(workgroup)]
    stored, loaded = found[::2], found[1::2]
    assert stored == loaded
    assert [len(each) for each in stored] == [8] * 8 and len(set().union(*stored)) == 64
    export_accelsim(source, tmp_path / "out")
    (again,) = open_accelsim(tmp_path / "out").commands()
    assert all(same_events(*pair) for pair in zip(kernel.workgroups(), again.workgroups(), strict=True))


WIDTHS = [("LDL.U8", 1), ("LDL.S16", 2), ("LDL", 4), ("LDL.64", 8), ("LDL.128", 16)]


@pytest.mark.parametrize(("opcode", "width"), WIDTHS)
def test_lanes_of_up_to_a_word_are_a_word_apart_and_wider_ones_side_by_side(tmp_path, opcode, width):
    found, lanes = local(tmp_path, opcode, width)
    assert found == width and (np.diff(lanes) == max(width, 4)).all()
    assert len(sectors(width, lanes)) == max(width, 4)  # of 32 lanes: one sector per byte of a lane


def test_words_of_a_thread_do_not_meet(tmp_path):
    """16 bytes are the same bytes as their four words. The next 16 bytes lie elsewhere."""
    whole = sectors(*local(tmp_path, "LDL.128", 16))
    words = [sectors(*local(tmp_path, "LDL", 4, columns=f"1 {0xFFFCD0 + 4 * k:#x} 0")) for k in range(5)]
    assert whole == set().union(*words[:4]) and not whole & words[4]


@pytest.mark.parametrize("columns", ["1 0xfffcd0 0", "0 0xfffcd0 0xfffcd0 0xfffcd0", "2 0xfffcd0 0 0"])
def test_a_lane_has_its_word_whatever_the_mask_and_the_mode(tmp_path, columns):
    _, full = local(tmp_path, "LDL", 4)
    _, some = local(tmp_path, "LDL", 4, "80000012", columns)
    assert list(some) == [full[1], full[4], full[31]]


@pytest.mark.parametrize(
    ("opcode", "columns"), [("STL", "1 0xfffcd0 4"), ("STL", f"1 {BASE:#x} 0"), ("STG", "1 0x40 0")]
)
def test_lanes_with_their_own_addresses_keep_them(tmp_path, opcode, columns):
    _, lanes = local(tmp_path, opcode, 4, columns=columns)
    base, stride = (int(word, 0) for word in columns.split()[1:])
    assert list(lanes) == [base + stride * k for k in range(32)]


def test_huge_grids_stay_in_the_address_space(tmp_path):
    line = "0000 ffffffff 0 STL 2 R1 R8 4 1 0xfffffc 0 0 "
    event = events_of(tmp_path, [line, EXIT], grid="2147483647,65535,1", block="1024,1,1")[0]
    assert event["space"] == Space.LOCAL and BASE < event["base"] < 1 << 52
