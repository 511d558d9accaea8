"""`t3sim trace import` on every kind of damaged trace, as a user sees it: status 2 and one line that names file and
line, or a warning and the right result; with --lenient what is broken is skipped and counted."""

import json
import lzma
from typing import NamedTuple

import pytest

from tests.support.accelsim_texts import block_text, kernel_text
from tracer.compile import jit
from traces.command import meter
from traces.command.cli import DONE, MISTAKE, main

LOAD = "0000 ffffffff 1 R8 LDG.E.128 1 R2 16 1 0x7f4000000000 16 0 "
ADD = "0010 ffffffff 1 R9 IADD3 2 R8 R3 0 0 "
EXIT = "0020 ffffffff 0 EXIT 0 0 0 "
WARP = [LOAD, ADD, EXIT]
GOOD = kernel_text([WARP])
LOAD_LINE, ADD_LINE, EXIT_LINE = (GOOD[: GOOD.index(line)].count("\n") + 1 for line in WARP)
BLOCKS = 2000
XZ = lzma.compress(
    (kernel_text([WARP], grid=f"{BLOCKS},1,1") + "".join(block_text([WARP], f"{k},0,0") for k in range(1, BLOCKS))
     ).encode())  # fmt: skip


class Refused(NamedTuple):
    """Damage that ends the import; a lenient one leaves `instructions` of it, None = nothing to import."""

    content: str | bytes
    says: str
    skipped: int
    instructions: int | None
    name: str = "kernel-1.traceg"


class Odd(NamedTuple):
    """What is odd but plain: imported, lenient or not, with a warning where `says` is not empty."""

    content: str | bytes
    says: str
    instructions: int = 3


REFUSED = {
    "bad line": Refused(GOOD.replace(ADD, "garbage"), f":{ADD_LINE}: program counter", 2, 2),
    "truncated line": Refused(GOOD[: GOOD.index(ADD) + 20], f":{ADD_LINE}: number of registers", 2, 1),
    "truncated file": Refused(GOOD[: GOOD.index(EXIT)], ":23: the file ends inside the thread block", 1, 2),
    "truncated header": Refused(GOOD[:150], ":1: no `#traces format`", 1, None),
    "nine sources": Refused(
        GOOD.replace("2 R8 R3", "9 R1 R1 R1 R1 R1 R1 R1 R1 R1"), f":{ADD_LINE}: number of registers", 2, 2),
    "no grid": Refused(GOOD.replace("-grid dim = (1,1,1)\n", ""), ":1: grid dim", 1, None),
    "empty file": Refused("", ":1: no `#traces format`", 1, None),
    "noise": Refused(bytes(range(256)) * 2000, ":1: no `#traces format`", 1, None),
    "address of 2^63": Refused(
        GOOD.replace("0x7f4000000000", "0xfffffffffffffff0"),
        f":{LOAD_LINE}: kernel _Z4testPf, workgroup 0, warp 0, ", 1, 0),
    "listed address of 2^63": Refused(
        GOOD.replace("1 0x7f4000000000 16", "0 " + " ".join(["0x7f4000000000", "0x7fffffffffffffff"] * 15
                     + ["0x7f4000000000", "0x8000000000000000"])),
        f":{LOAD_LINE}: kernel _Z4testPf, workgroup 0", 1, 0),
    "address of 2^63 in a loop": Refused(
        GOOD.replace(LOAD, f"{LOAD}\n{LOAD.replace('0x7f4000000000', '0x7ffffffffffffff0')}").replace("= 3", "= 4"),
        f":{LOAD_LINE + 1}: kernel _Z4testPf, workgroup 0, warp 0, event 1", 1, 0),
    "tracez": Refused(b"\0\1", ":1: bad tracez data", 1, None, "kernel-1.tracez"),
    "no xz": Refused(b"garbage", ":1: bad xz data", 1, None, "kernel-1.traceg.xz"),
    "empty xz": Refused(b"", ":1: bad xz data", 1, None, "kernel-1.traceg.xz"),
}  # fmt: skip
ODD = {
    "good": Odd(GOOD, ""),
    "mask 0": Odd(GOOD.replace(LOAD, "0000 00000000 1 R28 LDG.E.64 1 R28 8 1 0x0 0 0 "), ""),
    "partial mask": Odd(GOOD.replace(LOAD, "0000 0000000d 1 R8 LDG.E 1 R2 4 2 0x7f40 8 4 0 "), ""),
    "gap mask with a stride": Odd(GOOD.replace("0000 ffffffff", "0000 f00f00ff"), f":{LOAD_LINE}: a stride for lanes"),
    "five sources": Odd(GOOD.replace("2 R8 R3", "5 R8 R3 R4 R5 R6"), f":{ADD_LINE}: an instruction with more than 4"),
    "unknown opcode": Odd(GOOD.replace("IADD3", "FROB.X2"), f":{ADD_LINE}: unknown opcode FROB.X2"),
    "texture": Odd(GOOD.replace("IADD3", "TEX.SCR"), f":{ADD_LINE}: TEX.SCR, taken as ALU work: its memory traffic is"),
    "CRLF": Odd(GOOD.replace("\n", "\r\n"), "carriage returns"),
    "no EXIT": Odd(kernel_text([[LOAD, ADD]]), f":{ADD_LINE}: a warp ends without EXIT", 2),
    "empty warp": Odd(kernel_text([WARP, []], block="64,1,1"), ": a warp has no instructions"),
    "missing warp": Odd(kernel_text([WARP], block="64,1,1"), ": 1 of 2 warps"),
    "missing block": Odd(kernel_text([WARP], grid="2,1,1"), ": 1 of 2 thread blocks are missing"),
    "no newline at the end": Odd(GOOD.rstrip("\n"), "no newline"),
    "binary version 0": Odd(kernel_text([WARP], architecture=0), ":7: binary version = 0"),
    "binary version 61": Odd(kernel_text([WARP], architecture=61), ""),
    "binary version 86": Odd(kernel_text([WARP], architecture=86), ""),
    "binary version 120": Odd(kernel_text([WARP], architecture=120), ":7: binary version = 120: known are 60, 61"),
    "header fields shifted": Odd(GOOD.replace("nregs = 32", "nregs = 21955"), ":6: nregs = 21955: expected 0 to 255"),
    "header line missing": Odd(GOOD.replace("-nregs = 32\n", ""), ":1: no `-nregs =`"),
    "window missing": Odd(GOOD.replace("-shmem base_addr = 0x00007f0000000000\n", ""), ":1: shmem base_addr = "),
    "header line twice": Odd(GOOD.replace("-shmem = 0\n", "-shmem = 0\n-shmem = 4\n"), ":6: -shmem for the second"),
    "name missing": Odd(GOOD.replace("-kernel name = _Z4testPf\n", ""), ":1: no kernel name"),
}  # fmt: skip


