"""The binary container of Accel-Sim 2.0 gives the text, the workgroups and the line numbers of the .traceg."""

import struct

import pytest
import zstandard

from tests.support.accelsim_texts import HEADER, read, write
from tests.support.tracez_writer import traceg, tracez, trained
from tracer.accelsim.problems import TraceError
from tracer.accelsim.stream import read_bytes
from tracer.accelsim.writer import same_events

HEAD = HEADER.format(version=6, grid="3,1,1", block="64,1,1", architecture=90, extra="")


def lines_of(block, warp):
    base = 0x7F4000000000 + 0x10000 * block + 0x1000 * warp
    return [
        *(f"{16 * k:04x} ffffffff 1 R{8 + k} LDG.E.64 1 R2 8 1 {base + 256 * k:#x} 8 0 0 NoVal " for k in range(7)),
        "0070 ffffffff 1 R12 DADD 2 R8 R10 0 0 0 NoVal ",
        "0080 ffffffff 0 EXIT 0 0 0 0 NoVal ",
    ]


BLOCKS = [((block, 0, 0), [lines_of(block, 0), lines_of(block, 1) if block else []]) for block in range(3)]
GOOD = tracez(HEAD, BLOCKS)


def error_of(tmp_path, content):
    with pytest.raises(TraceError) as error:
        read(write(tmp_path, content, "kernel-1.tracez"))
    return str(error.value).removeprefix(f"{tmp_path}/")


@pytest.mark.parametrize("piece_bytes", [1 << 22, 100])
@pytest.mark.parametrize("chunk_lines", [1, 4, 1000])
@pytest.mark.parametrize("dictionary", [None, trained(lines_of(1, 1))])
def test_the_text_is_that_of_trace_dsm(tmp_path, monkeypatch, dictionary, chunk_lines, piece_bytes):
    monkeypatch.setattr("tracer.accelsim.stream.BLOCK_BYTES", piece_bytes)
    path = write(tmp_path, tracez(HEAD, BLOCKS, dictionary, chunk_lines), "kernel-1.tracez")
    assert b"".join(read_bytes(path)).decode() == traceg(HEAD, BLOCKS)


def test_the_workgroups_are_those_of_the_text(tmp_path):
    write(tmp_path, GOOD, "kernel-1.tracez")
    write(tmp_path, "MemcpyHtoD,0x00007f0000000000,4096\nkernel-1.tracez\n", "kernelslist.g")
    found, problems = read(tmp_path)
    expected, same_problems = read(write(tmp_path, traceg(HEAD, BLOCKS)))
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        assert same_events(one, other)
    unnamed = [[line.replace(".tracez", ".traceg") for line in lines] for lines in (problems, same_problems)]
    assert unnamed[0] == unnamed[1]
    assert len(problems) == 1 and "a warp has no instructions" in problems[0]


def test_a_bad_line_has_its_number_in_the_text(tmp_path):
    blocks = [BLOCKS[0], (BLOCKS[1][0], [[*lines_of(1, 0)[:3], "00g0 nonsense", *lines_of(1, 0)[4:]], []])]
    number = traceg(HEAD, blocks).split("\n").index("00g0 nonsense") + 1
    assert f"kernel-1.tracez:{number}: " in error_of(tmp_path, tracez(HEAD, blocks))


def moved(offset):
    """The good file with another place of the index."""
    return GOOD[:-8] + struct.pack("<Q", offset)


def patched(place, new):
    return GOOD[:place] + new + GOOD[place + len(new) :]


def with_index(blocks):
    """The good data with the index of only these blocks."""
    other = tracez(HEAD, blocks)
    return GOOD[:INDEX] + other[struct.unpack("<Q", other[-8:])[0] : -8] + GOOD[-8:]


