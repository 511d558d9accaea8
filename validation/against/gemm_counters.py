"""Sectors of four tensor-core GEMMs against Nsight's counters of a V100-class GPU.

`python -m validation.against.gemm_counters` writes `validation/tables/gemm_counters.md`. A test replays the kernels and
compares the results with the counters and with the committed table. These counters determined only one parameter of the
machine: how workgroups are distributed over SMs (preset v100, dispatch.order). The 4096^3 kernel has the shape of the
CUDA sample cudaTensorCoreGemm.
"""

from pathlib import Path
from typing import NamedTuple

from sim.host.gpu import Gpu
from sim.presets import load_preset
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.command.script import without_options
from traces.units import PS_PER_US
from validation.against.drift import DriftProbe, Spread
from validation.csv_file import read_csv

HERE = Path(__file__).parents[1]
REFERENCE = HERE / "references" / "v100_gemm_counters.csv"
NOTES = HERE / "against" / "gemm_counters_notes.md"
TABLE = HERE / "tables" / "gemm_counters.md"
PRESET = "v100"
COLUMNS = (
    *("kernel", "M x N x K", "tile", "workgroups", "depth", "L1 read misses", "ours", "error"),
    *("L2 read misses", "ours", "error", "DRAM reads", "ours", "error"),
)
DRIFT_COLUMNS = (
    *("kernel", "depth", "K-steps per tile", "mean", "largest", "standard deviation", "samples", "time (us)"),
)
SAMPLE_PS = 5 * PS_PER_US
"""Simulated time between two samples of the workgroups' progress."""

CUTLASS = GemmKernel(tile_m=128, tile_n=128, tile_k=32)
SAMPLE = GemmKernel(tile_m=128, tile_n=128, tile_k=64, persistent=80, pipeline_depth=1)
SAMPLE_AHEAD = GemmKernel(tile_m=128, tile_n=128, tile_k=64, persistent=80, pipeline_depth=2)
SAMPLE_PROBLEM = GemmProblem(m=4096, n=4096, k=4096, c_bytes=4, with_c=True)


class Case(NamedTuple):
    """A measured kernel (row of REFERENCE) and the GEMM that is replayed for it."""

    name: str
    problem: GemmProblem
    kernel: GemmKernel


CASES = (
    Case("cutlass_perf_test_k1", GemmProblem(m=2560, n=16, k=2560), CUTLASS),
    Case("cutlass_perf_test_k2", GemmProblem(m=4096, n=128, k=4096), CUTLASS),
    Case("cutlass_perf_test_k3", GemmProblem(m=2560, n=512, k=2560), CUTLASS),
    Case("cudaTensorCoreGemm", SAMPLE_PROBLEM, SAMPLE),
    Case("cudaTensorCoreGemm", SAMPLE_PROBLEM, SAMPLE_AHEAD),
)
"""The last case is a variant for comparison: the sample itself has no loads ahead of the arithmetic."""


class Outcome(NamedTuple):
    """Our counters of a case, and the spread of its workgroups (None = not sampled)."""

    case: Case
    l1_read_miss_sectors: int
    l2_read_miss_sectors: int
    dram_read_sectors: int
    time_ps: int
    spread: Spread | None


def measured() -> dict[str, dict[str, str]]:
    """Kernel name -> row of the counters."""
    return {row["kernel"]: row for row in read_csv(REFERENCE)}


def replay(case: Case, drift: bool = False) -> Outcome:
    """Replay a case on the preset. drift: also sample the workgroups (twice as slow)."""
    source = GemmSource(case.problem, case.kernel)
    probe = DriftProbe(source, SAMPLE_PS) if drift else None
    gpu = Gpu(load_preset(PRESET).machine, line_trace=probe.observe if probe else None)
    time_ps = gpu.run_kernel(source, 0, None)
    units = gpu.counters()
    l1, l2 = units["l1"], units["l2"]
    return Outcome(
        case,
        int((l1["read_sectors"] - l1["read_hit_sectors"] - l1["read_merged_sectors"]).sum()),
        int(l2["read_miss_sectors"].sum()),
        int(units["hbm"]["read_columns"].sum()),
        time_ps,
        probe.spread() if probe else None,
    )


def figures(case: Case) -> dict[str, float]:
    """`<kernel>/...`: sectors that miss."""
    ours = replay(case)
    return {f"{case.name}/{name}": getattr(ours, name) for name in ("l1_read_miss_sectors", "l2_read_miss_sectors")}


def table_row(outcome: Outcome) -> list[str]:
    """The counters of one case as a row of the table."""
    row, (name, problem, kernel) = measured()[outcome.case.name], outcome.case
    shape = f"{problem.m} x {problem.n} x {problem.k}"
    blocks = f"{kernel.persistent} persistent" if kernel.persistent else "one tile each"
    cells = [name, shape, f"{kernel.tile_m}x{kernel.tile_n}x{kernel.tile_k}", blocks, str(kernel.pipeline_depth)]
    for counter in ("l1_read_miss_sectors", "l2_read_miss_sectors", "dram_read_sectors"):
        theirs, ours = int(row[counter]), getattr(outcome, counter)
        error = "exact" if ours == theirs else f"{100 * (ours / theirs - 1):+.4f} %"
        cells += [f"{theirs:,}", f"{ours:,}", error]
    return cells


def drift_row(outcome: Outcome) -> list[str]:
    """The spread of the workgroups of one case as a row of the table."""
    spread, depth = outcome.spread, outcome.case.kernel.pipeline_depth
    assert spread is not None
    steps = outcome.case.problem.k // outcome.case.kernel.tile_k
    cells = (f"{spread.mean:.2f}", f"{spread.largest:.2f}", f"{spread.deviation:.2f}", str(spread.samples))
    return [outcome.case.name, str(depth), str(steps), *cells, f"{outcome.time_ps / PS_PER_US:,.1f}"]


def table(outcomes: list[Outcome]) -> str:
    """All rows as Markdown, with the explanation of NOTES."""
    head = (
        f"Generated by `python -m validation.against.gemm_counters`; preset `{PRESET}`, 32-byte sectors, L2 empty "
        f"before.\n"
        "Measured: `validation/references/v100_gemm_counters.csv`."
    )
    about_drift = (
        "Spread of workgroups: progress of the first minus the last workgroup in K-steps, sampled every "
        f"{SAMPLE_PS // PS_PER_US} us."
    )
    return to_markdown(
        [
            Heading("Tensor-core GEMMs against Nsight's counters (V100 class)", 1),
            Text(head),
            Table(COLUMNS, [*map(table_row, outcomes)]),
            Text(about_drift),
            Table(DRIFT_COLUMNS, [drift_row(outcome) for outcome in outcomes if outcome.spread]),
            notes(NOTES),
        ]
    )


def main() -> None:
    outcomes = [replay(case, drift=case.kernel.persistent is not None) for case in CASES]
    write_page(TABLE, table(outcomes))


if __name__ == "__main__":
    without_options(__doc__)
    main()
