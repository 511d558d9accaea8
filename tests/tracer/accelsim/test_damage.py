"""Damaged traces: a clear error with file and line, or a warning and the right result; never a crash, never silence."""

import gzip
import lzma
from contextlib import suppress

import numpy as np
import pytest
import zstandard

from tests.support.accelsim_texts import HEADER, block_text, kernel_text, read, write
from tracer.accelsim.problems import BadData, TraceError
from tracer.accelsim.stream import read_bytes
from traces.errors import UserError
from traces.schema import Kind

EXIT = "0040 ffffffff 0 EXIT 0 0 0 "
LOAD = "0000 ffffffff 1 R8 LDG.E.128 1 R2 16 1 0x7f4000000000 16 0 "
ADD = "0010 ffffffff 1 R9 IADD3 2 R8 R3 0 0 "
WARP = [LOAD, ADD, EXIT]
GOOD = kernel_text([WARP])


def line_of(text, part):
    """Number of the line that holds `part`."""
    return text[: text.index(part)].count("\n") + 1


def error_of(path, **options):
    with pytest.raises(UserError) as caught:
        read(path, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LOAD, LOAD.replace(" 16 1 0x", " 16 7 0x"), "address mode: allowed 0, 1, 2"),
        (LOAD, LOAD.replace("0x7f4000000000 16 0 ", ""), "bad or missing address"),
        (LOAD, LOAD.replace(" 1 0x7f4000000000 16 0 ", " 2 0x7f4000000000 16 16 0 "), "fewer addresses or deltas"),
        (LOAD, LOAD.replace(" 1 0x7f4000000000 16 0 ", " 0 0x7f4000000000 "), "fewer addresses or deltas"),
        (LOAD, LOAD.replace("0x7f4000000000", "zz"), "bad or missing address"),
        (LOAD, LOAD.replace(" 16 0 ", " 16"), "ends before its immediate"),
        (
            LOAD,
            LOAD.replace(" 1 0x7f4000000000 16 0 ", f" 0 {'0x7f4000000000 ' * 31}0 0 "),
            "fewer addresses or deltas",
        ),
        (ADD, "0010 ffffffff 1 R9 IADD3 2 R8", "not a register"),
        (ADD, "0010 ffffffff 1", "not a register"),
        (ADD, "0010 ffffffff", "number of registers"),
        (ADD, "0010", "mask is not 8"),
        (ADD, "0010 fffff 1 R9 IADD3 2 R8 R3 0 0 ", "mask is not 8"),
        (ADD, "xyz", "program counter is no hexadecimal"),
        (ADD, "0010 ffffffff 1 R999 IADD3 2 R8 R3 0 0 ", "not a register"),
        (ADD, "0010 ffffffff 9 R9 IADD3 2 R8 R3 0 0 ", "number of registers"),
        (ADD, "0010 ffffffff 1 R9 IA$D3 2 R8 R3 0 0 ", "not an opcode"),
        (ADD, "0010 ffffffff 1 R9 " + "A" * 200 + " 2 R8 R3 0 0 ", "not an opcode"),
        (EXIT, EXIT + "\nwarp = 0", "a warp that this block already had"),
        (EXIT, EXIT + "\nwarp = 9", "beyond the block's warps"),
        (EXIT, EXIT + "\nwarp = x", "needs a number"),
        ("insts = 3", "insts = x", "needs a number"),
        ("insts = 3\n", "", "before `warp =` and `insts =`"),
        (ADD, "insts = 7", "once per warp"),
        (EXIT, EXIT + "\nthread block = 0,0,0", "a second `thread block =`"),
        ("insts = 3", "insts = 4", "the number of instructions of the warp is not that of `insts =` (4): found 3"),
        ("thread block = 0,0,0", "thread block = 0,0", "needs three numbers"),
        ("thread block = 0,0,0", "thread block = 0,5,0", "outside the grid"),
        ("thread block = 0,0,0\n", "", "before `thread block =`"),
        ("#BEGIN_TB\n", "", "outside #BEGIN_TB"),
        ("warp = 0\ninsts = 3\n", "", "before `warp =`"),
    ],
)
def test_broken_lines_name_file_and_line(tmp_path, old, new, message):
    text = GOOD.replace(old, new)
    path = write(tmp_path, text)
    error = error_of(path)
    assert message in error
    assert error.startswith(f"{path}:")
    number = int(error[len(f"{path}:") :].split(":")[0])
    assert 15 <= number <= text.count("\n")
    if old == ADD:
        assert number == line_of(text, new)


