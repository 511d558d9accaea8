"""Warnings of a trace are those of its latest reading, however often it was read before."""

from tests.support.accelsim_texts import block_text, kernel_text, read, write
from tracer.accelsim.reader import open_accelsim

NO_EXIT = kernel_text([["0000 ffffffff 0 NOP 0 0 0 "]]).replace("-shmem = 0", "-shmem = x")


def test_a_trace_that_is_read_again_warns_as_before(tmp_path):
    """Warnings of the list, of a header and of a kernel's lines; a first reading can be of the headers only."""
    write(tmp_path, NO_EXIT, "kernel-1.traceg")
    write(tmp_path, "MemcpyDtoH,0x0,4\nkernel-1.traceg\nkernel-1.traceg\n", "kernelslist.g")
    trace = open_accelsim(tmp_path)
    assert len(list(trace.commands())) == 2
    for _ in range(2):
        for kernel in trace.commands():
            assert len(list(kernel.workgroups())) == 1
        counts = {kind: oddity.count for kind, oddity in trace.problems.oddities.items()}
        assert counts == {"list MemcpyDtoH": 1, "header shmem": 2, "no EXIT": 2}


def test_a_kernel_that_is_read_from_a_later_workgroup_warns_as_a_whole_one(tmp_path):
    text = kernel_text([["0000 ffffffff 0 NOPE 0 0 0 "]], grid="3,1,1", block="64,1,1")
    text += block_text([["0000 ffffffff 0 NOP 0 0 0 "], []], "1,0,0")
    (kernel,) = (trace := open_accelsim(write(tmp_path, text))).commands()
    assert len(list(kernel.workgroups())) == 2
    whole = trace.problems.lines()
    assert len(whole) == 5
    (kernel,) = trace.commands()
    assert [workgroup.index for workgroup in kernel.workgroups(1)] == [1]
    assert trace.problems.lines() == whole


def test_warnings_do_not_depend_on_where_the_trace_lies(tmp_path, monkeypatch):
    """Results have these lines."""
    found = []
    for folder in (tmp_path / "here", tmp_path / "far" / "there"):
        folder.mkdir(parents=True)
        write(folder, NO_EXIT, "kernel-1.traceg")
        write(folder, "MemcpyDtoH,0x0,4\nkernel-1.traceg\n", "kernelslist.g")
        monkeypatch.chdir(folder)
        found += [read(path)[1] for path in (folder, "kernelslist.g")]
    assert [line.partition(":")[0] for line in found[0]] == ["kernelslist.g", "kernel-1.traceg", "kernel-1.traceg"]
    assert all(lines == found[0] for lines in found)
