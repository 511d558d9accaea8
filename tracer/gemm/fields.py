"""A GEMM from named fields: fields of `GemmProblem` and `GemmKernel`, and short names for several of them.

One kernel may compute several GEMMs: `batch` equal ones, or `groups` of different numbers of rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tracer.data_type import DataType
from tracer.gemm.architecture import GemmLibrary, GpuFacts, architecture
from tracer.gemm.batched import BatchedGemm, check_batch, strided_batch
from tracer.gemm.grouped import GroupedGemm, check_groups
from tracer.gemm.library import arranged, choose_kernel, type_of_bytes
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
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
    cluster: tuple[int, int] | None = None  # cluster_m, cluster_n
    pair: tuple[int, int] | None = None  # pair_m, pair_n
    align: int | None = None  # vector_bytes, in elements of A
    pad: Pad = Pad.ALIGNED  # lda, ldb and ldc that are not given
    batch: int = 1  # number of equal GEMMs in one kernel, each with its own matrices
    family: GemmLibrary | None = None  # with tile: a kernel like those of this table of `library.toml`
    groups: tuple[int, ...] | None = None  # m of each GEMM of one kernel, each with its own B (experts)


EXTENTS = ("m", "n", "k")
STANDS_FOR: dict[str, tuple[str, ...]] = {
    "shape": EXTENTS,
    "workload": EXTENTS,
    "groups": ("m",),
    "dtype": ("a_bytes", "b_bytes"),
    "out_dtype": ("c_bytes",),
    "tile": ("tile_m", "tile_n", "tile_k"),
    "warps": ("warps_m", "warps_n"),
    "cluster": ("cluster_m", "cluster_n"),
    "pair": ("pair_m", "pair_n"),
    "align": ("vector_bytes",),
}
KERNEL_FIELDS = tuple(field.name for field in fields(GemmKernel))


def gemm_of(
    pad: Pad = Pad.ALIGNED,
    batch: int = 1,
    gpu: GpuFacts | None = None,
    family: GemmLibrary | None = None,
    **given: Any,
) -> GemmSource | BatchedGemm | GroupedGemm:
    """The GEMM of these fields.

    A field of the kernel, or a workload of the T3 paper, names the kernel: other fields have their defaults, or with
    `family` those of a table of the library. Otherwise the library chooses the kernel for the machine `gpu`, if any.

    Raises:
        UserError: two fields give the same value, an address is given for one of several GEMMs, or the kernel cannot
            run the problem.
    """
    check_batch(batch)
    groups = given.get("groups", ())
    if groups and batch > 1:
        raise UserError("kernel gemm: groups: found with batch, allowed is one of them")
    values = _values(given)
    named = {name: values.pop(name) for name in KERNEL_FIELDS if name in values}
    if family is not None and "tile_k" not in named:
        raise UserError("kernel gemm: family: found without tile, allowed with it")
    problem = aligned_problem(**values, pad=pad)
    if gpu is not None and not names_kernel(given):
        mean = replace(problem, m=-(-problem.m // (len(groups) - groups.count(0)))) if groups else problem
        at_once = len(groups) - groups.count(0) if groups else batch
        kernel = choose_kernel(mean, gpu, given.get("dtype"), at_once, rows_alike=not groups)
    else:
        dtype = given.get("dtype") or type_of_bytes(problem.a_bytes)
        kernel = GemmKernel(**on_machine(gpu, dtype, family, named.get("tile_k")) | named)
        if gpu is not None and kernel.bulk and not gpu.bulk:
            raise UserError(f"kernel gemm: copy = {kernel.copy.name.lower()}: the machine has no bulk copies")
        if family is not None and gpu is not None and "order" not in named:
            kernel = arranged(problem, kernel, gpu, architecture(family))
    if not groups and batch == 1:
        return GemmSource(problem, kernel)
    several: BatchedGemm | GroupedGemm
    several = GroupedGemm(problem, kernel, groups) if groups else strided_batch(problem, kernel, batch)
    for name in ("a_address", "b_address", "c_address", "c_source_address"):
        if values.get(name) not in (None, getattr(several.problem, name)):  # the description of a batch has its own
            other = "groups" if groups else "batch"
            raise UserError(f"kernel gemm: {name}: found with {other}, which places all matrices itself")
    return several


def on_machine(
    gpu: GpuFacts | None, dtype: DataType, family: GemmLibrary | None = None, tile_k: int | None = None
) -> dict[str, Any]:
    """Fields of a kernel that the machine and its family give, whoever chooses the others: lanes, the rate of the type;
    how a family loads and multiplies."""
    found: dict[str, Any] = {}
    if family is not None:
        like = architecture(family)
        pieces = max(1, (tile_k or 0) // like.piece_k)
        found = {**like.program, "copy": like.copy, "warpgroup": like.warpgroup, "fragment_pieces": pieces}
    if gpu is None:
        return found
    table = architecture(gpu.library)
    cost = table.cost(dtype, found["warpgroup"]) if found else table.types.get(dtype, 1.0)
    return {"lanes": gpu.lanes, "mac_cost": cost, **found}


def names_kernel(given: Mapping[str, Any]) -> bool:
    """Does a field name the kernel? Otherwise the library chooses it."""
    named = {field for name in given for field in STANDS_FOR.get(name, (name,))}
    return "workload" in given or not named.isdisjoint(KERNEL_FIELDS)


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of the problem and of the kernel, from the given ones and those that short names stand for."""
    values = {name: value for name, value in given.items() if name not in STANDS_FOR}
    for name in [name for name in STANDS_FOR if name in given]:
        for field, part in zip(STANDS_FOR[name], _parts(name, given[name]), strict=False):
            if field in values:
                raise UserError(f"kernel gemm: {name}: found with another field that gives {field}, allowed is one")
            values[field] = part
    if "dtype" in given:
        values.setdefault("c_bytes", given["dtype"].bytes)
    if "align" in given:
        values["vector_bytes"] *= values.get("a_bytes", GemmProblem.a_bytes)
    if values.get("a_bytes") == DataType.FP64.bytes:
        values.setdefault("accumulate_bytes", DataType.FP64.bytes)
    return values


def _parts(name: str, value: Any) -> Sequence[int]:
    """Values of the fields that a short name gives."""
    if name == "groups":
        check_groups(value)
        return (sum(value),)
    if name == "align":
        return (value,)
    if isinstance(value, DataType):
        return value.bytes, value.bytes
    if isinstance(value, str):
        problem, _ = named_sublayer(value)
        return problem.m, problem.n, problem.k
    return value
