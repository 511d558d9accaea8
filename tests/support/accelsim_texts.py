"""Small Accel-Sim texts, good and damaged, and what reads them."""

from tracer.accelsim.reader import open_accelsim

HEADER = """-kernel name = _Z4testPf
-kernel id = 1
-grid dim = ({grid})
-block dim = ({block})
-shmem = 0
-nregs = 32
-binary version = {architecture}
-cuda stream id = 0
-shmem base_addr = 0x00007f0000000000
-local mem base_addr = 0x00007efffe000000
-nvbit version = 1.7
-accelsim tracer version = {version}
{extra}
#traces format = whatever the tracer says

"""


def kernel_text(warps, version=5, grid="1,1,1", block="32,1,1", architecture=70, extra=""):
    """Text of a kernel with one thread block: `warps` is a list of lists of instruction lines."""
    text = HEADER.format(version=version, grid=grid, block=block, architecture=architecture, extra=extra)
    return text + block_text(warps)


def block_text(warps, block="0,0,0", place=""):
    """Text of one thread block. place: lines that tell its cluster."""
    parts = [f"#BEGIN_TB\n\nthread block = {block}\n{place}"]
    for number, lines in enumerate(warps):
        parts.append(f"\nwarp = {number}\ninsts = {len(lines)}\n" + "".join(f"{line}\n" for line in lines))
    return "".join(parts) + "\n#END_TB\n"


def write(tmp_path, text, name="kernel-1.traceg"):
    """The text as a file."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(path, **options):
    """(workgroups, lines of problems) of all kernels of a trace."""
    trace = open_accelsim(path, **options)
    workgroups = [w for command in trace.commands() if hasattr(command, "info") for w in command.workgroups()]
    return workgroups, trace.problems.lines()


def events_of(tmp_path, lines, **options):
    """Events of one warp of these lines."""
    workgroups, _ = read(write(tmp_path, kernel_text([lines], **options)))
    return workgroups[0].events
