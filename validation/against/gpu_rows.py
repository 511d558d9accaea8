"""Measurements of a GPU: pointer chases, the CSV of `validation.against.measure_gpu`, readers of it and of ncu.

Columns: gpu, kind (keys of UNITS), case, quantity, value, unit, provenance. This module imports nothing of the
simulator, so a machine with a GPU needs few packages.
"""

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from traces.errors import UserError
from traces.schema import Cache
from validation.csv_file import write_csv

COLUMNS = ("gpu", "kind", "case", "quantity", "value", "unit", "provenance")
KERNEL_COLUMNS = ("gpu", "case", "kernel", "grid", "block", "provenance")
SECTORS = ("l2_read_sectors", "l2_write_sectors", "dram_read_sectors", "dram_write_sectors")
UNITS = {
    ("gemm", "time"): ("us",),
    ("gemm", "kernel_time"): ("us",),
    **{("gemm", sectors): ("sector",) for sectors in SECTORS},
    ("operator", "time"): ("us",),
    ("operator", "kernel_time"): ("us",),
    **{("operator", sectors): ("sector",) for sectors in SECTORS},
    ("chase", "latency"): ("clock", "ns"),
    ("ladder", "latency"): ("clock", "ns"),
    ("ladder", "bandwidth"): ("GB/s",),
    ("stream", "bandwidth"): ("GB/s",),
    ("loaded", "latency"): ("ns",),
    ("loaded", "bandwidth"): ("GB/s",),
    ("beside", "time"): ("us",),
    ("beside", "clock"): ("MHz",),
    ("beside", "bandwidth"): ("GB/s",),
    ("launch", "time"): ("us",),
}
"""(kind, quantity) -> allowed units."""


class NotPossible(Exception):
    """Something cannot be measured on this machine. The text says why."""


class Chase(NamedTuple):
    """A pointer chase. One level serves all of its loads after the first `warm` ones.

    column: column of `references/gpu_microbenchmarks.csv`.
    """

    level: str
    column: str
    buffer_bytes: int
    stride_bytes: int
    warm: int
    loads: int
    cache: Cache


CHASES = (
    Chase("L1 hit", "L1_hit_cyc", 8 << 10, 128, 256, 256, Cache.DEFAULT),
    Chase("L2 hit", "L2_hit_cyc", 128 << 10, 128, 1024, 1024, Cache.BYPASS_L1),
    Chase("HBM", "HBM_cyc", 4096 << 20, (1 << 20) + (8 << 10) + 128, 4000, 4000, Cache.DEFAULT),
)
"""HBM: every load needs a new row, so its bank always has another row open."""
LADDER_LOADS, LADDER_STRIDE_BYTES = 4096, 128
LADDER = tuple(
    Chase(
        f"{size_KiB / 1024:g} MiB",
        "",
        size_KiB << 10,
        LADDER_STRIDE_BYTES,
        (size_KiB << 10) // LADDER_STRIDE_BYTES,
        LADDER_LOADS,
        Cache.BYPASS_L1,
    )
    for size_KiB in (512, 4096, 8192, 16384, 20480, 24576, 28672, 32768, 40960, 49152, 57344, 65536, 98304)
)
"""The second walk through buffers of growing size: latency of the near and the far half of L2, its capacity, DRAM. All
SMs together read the same buffers for the bandwidth."""


IDLE = "idle"
"""SMs that are kept from others without traffic."""
BUFFERS = {"read": 1, "write": 1, "copy": 2}
"""Flow of a stream -> buffers that its program moves."""


class Beside(NamedTuple):
    """Streams of `sms` SMs beside a GEMM, or beside a chain of loads from DRAM if there is no GEMM."""

    flow: str
    sms: int
    gemm: str = ""

    @property
    def case(self) -> str:
        return f"{self.gemm + ' beside ' if self.gemm else ''}{self.flow} on {self.sms} SMs"


LOADED = (
    Beside(IDLE, 0),
    *(Beside(flow, sms) for flow in BUFFERS for sms in (8, 16, 32, 48, 64, 96, 128)),
)
BESIDE = tuple(
    Beside(flow, sms, gemm)
    for gemm in ("t-nlg/fc2/tp8", "t-nlg/op/tp8", "gemm:m=16,n=12800,k=5120,dtype=bf16")
    for sms in (8, 16, 32)
    for flow in (IDLE, *BUFFERS)
)


class MeasuredRow(NamedTuple):
    """One measured value of a case ("t-nlg/fc2/tp8", "L2 hit", "copy"), in `unit`."""

    kind: str
    case: str
    quantity: str
    value: float
    unit: str