def test_truncated_file(tmp_path):
    for cut in ("\n#END_TB\n", EXIT + "\n\n#END_TB\n"):
        error = error_of(write(tmp_path, GOOD.removesuffix(cut)))
        assert "the file ends inside the thread block" in error


def test_truncated_file_when_lenient(tmp_path):
    text = kernel_text([WARP], grid="2,1,1") + block_text([WARP], "1,0,0")[:-20]
    workgroups, problems = read(write(tmp_path, text), lenient=True)
    assert [w.index for w in workgroups] == [0, 1]
    assert any("skipped" in line for line in problems)


def test_a_block_that_never_ends_before_the_next(tmp_path):
    text = kernel_text([WARP], grid="2,1,1").removesuffix("\n#END_TB\n") + block_text([WARP], "1,0,0")
    assert "#BEGIN_TB before the previous block's #END_TB" in error_of(write(tmp_path, text))


@pytest.mark.parametrize("cut", ["\n#END_TB\n", "\n#END_TB\n#BEGIN_TB\n"])
def test_lenient_ends_a_block_where_the_next_begins(tmp_path, cut):
    text = kernel_text([WARP], grid="3,1,1") + block_text([WARP, WARP][:1], "1,0,0") + block_text([WARP], "2,0,0")
    path = write(tmp_path, text.replace(cut, "\n", 1))
    assert error_of(path)
    workgroups, problems = read(path, lenient=True)
    assert [w.index for w in workgroups] == [0, 1, 2]
    assert [len(w.events) for w in workgroups] == [3, 3, 3]
    assert len(problems) == 1


def test_a_block_without_warps_is_left_out(tmp_path):
    workgroups, problems = read(write(tmp_path, kernel_text([], grid="2,1,1") + block_text([WARP], "1,0,0")))
    assert [w.index for w in workgroups] == [1]
    assert any("without warps" in line for line in problems)


@pytest.mark.parametrize("note", ["T3", "T3 64 0x0 0", "T3 1 zz 0", "T3 1 0x0 9", "T3 -1 0x0 0"])
def test_bad_notes(tmp_path, note):
    assert "bad T3 note" in error_of(write(tmp_path, GOOD.replace(LOAD, LOAD + note)))


def test_crlf_reads_the_same(tmp_path):
    plain, _ = read(write(tmp_path, GOOD))
    carried, problems = read(write(tmp_path, GOOD.replace("\n", "\r\n")))
    np.testing.assert_array_equal(plain[0].events, carried[0].events)
    assert len(problems) == 1
    assert "carriage returns" in problems[0]


def test_five_sources(tmp_path):
    line = "0010 ffffffff 1 R9 IADD3 5 R1 R2 R3 R4 R8 0 0 "
    workgroups, problems = read(write(tmp_path, GOOD.replace(ADD, line)))
    assert workgroups[0].events["wait"][1] == 1
    (problem,) = problems
    assert f"kernel-1.traceg:{line_of(GOOD, ADD)}: an instruction with more than 4 sources" in problem


def test_gap_mask_with_a_stride(tmp_path):
    workgroups, problems = read(write(tmp_path, GOOD.replace("0000 ffffffff", "0000 f000000f")))
    event = workgroups[0].events[0]
    assert (event["mask"], event["stride"], event["base"]) == (0xF000000F, 16, 0x7F4000000000)
    (problem,) = problems
    assert f"kernel-1.traceg:{line_of(GOOD, LOAD)}: a stride for lanes with gaps" in problem


