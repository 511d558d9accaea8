"""Time of GEMMs with the kernels that the library chooses, against measurements.

`python -m validation.against.gemm_library` simulates a sample of the measured rows (results in the store are used) and
writes `tables/gemm_library.md`. The kernel of a row is the choice of `tracer.gemm.library` for the machine and the
shape, as in every command. A row is one of two kinds:

* overhead: the overhead of a data set is the mean of what these rows take longer than our kernels, per kernel. It is
  added to all rows of the data set. A data set without such rows has the overhead that its authors state.
* prediction: all other rows.

The rows of a data set: of each M, `per_m` rows drawn with SEED, of at most `operations_max` operations. This rule was
committed before the first row of the sample was simulated. Libraries add the shares of split-K in a second kernel,
which we do not simulate: such a row has the time to read the shares at the bandwidth of L2, and the overhead twice if
that is of the kernel. The overhead of a host clock counts once.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.kernel_figures import L2State, kernel_run
from sim.run.result import RunResult
from sim.run.run import KernelRun, gemm_run
from sim.run.store import Store, run_or_get
from tracer.gemm.expected import SUM_BYTES
from tracer.gemm.source import GemmSource, Layout
from tracer.kernels import make_gemm
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.command.script import without_options
from traces.units import PS_PER_US, US_PER_S
from validation.csv_file import read_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
REFERENCES = HERE / "references"
NOTES = HERE / "against" / "gemm_library_notes.md"
TABLE = HERE / "tables" / "gemm_library.md"
SEED = 16
LARGE_M = 512
GOALS = {"M >= 512": 0.08, "M < 512": 0.15}
"""Class of rows -> greatest mean absolute error."""
OVERHEAD, PREDICTION = "overhead", "prediction"
WORST = 5
ALL = 1 << 10
"""Rows to draw: all."""
LAUNCH_US = load_preset("b200").machine.dispatch.launch_ps / PS_PER_US
"""Launch of the preset b200. Times of calls have it, those of kernels do not."""
COLUMNS = ("data set", "M x N x K", "kernel", "simulated (us)", "with overhead", "measured", "error", "kind")
MEAN_COLUMNS = ("data set", *(f"{name}: rows, mean absolute error, mean error" for name in GOALS))


B200_SOURCES = (
    *("learn-cuda", "torchao", "tritonbench", "750w", "vllm", "vllm-fp8", "flashinfer", "liger"),
    *("helion-torch", "helion-vllm", "cublas-mxfp8", "xla", "xla-fp8"),
)
"""Column gpu of `references/gemm_b200.csv`."""


class DataSet(NamedTuple):
    """Measured GEMMs of one machine and software stack.

    Attributes:
        name, preset: of the data set, of the machine.
        file, gpu: the rows of this file of `references` with this GPU.
        changes: values of the machine while it was measured.
        per_m: rows to draw of each M.
        operations_max: of a row.
        b_layout: of the weights, if a row does not say it: column = K adjacent, as in `torch.nn.Linear`.
        overhead_rows: number of rows that determine the overhead, those of least M with the fewest weights; 0 = none.
        overhead_us: the overhead that the authors of the data state, if no rows determine it.
        apart: its rows are in no mean of several data sets.
    """

    name: str
    preset: str
    file: str
    gpu: str
    changes: tuple[str, ...]
    per_m: int
    operations_max: float
    b_layout: Layout
    overhead_rows: int
    overhead_us: float = 0.0
    apart: bool = False


DATA_SETS = (
    DataSet(
        "a100-vidur",
        "a100_80g",
        "gemm_a100_h100.csv",
        "A100",
        ("hbm.clock_MHz=1512",),
        per_m=3,
        operations_max=70e9,
        b_layout=Layout.COLUMN,
        overhead_rows=3,
    ),
    DataSet("a100-llmcompass", "a100_80g", "a100_gemm.csv", "A100", (), 1, 160e9, Layout.ROW, 0, 21.0),
    DataSet("mi210-llmcompass", "mi210", "mi210_gemm.csv", "MI210", (), 1, 160e9, Layout.ROW, 0, 34.0),
    DataSet(
        "h100-vidur",
        "h100_sxm",
        "gemm_a100_h100.csv",
        "H100",
        (),
        per_m=2,
        operations_max=70e9,
        b_layout=Layout.COLUMN,
        overhead_rows=3,
    ),
    *(
        DataSet(
            f"{gpu.lower().replace(' ', '-')}-mamf",
            preset,
            "mamf.csv",
            gpu,
            changes,
            2,
            500e9,
            Layout.COLUMN,
            0,
            apart=True,
        )
        for gpu, preset, changes in (
            ("A100", "a100_80g", ()),
            ("A100 PCIe", "a100_80g", ("hbm.clock_MHz=1512",)),
            ("H100", "h100_sxm", ()),
            ("H200", "h200", ()),
            ("B200", "b200", ()),
            ("B300", "b200", ()),
        )
    ),
    *(
        DataSet(f"b200-{name}", "b200", "gemm_b200.csv", name, (), ALL, 1.2e12, Layout.COLUMN, 0, LAUNCH_US, apart=True)
        for name in B200_SOURCES
    ),
)


class Row(NamedTuple):
    """A measured GEMM of a data set. l2: content of L2, as of `t3sim kernel`. kind: OVERHEAD or PREDICTION."""

    data: DataSet
    m: int
    n: int
    k: int
    time_us: float
    source: str
    dtype: str
    b_layout: str
    l2: str
    kind: str = PREDICTION

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.m, self.n, self.k

    @property
    def group(self) -> str:
        """The goal that the row belongs to."""
        large, small = GOALS
        return large if self.m >= LARGE_M else small


@cache
def measured(data: DataSet) -> tuple[Row, ...]:
    """All rows of a data set that are short enough, in order of M, N and K."""
    rows = [
        Row(
            data,
            int(row["M"]),
            int(row["N"]),
            int(row["K"]),
            float(row["time_us"]),
            row["source"],
            row.get("dtype", "fp16"),
            row.get("b_layout", data.b_layout.name.lower()),
            row.get("l2", L2State.EMPTY),
        )
        for row in read_csv(REFERENCES / data.file)
        if row["gpu"] == data.gpu
    ]
    return tuple(sorted(row for row in rows if 2 * row.m * row.n * row.k <= data.operations_max))


@cache
def sample(data: DataSet) -> tuple[Row, ...]:
    """The rows of a data set that are simulated: those of the overhead, then the drawn ones."""
    by_size = sorted(measured(data), key=lambda row: (row.m, row.n * row.k, row.n))
    overhead = [row._replace(kind=OVERHEAD) for row in by_size[: data.overhead_rows]]
    taken = {row.shape for row in overhead}
    left = [row for row in measured(data) if row.shape not in taken]
    random = Random(SEED)
    drawn = []
    for m in sorted({row.m for row in left}):
        rows = [row for row in left if row.m == m]
        drawn += sorted(random.sample(rows, min(data.per_m, len(rows))))
    return (*overhead, *drawn)


@cache
def machine(data: DataSet) -> Preset:
    """The machine of a data set."""
    return load_preset(data.preset, data.changes)


@cache
def source_of(row: Row) -> GemmSource:
    """The GEMM of a row with the kernel that the library chooses."""
    text = f"gemm:m={row.m},n={row.n},k={row.k},dtype={row.dtype},b_layout={row.b_layout}"
    text += ",out_dtype=bf16" if row.dtype == "fp8" else ""
    return make_gemm(text, gpu_facts(machine(row.data).machine)).source


def run_of(row: Row) -> KernelRun:
    """The run of a row."""
    if row.l2 == L2State.EMPTY:
        return gemm_run(machine(row.data), source_of(row))
    return kernel_run(machine(row.data), (source_of(row),), L2State(row.l2), 0.0)


def kernel_us(result: RunResult) -> float:
    """Time of the kernel without launch."""
    return (result.kernels[-1].end_ps - result.kernels[-1].start_ps) / PS_PER_US


def kernels(row: Row) -> int:
    """Number of kernels of a row: with split-K a second one adds the shares."""
    return 1 if source_of(row).kernel.split_k == 1 else 2


def sum_us(row: Row) -> float:
    """Time to read the shares of split-K, 4 bytes each, at the bandwidth of L2; 0 without split-K."""
    shares = source_of(row).kernel.split_k
    return (shares > 1) * SUM_BYTES * shares * row.m * row.n / machine(row.data).peaks().l2_bytes_per_s * US_PER_S


def overhead_us(data: DataSet, kernels_us: Mapping[Row, float]) -> float:
    """The overhead of a data set, of each kernel if rows determine it. kernels_us: our time of its rows."""
    rows = [row for row in sample(data) if row.kind == OVERHEAD]
    if not rows:
        return data.overhead_us
    return sum(row.time_us - kernels_us[row] - sum_us(row) for row in rows) / sum(map(kernels, rows))


def predicted_us(data: DataSet, kernels_us: Mapping[Row, float]) -> dict[Row, float]:
    """Our time of each row of a data set, with the overhead. kernels_us: without."""
    overhead = overhead_us(data, kernels_us)
    times = {row: kernels(row) if data.overhead_rows else 1 for row in sample(data)}
    return {row: kernels_us[row] + sum_us(row) + times[row] * overhead for row in sample(data)}


def kernel_text(row: Row) -> str:
    """Tile, stages, split of K and order of the chosen kernel."""
    kernel = source_of(row).kernel
    pair = " in pairs" if kernel.pair_m * kernel.pair_n > 1 else ""
    split = f", K in {kernel.split_k}" if kernel.split_k > 1 else ""
    return f"{kernel.tile_m} x {kernel.tile_n} x {kernel.tile_k}, {kernel.pipeline_depth} stages{pair}{split}"


def table(kernels_us: Mapping[Row, float]) -> str:
    """All rows as Markdown, with the explanation of NOTES."""
    ours = {row: time_us for data in DATA_SETS for row, time_us in predicted_us(data, kernels_us).items()}
    errors = {row: time_us / row.time_us - 1 for row, time_us in ours.items()}
    predictions = [row for row in ours if row.kind == PREDICTION]
    together = [row for row in predictions if not row.data.apart]
    worst = sorted(predictions, key=lambda row: -abs(errors[row]))[:WORST]
    rows = [_cells(row, kernels_us[row], ours[row], errors[row]) for row in ours]
    means = [_means(data.name, [row for row in predictions if row.data == data], errors) for data in DATA_SETS]
    sets = [
        [data.name, data.preset, ", ".join(data.changes) or "-", f"{overhead_us(data, kernels_us):.1f}"]
        for data in DATA_SETS
    ]
    head = (
        "Generated by `python -m validation.against.gemm_library`. Measured: `validation/references/"
        "gemm_a100_h100.csv`, `a100_gemm.csv`, `mi210_gemm.csv` (fp16), `mamf.csv`, `gemm_b200.csv` (bf16, fp16, fp8). "
        "The library of the machine chooses the kernel."
    )
    return to_markdown(
        [
            Heading("Time of GEMMs of the library against measurements", 1),
            Text(head),
            Table(MEAN_COLUMNS, [*means, _means("all but those apart", together, errors)]),
            Table(("data set", "preset", "values while measured", "overhead (us)"), sets),
            Table(COLUMNS, rows),
            Text(f"The worst {WORST}: " + "; ".join(f"{_title(row)} {100 * errors[row]:+.1f} %" for row in worst)),
            notes(NOTES),
        ]
    )


def _title(row: Row) -> str:
    return f"{row.data.name} {_shape(row)}"


def _shape(row: Row) -> str:
    return f"{row.m} x {row.n} x {row.k}" + (", fp8" if row.dtype == "fp8" else "")


def _cells(row: Row, kernel: float, time: float, error: float) -> list[str]:
    """One row of the table; times in us."""
    cells = [row.data.name, _shape(row), kernel_text(row)]
    cells += [f"{value:,.1f}" for value in (kernel, time, row.time_us)]
    return [*cells, f"{100 * error:+.1f} %", row.kind]


def _means(name: str, rows: list[Row], errors: Mapping[Row, float]) -> list[str]:
    """Number of rows, mean absolute error and mean error of each class."""
    cells = [name]
    for group, goal in GOALS.items():
        own = [errors[row] for row in rows if row.group == group]
        if not own:
            cells.append("-")
            continue
        absolute, mean = mean_errors(own)
        verdict = "reached" if absolute <= goal else "missed"
        cells.append(f"{len(own)}, {100 * absolute:.1f} % (goal {goal:.0%} {verdict}), {100 * mean:+.1f} %")
    return cells


def main() -> None:
    store = Store()
    rows = [row for data in DATA_SETS for row in sample(data)]
    write_page(TABLE, table({row: kernel_us(run_or_get(run_of(row), store).result) for row in rows}))


if __name__ == "__main__":
    without_options(__doc__)
    main()
