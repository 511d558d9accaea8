"""Where the warps of a run wait, and for what: samples at the ends of the intervals of its time series.

A place is a source line if a line table is given, an instruction of a GEMM that t3sim makes, or a program counter.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sim.machine.stalls import OTHER_PC, Stall
from sim.run.inputs import chosen_kernels
from sim.run.result import RunResult
from tracer.elf.line_table import LineTable, line_table
from tracer.gemm.plan import PC_STEP, Site
from tracer.kernels import kernel_text
from traces.errors import UserError
from traces.source import TraceSource

WORDS = {
    Stall.DATA: "data",
    Stall.BARRIER: "barrier",
    Stall.LSU: "load/store unit",
    Stall.TRACKER: "entry of the Tracker",
    Stall.PIPE: "pipe, or computes",
}
"""What a warp waits for, for people."""
INSTRUCTIONS: dict[int, str] = {
    Site.SETUP: "begin",
    Site.LOAD_A: "load of A",
    Site.LOAD_B: "load of B",
    Site.SHARE: "store to shared memory",
    Site.STAGE_BARRIER: "barrier before the tiles are read",
    Site.FRAGMENTS: "load from shared memory",
    Site.TENSOR: "matrix pipes",
    Site.REUSE_BARRIER: "barrier before the tiles are replaced",
    Site.LOAD_SOURCE: "load of C",
    Site.STAGE_OUT: "output to shared memory",
    Site.STAGE_IN: "output from shared memory",
    Site.CONVERT: "conversion of the output",
    Site.STORE: "store of the output",
    Site.EXIT: "exit",
    Site.FILLED: "arrival of bulk copies",
    Site.AWAIT_DATA: "wait for bulk copies",
    Site.RELEASED: "release of a stage",
    Site.AWAIT_STAGE: "wait for a free stage",
    Site.CLUSTER_HERE: "arrival at the barrier of the cluster",
    Site.CLUSTER_ALL: "barrier of the cluster",
    Site.ADDRESSES: "addresses",
}
"""Instructions of a GEMM that t3sim makes, for people."""
GEMM = "gemm:"


@dataclass(frozen=True)
class Stalled:
    """Warps that wait for one thing at one place of the program.

    Attributes:
        kernel: name. place: of the program, "" = not known.
        waits_for: one of WORDS.
        warps: mean number at any time of the run.
        share: of all samples.
    """

    kernel: str
    place: str
    waits_for: str
    warps: float
    share: float


def stalled(run: RunResult, tables: Mapping[int, LineTable]) -> list[Stalled]:
    """Where warps wait, the largest share first. Empty if the run has no samples.

    Args:
        run: on one GPU, or on several (then of GPU 0).
        tables: number of a kernel -> its line table; others have program counters.
    """
    samples: Counter[tuple[int, str, Stall]] = Counter()
    instructions = (kernel_text(run.input) or "").startswith(GEMM)
    for row in run.stalls:
        number, pc = int(row["kernel"]), int(row["pc"])
        samples[number, _place(pc, tables.get(number), instructions), Stall(row["kind"])] += int(row["samples"])
    intervals, every = len(run.times_ps()), samples.total()
    return [
        Stalled(_name(run, number), place, WORDS[kind], count / intervals, count / every)
        for (number, place, kind), count in samples.most_common()
    ]


def _name(run: RunResult, number: int) -> str:
    """Name of a kernel. Several kernels of a run on many GPUs have one result."""
    return run.kernels[min(number, len(run.kernels) - 1)].name


def _place(pc: int, table: LineTable | None, instructions: bool) -> str:
    if pc == OTHER_PC:
        return "other places"
    if table is not None:
        place = table.place_of(pc)
        if place:
            return place
    if instructions:
        return INSTRUCTIONS.get(pc // PC_STEP, f"pc {pc:#x}")
    return f"pc {pc:#x}" if pc else ""


def line_tables(binary: str, trace: TraceSource, numbers: tuple[int, ...] | None = None) -> dict[int, LineTable]:
    """Number of a kernel of a run -> its line table in a binary.

    Args:
        numbers: kernels of the trace that the run had (`--kernels`); None = all.

    Raises:
        UserError: no kernel has one; the message gives the first reason.
    """
    found, reasons = {}, []
    for number, kernel in enumerate(chosen_kernels(trace, numbers)):
        info = kernel.info
        try:
            found[number] = line_table(binary, info.name, info.attributes.get("architecture"))
        except UserError as reason:
            reasons.append(str(reason))
    if not found:
        raise UserError(reasons[0] if reasons else "--trace: no kernels")
    return found