@pytest.mark.parametrize("version", ["0", "7777777", "x"])
def test_unknown_binary_version(tmp_path, version):
    workgroups, problems = read(write(tmp_path, GOOD.replace("-binary version = 70", f"-binary version = {version}")))
    assert len(workgroups) == 1
    assert any("latencies of sm_70 assumed" in line for line in problems)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-grid dim = (1,1,1)\n", "", "grid dim: found ''"),
        ("-grid dim = (1,1,1)", "-grid dim = (0,1,1)", "expected (x,y,z)"),
        ("-block dim = (32,1,1)", "-block dim = (64,64,1)", "4096 threads, allowed 1 to 1024"),
        ("tracer version = 5", "tracer version = 9", "allowed 1, 2, 3, 4, 5, 6"),
        ("-accelsim tracer version = 5\n", "", "accelsim tracer version"),
        ("-kernel id = 1", "kernel id", "expected `-name = value`"),
    ],
)
def test_headers_that_cannot_be_read(tmp_path, old, new, message):
    assert message in error_of(write(tmp_path, GOOD.replace(old, new)))


@pytest.mark.parametrize(("compress", "found"), [(gzip.compress, "gzip"), (zstandard.compress, "zstd")])
def test_other_compressors_are_named(tmp_path, compress, found):
    for name in ("kernel-1.traceg", "kernel-1.trace", "kernel-1.traceg.gz"):
        path = write(tmp_path, compress(GOOD.encode()), name)
        assert error_of(path).startswith(f"{path}: found {found} data, allowed are plain text, xz and .tracez")


def test_bad_xz(tmp_path, monkeypatch):
    good = lzma.compress(GOOD.encode())
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    for least_bytes in (0, 1 << 20):  # with a process of xz, where there is one, and without
        monkeypatch.setattr("tracer.accelsim.stream.PROCESS_BYTES", least_bytes)
        for content in (good[:-10], bytes(flipped), b"not xz at all", good[:40]):
            path = write(tmp_path, content, "kernel-1.traceg.xz")
            assert "bad xz data" in error_of(path)
        workgroups, problems = read(write(tmp_path, good, "kernel-1.traceg.xz"))
        assert len(workgroups) == 1
        assert problems == []


def test_xz_data_of_several_streams(tmp_path, monkeypatch):
    """0 bytes may lie between streams. Anything else behind a stream is damage."""
    half = GOOD.index("#END_TB")
    first, second = (lzma.compress(part.encode()) for part in (GOOD[:half], GOOD[half:]))
    for least_bytes in (0, 1 << 20):
        monkeypatch.setattr("tracer.accelsim.stream.PROCESS_BYTES", least_bytes)
        for between in (b"", bytes(8), bytes(1 << 14)):
            path = write(tmp_path, first + between + second + bytes(4), "kernel-1.traceg.xz")
            assert b"".join(read_bytes(path)).decode() == GOOD
        whole = lzma.compress(GOOD.encode())
        for behind in (b"garbage", first[:6], b"\xfd7{XZ\0\0\4" + first[8:]):
            assert "bad xz data" in error_of(write(tmp_path, whole + behind, "kernel-1.traceg.xz"))


def test_what_comes_before_a_damage_of_xz_data_is_read(tmp_path, monkeypatch):
    """The end of long, hardly compressible text is cut off; process and library give the same blocks before it."""
    random = np.random.default_rng(1)
    noise = "".join(f"# {number:x}\n" for number in random.integers(0, 1 << 60, 20_000).tolist())
    path = write(tmp_path, lzma.compress(noise.encode())[:-50_000], "kernel-1.traceg.xz")
    found = []
    for least_bytes in (0, 1 << 20):
        monkeypatch.setattr("tracer.accelsim.stream.PROCESS_BYTES", least_bytes)
        text = b""
        with pytest.raises(BadData):
            for block in read_bytes(path):
                text += block
        assert noise.encode().startswith(text)
        found.append(len(text))
    assert min(found) > 0.7 * len(noise)