@pytest.fixture
def run_import(tmp_path, capsys, monkeypatch):
    """Imports a folder of one kernel's file: (status, what the JSON says or None, stderr without progress)."""
    monkeypatch.setattr(meter, "QUIET_S", 3600.0)
    monkeypatch.setattr(jit._watch, "_report", lambda *progress: None)  # of compilation, if the cache is empty

    def call(content, *options, name="kernel-1.traceg", kernels=None):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        (tmp_path / "kernelslist.g").write_text("\n".join(kernels or [name]) + "\n")
        out = tmp_path / "out.h5"
        out.unlink(missing_ok=True)
        status = main(["trace", "import", str(tmp_path / "kernelslist.g"), "-o", str(out), "--json", *options])
        said = capsys.readouterr()
        assert out.exists() == (status == DONE)
        return status, json.loads(said.out) if said.out else None, said.err

    return call


def assert_one_line(error, says):
    assert error.count("\n") == 1, error
    assert says in error
    assert "Traceback" not in error


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_damage_is_refused_in_one_line_that_says_where(run_import, case):
    status, found, error = run_import(case.content, name=case.name)
    assert (status, found) == (MISTAKE, None)
    assert_one_line(error, case.says)
    assert f"{case.name}:" in error


@pytest.mark.parametrize("case", REFUSED.values(), ids=list(REFUSED))
def test_lenient_skips_and_counts(run_import, case):
    status, found, error = run_import(case.content, "--lenient", name=case.name)
    if case.instructions is None:
        assert status == MISTAKE
        assert_one_line(error, "no kernel that can be read")
        return
    assert status == DONE
    assert (found["skipped"], found["instructions"]) == (case.skipped, case.instructions)
    assert f"{case.says.split(': ')[0]}: skipped: " in error


@pytest.mark.parametrize("options", [(), ("--lenient",)], ids=["strict", "lenient"])
@pytest.mark.parametrize("case", ODD.values(), ids=list(ODD))
def test_what_is_plain_is_read_with_a_warning(run_import, case, options):
    status, found, error = run_import(case.content, *options)
    assert (status, found["instructions"], found["skipped"]) == (DONE, case.instructions, 0)
    if case.says:
        assert_one_line(error, case.says)
    else:
        assert error == ""


@pytest.mark.parametrize("end", [len(XZ) // 2, len(XZ) - 10], ids=["half", "without its index"])
def test_truncated_xz(run_import, end):
    """A lenient import keeps what comes before the damage."""
    status, _, error = run_import(XZ[:end], name="kernel-1.traceg.xz")
    assert status == MISTAKE
    assert_one_line(error, "bad xz data: ")
    assert int(error.partition("kernel-1.traceg.xz:")[2].partition(":")[0]) > 1000
    status, found, error = run_import(XZ[:end], "--lenient", name="kernel-1.traceg.xz")
    assert status == DONE
    assert 500 < found["workgroups"] <= BLOCKS
    assert found["skipped"] >= 1
    assert "skipped: bad xz data" in error


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_lenient_leaves_out_a_kernel_with_a_broken_header(run_import, tmp_path, jobs):
    (tmp_path / "kernel-2.traceg").write_text(GOOD.replace("block dim = (32", "block dim = (0"))
    (tmp_path / "kernel-3.traceg").write_text(GOOD.replace("IADD3", "FROB"))
    kernels = [
        "kernel-1.traceg",
        "kernel-2.traceg",
        "kernel-9.traceg",
        "MemcpyHtoD,0x7f0000000000,64",
        "kernel-3.traceg",
    ]
    status, found, error = run_import(GOOD, "--jobs", jobs, kernels=kernels)
    assert (status, found) == (MISTAKE, None)
    assert_one_line(error, "kernelslist.g:3: no such file: 'kernel-9.traceg'")
    status, found, error = run_import(GOOD, "--lenient", "--jobs", jobs, kernels=kernels)
    assert (status, found["kernels"], found["prefills"], found["skipped"]) == (DONE, 2, 1, 2)
    assert "kernel-2.traceg:4: skipped: block dim" in error
    assert f"kernel-3.traceg:{ADD_LINE}: unknown opcode FROB" in error
    assert error.count("warning: ") == 3