INDEX = struct.unpack("<Q", GOOD[-8:])[0]
FIRST_WARP = struct.unpack("<IIQ", GOOD[INDEX + 48 : INDEX + 64])[2]
FIRST_CHUNK = FIRST_WARP + 8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no 0 byte behind the header"),
        (b"garbage", "no 0 byte behind the header"),
        (HEAD.encode() + b"\0", "the size of the dictionary"),
        (HEAD.encode() + b"\0" + struct.pack("<II", 99, 0), "the dictionary at byte"),
        (HEAD.encode() + b"\0" + struct.pack("<II", 1 << 26, 0), f"at byte {len(HEAD) + 9} has {1 << 26} bytes"),
        (GOOD[:-1], "at byte"),
        (GOOD[: len(GOOD) // 2], "ends beyond byte"),
        (moved(len(GOOD)), "the index at byte"),
        (moved(1 << 63), "the index at byte"),
        (patched(INDEX, struct.pack("<I", 4)), "a thread block of the index at byte"),
        (patched(INDEX + 44, struct.pack("<I", 1 << 31)), "warp number is beyond the block's warps"),
        (patched(INDEX + 52, struct.pack("<I", 1 << 31)), "a warp of the index at byte"),
        (patched(INDEX + 56, struct.pack("<Q", 1 << 62)), "a warp at byte"),
        (patched(FIRST_CHUNK, struct.pack("<I", 1 << 30)), "a chunk at byte"),
        (patched(FIRST_CHUNK + 4, b"zzzz"), f"the chunk at byte {FIRST_CHUNK + 4}"),
        (patched(FIRST_CHUNK, struct.pack("<I", 30)), f"the chunk at byte {FIRST_CHUNK + 4} has 0 bytes of text"),
        (patched(INDEX, struct.pack("<I", 0)), f"the index at byte {INDEX} ends at byte {INDEX + 4}, expected"),
        (patched(INDEX, struct.pack("<I", 2)), f"ends at byte {INDEX + 4 + 2 * 44 + 3 * (16 + 5 * 4) + 16}, expected"),
        (with_index(BLOCKS[:2]), "the warps of the index have "),
        (with_index([]), "the warps of the index have 0 bytes, expected "),
        (patched(FIRST_WARP, struct.pack("<I", 8)), f"the warp at byte {FIRST_WARP} has 8 instructions in 5 chunks"),
        (
            patched(INDEX + 64, struct.pack("<I", 3)),
            f"the warp at byte {INDEX + 48} of the index has 9 instructions, its chunks 10",
        ),
    ],
)
def test_damage_is_named(tmp_path, content, message):
    found = error_of(tmp_path, content)
    assert found.startswith("kernel-1.tracez:") and message in found


def test_a_kernel_of_which_nothing_was_traced(tmp_path):
    """Accel-Sim's post-processing writes an empty index. The same as text has the same warning."""
    workgroups, (problem,) = read(write(tmp_path, tracez(HEAD, []), "kernel-1.tracez"))
    assert workgroups == [] and "3 of 3 thread blocks are missing" in problem


def test_a_damaged_dictionary_is_named(tmp_path):
    begin = len(HEAD) + 9
    good = tracez(HEAD, BLOCKS, trained(lines_of(1, 1)))
    damaged = good[: begin + 8] + b"\xff" * 64 + good[begin + 72 :]
    assert f"bad tracez data: the dictionary at byte {begin}: " in error_of(tmp_path, damaged)


def test_what_comes_before_a_damage_is_read(tmp_path):
    """The first chunk of the third block is damaged: a lenient reader keeps two blocks and counts the damage."""
    frame = zstandard.ZstdCompressor(level=3).compress("\n".join(lines_of(2, 0)[:2]).encode())
    damaged = patched(GOOD.index(frame), b"\0\0\0\0")
    workgroups, problems = read(write(tmp_path, damaged, "kernel-1.tracez"), lenient=True)
    assert [workgroup.index for workgroup in workgroups][:2] == [0, 1]
    assert any("bad tracez data" in line for line in problems)


@pytest.mark.parametrize("columns", ["0 0 0 NoVal ", "", "0 7 "])
def test_marks_of_replayed_loops_are_no_instructions(tmp_path, columns):
    """Accel-Sim 2.0 replays a loop that waits for a barrier. Its marks count as lines of the warp only."""
    wait = "0010 ffffffff 1 P0 SYNCS.PHASECHK.TRANS64.TRYWAIT 2 UR4 R5 8 1 0x400 0 0 0 NoVal "
    plain = [lines_of(1, 0)[0], wait, *lines_of(1, 0)[1:]]
    marked = [plain[0], f"0010 ffffffff 0 REPLAY_START {columns}", wait, f"0010 ffffffff 0 REPLAY_END {columns}"]
    marked += plain[2:]
    one, other = (
        read(write(tmp_path, tracez(HEAD, [((1, 0, 0), [lines, []])]), "kernel-1.tracez")) for lines in (plain, marked)
    )
    assert same_events(one[0][0], other[0][0])
    assert len(one[1]) == len(other[1])


def test_a_mark_takes_no_addresses_of_earlier_lines(tmp_path):
    """The mark stands where the workgroup before has a load with listed addresses."""
    listed = " ".join(f"{0x7F4000000000 + 64 * k * k:#x}" for k in range(32))
    end, mark = "0080 ffffffff 0 EXIT 0 0 0 0 NoVal ", "0010 ffffffff 0 REPLAY_START "
    load = f"0000 ffffffff 1 R8 LDG.E 1 R2 4 0 {listed} 0 0 NoVal "
    blocks = [((0, 0, 0), [[load, end], []]), ((1, 0, 0), [[mark, end], []])]
    workgroups, _ = read(write(tmp_path, tracez(HEAD, blocks), "kernel-1.tracez"))
    assert [len(workgroup.addresses) for workgroup in workgroups] == [32, 0]


def test_a_warp_may_end_with_a_mark(tmp_path):
    lines = lines_of(0, 0)
    marked = [*lines, "0090 ffffffff 0 REPLAY_END 0 0 0 0 NoVal "]
    one, other = (
        read(write(tmp_path, tracez(HEAD, [((0, 0, 0), [warp, lines])]), "kernel-1.tracez")) for warp in (lines, marked)
    )
    assert same_events(one[0][0], other[0][0])