def test_lists(tmp_path):
    write(tmp_path, GOOD)
    lines = ["MemcpyHtoD,0x00007f0000000000,4096", "MemcpyDtoH,1,2", "MemcpyDtoH,3,4", "", "kernel-1.traceg"]
    write(tmp_path, "\n".join([*lines, "MemcpyHtoDAsync,0x1,4\n"]), "l.g")
    workgroups, problems = read(tmp_path / "l.g")
    assert len(workgroups) == 1
    assert len(problems) == 2 and "unknown command 'MemcpyHtoDAsync', ignored" in problems[1]
    assert "unknown command 'MemcpyDtoH', ignored (2 times)" in problems[0]
    for text, message in (
        ("kernel-9.traceg\n", "l.g:1: no such file: 'kernel-9.traceg'"),
        ("MemcpyHtoD,0x7f\n", "l.g:1: found 'MemcpyHtoD,0x7f', expected"),
        ("MemcpyHtoD,zz,12\n", "expected MemcpyHtoD"),
        ("MemcpyHtoD,0x7f0000000000,1_000\n", "expected MemcpyHtoD"),
        ("MemcpyHtoD,0x7f_00,1000\n", "expected MemcpyHtoD"),
        (f"MemcpyHtoD,0x1,{'9' * 5000}\n", "expected MemcpyHtoD"),
        ("\nMemcpyHtoD,-0x10,12\n", "l.g:2: address of a copy: found -0x10, allowed 0 to 2^63 - 1"),
        (f"MemcpyHtoD,{1 << 64:#x},12\n", "l.g:1: address of a copy: found 0x10000000000000000, allowed"),
        (f"MemcpyHtoD,0x1,{(1 << 63) - 1}\n", f"l.g:1: bytes of a copy: found {(1 << 63) - 1}, allowed"),
        (f"MemcpyHtoD,0x1,{1 << 70}\n", f"l.g:1: bytes of a copy: found {1 << 70}, allowed"),
        ("", "names no kernel"),
        (b"\xff\xfe\x00kernel", "not a text file"),
    ):
        write(tmp_path, text, "l.g")
        assert message in error_of(tmp_path / "l.g")


def test_lists_with_extensions_and_crlf(tmp_path):
    write(tmp_path, GOOD)
    write(tmp_path, "MemcpyHtoD,0x7f0000000000,800,memcpy_htod_0.bin\r\nkernel-1.traceg\r\n", "l.g")
    workgroups, problems = read(tmp_path / "l.g")
    assert len(workgroups) == 1
    assert problems == []


def test_a_folder_needs_one_list(tmp_path):
    write(tmp_path, GOOD)
    assert "expected one kernelslist.g, found none" in error_of(tmp_path)
    write(tmp_path, "kernel-1.traceg\n", "kernelslist.g")
    assert len(read(tmp_path)[0]) == 1
    write(tmp_path, "kernel-1.traceg\n", "kernelslist_ctx_0x2.g")
    assert "give the path of one" in error_of(tmp_path)


def test_other_endings_are_refused(tmp_path):
    write(tmp_path, GOOD, "kernel-1.foo")
    write(tmp_path, "kernel-1.foo\n", "k.g")
    assert "found the ending '.foo', allowed .traceg" in error_of(tmp_path / "k.g")


def test_missing_file_and_empty_file(tmp_path):
    assert "no such file" in error_of(tmp_path / "none.g")
    assert "not an Accel-Sim trace" in error_of(write(tmp_path, ""))
    assert "not an Accel-Sim trace" in error_of(write(tmp_path, HEADER[:200]))


