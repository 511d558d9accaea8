"""A GEMM from named fields: fields of `GemmProblem` and `GemmKernel`, and short names for several of them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from tracer.data_type import DataType
from tracer.gemm.batched import BatchedGemm
from tracer.gemm.library import GpuFacts, choose_kernel
from tracer.gemm.source import GemmKernel, GemmSource
from tracer.workloads import Pad, aligned_problem, named_sublayer
from traces.errors import UserError


@dataclass(frozen=True)
class GemmShorthand:
    """Short names. The comment of each names the fields that it gives."""

    shape: tuple[int, int, int] | None = None  # m, n, k
    workload: str | None = None  # m, n and k of a sub-layer model/layer/tpN, e.g. t-nlg/fc2/tp8
    dtype: DataType | None = None  # a_bytes, b_bytes, c_bytes
    out_dtype: DataType | None = None  # c_bytes
    tile: tuple[int, int, int] | None = None  # tile_m, tile_n, tile_k
    warps: tuple[int, int] | None = None  # warps_m, warps_n
    pad: Pad = Pad.ALIGNED  # lda, ldb and ldc that are not given
    batch: int = 1  # number of equal GEMMs in one kernel, each with its own matrices


EXTENTS = ("m", "n", "k")
STANDS_FOR = {
    "shape": EXTENTS,
    "workload": EXTENTS,
    "dtype": ("a_bytes", "b_bytes"),
    "out_dtype": ("c_bytes",),
    "tile": ("tile_m", "tile_n", "tile_k"),
    "warps": ("warps_m", "warps_n"),
}
KERNEL_FIELDS = tuple(field.name for field in fields(GemmKernel))


def gemm_of(
    pad: Pad = Pad.ALIGNED, batch: int = 1, gpu: GpuFacts | None = None, **given: Any
) -> GemmSource | BatchedGemm:
    """The GEMM of these fields.

    A field of the kernel, or a workload of the T3 paper, names the kernel: other fields have their defaults. Otherwise
    the library chooses the kernel for the machine `gpu`, if there is one.

    Raises:
        UserError: two fields give the same value, or the kernel cannot run the problem.
    """
    values = {name: value for name, value in given.items() if name not in STANDS_FOR}
    for name in [name for name in STANDS_FOR if name in given]:
        for field, part in zip(STANDS_FOR[name], _parts(given[name]), strict=False):
            if field in values:
                raise UserError(f"kernel gemm: {name}: found with another field that gives {field}, allowed is one")
            values[field] = part
    if "dtype" in given:
        values.setdefault("c_bytes", given["dtype"].bytes)
    named = {name: values.pop(name) for name in KERNEL_FIELDS if name in values}
    problem = aligned_problem(**values, pad=pad)
    if gpu is not None and not named and "workload" not in given:
        kernel = choose_kernel(problem, gpu, given.get("dtype"), batch)
    else:
        lanes = {} if gpu is None else {"lanes": gpu.lanes}
        kernel = GemmKernel(**lanes | named)
    return GemmSource(problem, kernel) if batch == 1 else BatchedGemm(problem, kernel, batch)


def _parts(value: Any) -> Sequence[int]:
    """Values of the fields that a short name gives."""
    if isinstance(value, DataType):
        return value.bytes, value.bytes
    if isinstance(value, str):
        problem, _ = named_sublayer(value)
        return problem.m, problem.n, problem.k
    return value
