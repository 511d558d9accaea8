"""The kernel of a GEMM of a library, from its name: tile, depth and family (`tracer.gemm.fields.GemmShorthand`).

    cutlass_80_..._128x64_64x6_tn_align8      CUTLASS for Ampere: tile M x N, depth of a K-step x stages
    cutlass_75_..._256x128_tn_align1          CUTLASS for Turing: two stages of 32, loads through registers
        align, ldg: elements of an access of a lane
    ampere_..._128x64_ldg8_..._stages_64x4_   cuBLAS for Ampere
    nvjet_..._128x256_64x4_2x1_2cta_...       cuBLAS 12 and 13 for Hopper and Blackwell; 2x1 is the cluster
        2cta: workgroups multiply in pairs, neighbours in M if there are two in the cluster
    Cijk_..._MT256x224x64_MI16x16x1_...       hipBLASLt and rocBLAS on CDNA; two K-steps ahead
        MIWT8_7: matrix instructions (MI) in the part of a wavefront

The kernels of cuBLAS 12 for Hopper (sm90_xmma_..._tilesize128x128x64_...) are not among them: how many workgroups share
what they load (a cluster) is not in the name, and decides what L2 has to deliver.

These libraries have matrices by columns, PyTorch has them by rows: their M x N is N x M here.
"""

import re
from typing import NamedTuple

from tracer.profile.kineto import Call
from tracer.profile.loops import size_of

STAGES_MAX = 8
"""Most stages of our kernels with bulk copies (`library.toml`, sm90)."""
PRODUCER_THREADS = 128
LEAST_PART = 8
"""Least rows or columns of a tile that a warp multiplies."""


class Family(NamedTuple):
    """Kernels with names alike.

    Attributes:
        table: of `library.toml`. pattern: of the name, with named groups m, n, k, stages, align, cluster_m, cluster_n,
            pair, unit_m, unit_n (of a matrix instruction), wave_m, wave_n (instructions of the part of a wavefront).
        lanes: of a warp.
        stages: if the name does not say them.
    """

    table: str
    pattern: re.Pattern[str]
    lanes: int = 32
    stages: int = 0


ALIGN = r"(?P<align>\d)"
STEPS = r"(?P<k>\d+)x(?P<stages>\d+)"
TILE = r"(?P<m>\d{1,4})x(?P<n>\d{1,4})"
WAVE = r"MI(?P<unit_m>\d+)x(?P<unit_n>\d+)x\d+_\w+?_MIWT(?P<wave_m>\d+)_(?P<wave_n>\d+)"
FAMILIES = (
    Family("sm80", re.compile(rf"cutlass_80_\w*?tensorop_\w+?_{TILE}_{STEPS}_[nt]{{2}}_align{ALIGN}")),
    Family("sm75", re.compile(rf"cutlass_75_\w*?tensorop_\w+?_{TILE}_[nt]{{2}}_align{ALIGN}"), stages=2),
    Family("sm80", re.compile(rf"ampere_\w+?_{TILE}_ldg{ALIGN}_\w*?stages_{STEPS}_")),
    Family("sm90", re.compile(rf"nvjet_\w+?_{TILE}_{STEPS}_(?P<cluster_m>\d)x(?P<cluster_n>\d)_(?:(?P<pair>2)cta_)?")),
    Family("cdna3", re.compile(rf"Cijk_\w+?_MT{TILE}x(?P<k>\d+)_(?:{WAVE}_)?"), lanes=64, stages=3),
)
"""The first whose pattern is in a name is that of the kernel."""
WHOLE_ALIGN = 8
"""Elements of two bytes of the widest access of a lane."""
BLACKWELL = {"sm103": re.compile(r"\bG?B3\d\d\b"), "sm100": re.compile(r"\bG?B[12]\d\d\b")}
"""Table -> in names of GPUs. Their kernels of cuBLAS have names like those of Hopper."""
OLD_K = 32
"""Depth of a K-step if the name does not say it."""


def kernel_fields(call: Call, gpu: str = "") -> str:
    """Fields of the kernel of a GEMM, as they follow a text; "" = the name does not say them. gpu: that ran it."""
    for family in FAMILIES:
        found = family.pattern.search(call.kernels[0])
        if found:
            if family.table == "sm90":
                newer = [table for table, names in BLACKWELL.items() if names.search(gpu)]
                family = family._replace(table=newer[0]) if newer else family
            return _fields(family, {name: int(value) for name, value in found.groupdict().items() if value}, call)
    return ""


def _fields(family: Family, name: dict[str, int], call: Call) -> str:
    rows, columns, k, clustered = name["n"], name["m"], name.get("k", OLD_K), "cluster_m" in name
    threads = size_of(call.facts.get("block")) - (PRODUCER_THREADS if clustered else 0)
    warps = _waves(rows, columns, name, threads // family.lanes)
    warps = warps or _parts(rows, columns, threads // family.lanes, 4 if clustered else 1)
    stages = name.get("stages", family.stages)
    if warps is None or stages < 2 or not rows * columns * k:
        return ""
    cluster = f",cluster={name['cluster_n']}x{name['cluster_m']}" if clustered else ""
    if "pair" in name:
        cluster += ",pair=1x2" if name["cluster_m"] % 2 == 0 else ",pair=2x1"
    align = "" if name.get("align", WHOLE_ALIGN) == WHOLE_ALIGN else f",align={name['align']}"
    tile = f"tile={rows}x{columns}x{k},warps={warps[0]}x{warps[1]}{cluster}{align}"
    return f",family={family.table},{tile},pipeline_depth={min(stages, STAGES_MAX) if cluster else stages}"


def _waves(rows: int, columns: int, name: dict[str, int], warps: int) -> tuple[int, int] | None:
    """Parts of a tile that a name says. None = it does not, or its wavefronts share the depth of a K-step."""
    if "wave_m" not in name:
        return None
    height, width = name["unit_n"] * name["wave_n"], name["unit_m"] * name["wave_m"]
    if height * width == 0:
        return None
    said = rows // height, columns // width
    whole = (said[0] * height, said[1] * width) == (rows, columns)
    return said if whole and said[0] * said[1] == warps else None


def _parts(rows: int, columns: int, warps: int, group: int) -> tuple[int, int] | None:
    """Parts of a tile, one for each warp, as square as they can be; `group` warps share columns. None = impossible."""
    best: tuple[int, int] | None = None
    for down in (number for number in range(1, warps + 1) if warps % number == 0):
        across = warps // down
        height, width = rows // down, columns // across
        fits = across % group == 0 and (height * down, width * across) == (rows, columns)
        if fits and min(height, width) >= LEAST_PART:
            better = best is None or abs(height - width) < abs(rows // best[0] - columns // best[1])
            best = (down, across) if better else best
    return best
