"""Several reading processes give the archive that one gives."""

import pytest

from tests.support.accelsim_texts import kernel_text, write
from tracer.accelsim.parallel import ParallelTrace
from tracer.accelsim.reader import open_accelsim
from traces.errors import UserError
from traces.write import write_archive

EXIT = "0040 ffffffff 0 EXIT 0 0 0 "


def make_list(tmp_path, kernels):
    lines = ["MemcpyHtoD,0x7f0000000000,4096"]
    for number in range(kernels):
        load = f"0000 ffffffff 1 R8 LDG.E.128 1 R2 16 1 {0x7F4000000000 + number * 4096:#x} 16 0 "
        write(tmp_path, kernel_text([[load, EXIT]], grid="2,1,1"), f"kernel-{number}.traceg")
        lines.append(f"kernel-{number}.traceg")
    return write(tmp_path, "\n".join(lines) + "\n", "kernelslist.g")


@pytest.mark.slow
def test_the_same_bytes(tmp_path):
    path = make_list(tmp_path, 5)
    one, many = open_accelsim(path), ParallelTrace(open_accelsim(path), 2)
    write_archive(tmp_path / "one.h5", one)
    write_archive(tmp_path / "many.h5", many)
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "many.h5").read_bytes()
    assert one.problems.lines() == many.problems.lines()
    assert "missing (5 times)" not in one.problems.lines()[0]
    assert one.fingerprint() == many.fingerprint()


@pytest.mark.slow
def test_kernels_may_be_left_out_or_read_twice(tmp_path):
    trace = ParallelTrace(open_accelsim(make_list(tmp_path, 3)), 3)
    for number, kernel in enumerate(command for command in trace.commands() if hasattr(command, "info")):
        if number == 1:
            assert len(list(kernel.workgroups())) == len(list(kernel.workgroups())) == 1


@pytest.mark.slow
def test_errors_come_through(tmp_path):
    path = make_list(tmp_path, 3)
    text = (tmp_path / "kernel-1.traceg").read_text().replace(" 16 1 0x", " 16 9 0x")
    write(tmp_path, text, "kernel-1.traceg")
    with pytest.raises(UserError, match=r"kernel-1\.traceg:\d+: address mode"):
        write_archive(tmp_path / "out.h5", ParallelTrace(open_accelsim(path), 2))
    assert not (tmp_path / "out.h5").exists()
    with pytest.raises(UserError, match="jobs: found 0"):
        ParallelTrace(open_accelsim(path), 0)