def test_a_block_that_comes_twice(tmp_path):
    text = kernel_text([WARP], grid="2,1,1") + block_text([WARP])
    assert "thread block 0 comes twice" in error_of(write(tmp_path, text))


def test_extra_columns_are_reported_once(tmp_path):
    store = "0020 ffffffff 0 STG.E 2 R4 R8 4 1 0x7f4000001000 4 0 STORE_DATA 1 R8:T0:7"
    workgroups, problems = read(write(tmp_path, GOOD.replace(ADD, store)))
    assert workgroups[0].events["kind"][1] == Kind.STORE
    assert len(problems) == 1
    assert "columns behind the known ones" in problems[0]


def test_numbers_of_any_size_never_crash(tmp_path):
    for number in ("9" * 30, "-" + "9" * 30, "0x" + "f" * 30, "-1", "1e5"):
        for old in ("0x7f4000000000", " 16 0 ", "insts = 3", "thread block = 0,0,0", "R2 16"):
            text = GOOD.replace(old, f"{old.split('=')[0]}= {number}" if "=" in old else f" {number} ")
            try:
                read(write(tmp_path, text))
            except UserError as error:
                assert isinstance(error, TraceError)


@pytest.mark.slow
@pytest.mark.parametrize("lenient", [False, True])
def test_garbage_at_every_offset(tmp_path, lenient):
    """Every byte replaced by a random one, cut out, or followed by rubbish: an error of ours or a result."""
    text = kernel_text([WARP, WARP], grid="2,1,1", block="64,1,1") + block_text([WARP, WARP], "1,0,0")
    content = text.encode()
    rng = np.random.default_rng(7)
    path = tmp_path / "kernel-1.traceg"
    outcomes = {"error": 0, "result": 0}
    for offset in range(len(content)):
        damage = rng.integers(0, 4)
        rubbish = bytes(rng.integers(0, 256, 1 if damage == 0 else 20, dtype=np.uint8))
        if damage == 0:
            damaged = content[:offset] + rubbish + content[offset + 1 :]
        elif damage == 1:
            damaged = content[:offset] + content[offset + 1 :]
        elif damage == 2:
            damaged = content[:offset] + rubbish + content[offset:]
        else:
            damaged = content[:offset]
        path.write_bytes(damaged)
        try:
            read(path, lenient=lenient)
            outcomes["result"] += 1
        except TraceError as error:
            assert str(error).startswith(str(path))
            outcomes["error"] += 1
    assert outcomes["error"] > 100


@pytest.mark.slow
def test_garbage_in_raw_traces_lists_and_xz(tmp_path):
    """Random damage to the other kinds of files: an error of ours or a result."""
    raw = HEADER.format(version=5, grid="2,1,1", block="64,1,1", architecture=70, extra="")
    raw += "".join(f"{b} 0 0 {w} {line}\n" for line in WARP for b in range(2) for w in range(2))
    files = {
        "kernel-1.trace": raw.encode(),
        "kernel-2.traceg.xz": lzma.compress(GOOD.encode()),
        "kernelslist.g": b"MemcpyHtoD,0x7f0000000000,4096\nkernel-1.trace\nkernel-2.traceg.xz\n",
    }
    for name, content in files.items():
        write(tmp_path, content, name)
    assert len(read(tmp_path / "kernelslist.g")[0]) == 3
    rng = np.random.default_rng(11)
    for name, content in files.items():
        for offset in rng.integers(0, len(content), 150):
            rubbish = bytes(rng.integers(0, 256, rng.integers(1, 9), dtype=np.uint8))
            keep = offset + (len(rubbish) if rng.random() < 0.5 else 0)
            write(tmp_path, content[:offset] + rubbish + content[keep:], name)
            for lenient in (False, True):
                with suppress(UserError):
                    read(tmp_path / "kernelslist.g", lenient=lenient)
        write(tmp_path, content, name)
