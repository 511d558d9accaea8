"""Where warps wait: samples agree with the counters of waiting times, and places are source lines where a table is."""

from dataclasses import replace

import numpy as np
import pytest

from sim.explain.stalls import INSTRUCTIONS, WORDS, line_tables, stalled
from sim.machine.stalls import OTHER_PC, STALL, Stall
from sim.run.result import KernelResult
from sim.run.run import KernelRun
from tests.support.one_kernel import OneKernel, Trace
from tests.support.paths import BINARIES
from tests.support.programs import small_preset
from tracer.elf.line_table import line_table
from tracer.gemm.plan import Site
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from traces.errors import UserError
from traces.source import Prefill

INTERVAL_PS = 10_000
LINES = BINARIES / "lines_sm90.cubin"


@pytest.fixture(scope="module")
def run():
    source = CommandSequence([make_kernel("gemm:m=128,n=128,k=64")])
    return KernelRun(preset=small_preset(), source=source, interval_ps=INTERVAL_PS).execute()


def test_samples_agree_with_the_waiting_times(run):
    found = stalled(run, {})

    def sampled_ps(kind):
        return sum(one.warps for one in found if one.waits_for == WORDS[kind]) * len(run.times_ps()) * INTERVAL_PS

    assert sampled_ps(Stall.BARRIER) == pytest.approx(run.totals["cu.barrier_stall_ps"], rel=0.1)
    assert sampled_ps(Stall.DATA) > 0.9 * run.totals["cu.slot_stall_ps"]  # it also counts data whose arrival is known
    assert sum(one.share for one in found) == pytest.approx(1)
    assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)


def test_instructions_of_a_gemm_have_names(run):
    places = {one.place for one in stalled(run, {})}
    assert {"barrier before the tiles are read", "matrix pipes"} <= places and len(INSTRUCTIONS) == len(Site)
    assert not any(place.startswith("pc ") for place in places)


def test_places_are_source_lines():
    trace = Trace(OneKernel("promised", {"architecture": "sm_90"}))
    run = KernelRun(preset=small_preset(), source=trace, interval_ps=1000).execute()
    found = stalled(run, line_tables(str(LINES), trace))
    assert {one.place for one in found} <= {f"/src/kernels.cu:{line}" for line in (51, 52, 53)}
    assert sum(one.share for one in found) == pytest.approx(1)
    pcs = {one.place for one in stalled(run, {})}
    assert pcs <= {"", "pc 0x10", "pc 0x50", "pc 0x70"}


def test_samples_of_a_full_table_and_of_unknown_lines_have_a_place():
    table = line_table(LINES, "promised")
    run = KernelRun(preset=small_preset(), source=CommandSequence([]), interval_ps=INTERVAL_PS).execute()
    rows = [(0, 0x10, Stall.DATA, 5), (0, 0x50, Stall.DATA, 2), (0, OTHER_PC, Stall.PIPE, 1)]
    rows.append((3, 0x1000, Stall.LSU, 3))  # of kernels at once, which have one result
    run.stalls, run.kernels = np.array(rows, STALL), [KernelResult("promised", 0, 100, {}, {})]
    run.series = {"queue_columns": np.zeros(4, np.int64)}
    found = {(one.place, one.waits_for): one.warps for one in stalled(run, {0: table})}
    assert {one.kernel for one in stalled(run, {0: table})} == {"promised"}
    assert found == {
        ("/src/kernels.cu:52", WORDS[Stall.DATA]): 7 / 4,
        ("pc 0x1000", WORDS[Stall.LSU]): 3 / 4,
        ("other places", WORDS[Stall.PIPE]): 1 / 4,
    }


def test_a_run_of_some_kernels_has_their_line_tables():
    trace = Trace(*(OneKernel(name, {"architecture": "sm_90"}) for name in ("bounded", "promised")))
    found = line_tables(str(LINES), trace, [1])
    assert {number: table.kernel for number, table in found.items()} == {0: "promised"}


def test_a_binary_without_the_kernel_is_refused():
    with pytest.raises(UserError, match="no kernel absent"):
        line_tables(str(LINES), Trace(OneKernel("absent", {})))


def test_tables_have_the_numbers_of_their_kernels(monkeypatch):
    """Copies from the host have none."""
    monkeypatch.setattr("sim.explain.stalls.line_table", lambda binary, name, architecture: known[name])
    first, _, second, third = commands = [
        *(make_kernel("gelu:rows=1,cols=64"), Prefill(0, 128)),
        *(make_kernel("gelu:rows=2,cols=64"), make_kernel("gelu:rows=3,cols=64")),
    ]
    known = {one.info.name: one.info.name for one in (first, second, third)}
    found = line_tables("binary", CommandSequence(commands))
    assert found == {0: first.info.name, 1: second.info.name, 2: third.info.name}


def test_an_instruction_that_no_gemm_has_is_a_program_counter(run):
    """An archive of another version."""
    changed = replace(run, stalls=np.array([(0, 16 * len(Site), Stall.DATA, 1)], STALL))
    assert [one.place for one in stalled(changed, {})] == [f"pc {16 * len(Site):#x}"]