class MeasuredGpu(NamedTuple):
    """Measurements of one GPU. synthetic: the file declares its values as invented, for tests."""

    gpu: str
    provenance: str
    rows: tuple[MeasuredRow, ...]

    @property
    def synthetic(self) -> bool:
        return self.provenance.startswith("SYNTHETIC")


NAME_LETTERS = 100
"""Kept of the name of a kernel: names of templates have thousands."""


class NcuCase(NamedTuple):
    """What Nsight Compute says of a case.

    Attributes:
        sums: metric -> its sum over the kernels.
        kernels: name, grid and block of each kernel.
    """

    sums: dict[str, float]
    kernels: dict[str, tuple[str, str, str]]


def write_rows(path: str | Path, gpu: str, provenance: str, rows: Iterable[MeasuredRow]) -> None:
    """Write the CSV completely or not at all."""
    cells = ((gpu, row.kind, row.case, row.quantity, f"{row.value:.6g}", row.unit, provenance) for row in rows)
    write_csv(Path(path), COLUMNS, cells)


def write_kernels(path: str | Path, gpu: str, provenance: str, cases: Iterable[tuple[str, NcuCase]]) -> None:
    """Write the kernels of each case, completely or not at all. Their names are cut off at their types."""
    cells = ((gpu, case, *kernel, provenance) for case, found in cases for kernel in found.kernels.values())
    write_csv(Path(path), KERNEL_COLUMNS, cells)


def read_rows(path: str | Path) -> MeasuredGpu:
    """Read a CSV of measurements.

    Raises:
        UserError: no such file, other columns, an unknown kind, quantity or unit, a value that is no number above 0, or
            several GPUs. Names the line.
    """
    path = Path(path)
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}") from None
    if not lines or tuple(lines[0]) != COLUMNS:
        raise UserError(f"{path}:1: found {','.join(lines[0]) if lines else 'nothing'}; allowed is {','.join(COLUMNS)}")
    if len(lines) == 1:
        raise UserError(f"{path}: no rows")
    rows = tuple(_row(cells, f"{path}:{number}") for number, cells in enumerate(lines[1:], 2))
    origins = {(cells[0], cells[6]) for cells in lines[1:]}
    if len(origins) > 1:
        raise UserError(f"{path}: found {len(origins)} GPUs or provenances, allowed is one of each per file")
    ((gpu, provenance),) = origins
    if not provenance.strip():
        raise UserError(f"{path}: provenance: found nothing, allowed is a text that describes the measurement")
    return MeasuredGpu(gpu, provenance, rows)


def _row(cells: list[str], where: str) -> MeasuredRow:
    if len(cells) != len(COLUMNS):
        raise UserError(f"{where}: found {len(cells)} cells, allowed are {len(COLUMNS)}")
    _, kind, case, quantity, value, unit, _ = cells
    allowed = UNITS.get((kind, quantity))
    if allowed is None:
        known = ", ".join(" ".join(pair) for pair in UNITS)
        raise UserError(f"{where}: found {kind} {quantity}, allowed are {known}")
    if unit not in allowed:
        raise UserError(f"{where}: unit: found {unit!r}, allowed for {kind} {quantity}: {', '.join(allowed)}")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (number > 0 and math.isfinite(number)):
        raise UserError(f"{where}: value: found {value!r}, allowed is a number above 0")
    return MeasuredRow(kind, case, quantity, number, unit)


def ncu_cases(text: str, marker: str) -> list[NcuCase]:
    """The kernels before each kernel named `marker`, from `ncu --csv`. Skips other lines."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found: list[NcuCase] = []
    sums: dict[str, float] = {}
    kernels: dict[str, tuple[str, str, str]] = {}
    ended = ""
    for row in csv.DictReader(lines):
        if marker in row["Kernel Name"]:
            if row["ID"] != ended:
                found.append(NcuCase(sums, kernels))
                sums, kernels, ended = {}, {}, row["ID"]
            continue
        name = row["Kernel Name"].split("(")[0].removeprefix("void ")
        kernels[row["ID"]] = name[:NAME_LETTERS], row.get("Grid Size") or "", row.get("Block Size") or ""
        metric, value = row.get("Metric Name"), row.get("Metric Value") or ""
        try:
            number = float(value.replace(",", ""))
        except ValueError:
            continue
        if metric:
            sums[metric] = sums.get(metric, 0.0) + number
    return found
