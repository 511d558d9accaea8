"""Warnings of a trace are those of its latest reading, however often it was read before."""

from tests.support.accelsim_texts import kernel_text, write
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
