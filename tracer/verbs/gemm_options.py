"""Options of the verbs that synthesise a GEMM: the problem, and the kernel that computes it."""

import re
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Any

import click

from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, Layout, TileOrder
from tracer.workloads import DEFAULT_KERNEL, named_sublayer
from traces.schema import Cache

ELEMENT_BYTES = {"fp8": 1, "int8": 1, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}


class Extents(click.ParamType):
    """Whole numbers with x between them, as in 128x128x32."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.name = "x".join("N" * count)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"\d+" + r"x\d+" * (self.count - 1), value):
            self.fail(f"found {value!r}, allowed is {self.name} with whole numbers", param, ctx)
        return tuple(map(int, value.split("x")))


class Member(click.Choice):
    """A member of an IntEnum by its lower-case name."""

    def __init__(self, enum: type[IntEnum]) -> None:
        super().__init__([member.name.lower() for member in enum])
        self.enum = enum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> IntEnum:
        return value if isinstance(value, IntEnum) else self.enum[super().convert(value, param, ctx).upper()]


KERNEL_OPTIONS = (
    click.option("--tile", type=Extents(3), metavar="MxNxK", help="Tile in M, N and K.  [128x128x32]"),
    click.option("--warps", type=Extents(2), metavar="MxN", help="Warps along M and N of a tile.  [4x2]"),
    click.option("--pipeline-depth", type=int, help="K-steps in flight.  [2]"),
    click.option("--vector-bytes", type=int, help="Bytes per lane of a global access.  [16]"),
    click.option("--copy", type=Member(Copy), help="Operand tiles through registers or asynchronously.  [ldg]"),
    click.option("--epilogue", type=Member(Epilogue), help="Store from registers or through shared memory.  [direct]"),
    click.option("--order", type=Member(TileOrder), help="Walk over the output tiles.  [row]"),
    click.option("--group", type=int, help="Band height of --order grouped, in tiles.  [8]"),
    click.option("--split-k", type=int, help="Workgroups that share a tile's K.  [1]"),
    click.option("--persistent", type=int, help="Workgroups that walk all tiles.  [one per tile]"),
    click.option("--start-tile", type=int, help="Position of the walk at which workgroup 0 begins.  [0]"),
    click.option("--lanes", type=int, help="Lanes per warp, 32 or 64.  [32]"),
    click.option("--load-cache", type=Member(Cache), help="Cache policy of operand loads.  [default]"),
    click.option("--store-cache", type=Member(Cache), help="Cache policy of output stores.  [default]"),
)
PROBLEM_OPTIONS = (
    click.option("--dtype", type=click.Choice(list(ELEMENT_BYTES)), default="fp16", help="Of A and B.  [fp16]"),
    click.option("--out-dtype", type=click.Choice(list(ELEMENT_BYTES)), help="Of C.  [as A and B]"),
    click.option("--a-layout", type=Member(Layout), help="[row]"),
    click.option("--b-layout", type=Member(Layout), help="[row]"),
    click.option("--c-layout", type=Member(Layout), help="[row]"),
    click.option("--lda", type=int, help="Leading dimension of A in elements.  [dense]"),
    click.option("--ldb", type=int, help="... of B."),
    click.option("--ldc", type=int, help="... of C."),
    click.option("--read-c", "with_c", is_flag=True, help="The epilogue reads and adds the old C."),
)


def with_options(options: tuple[Callable, ...]) -> Callable:
    """A decorator that adds several click options, in order."""

    def add(command: Callable) -> Callable:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def kernel_of(given: dict[str, Any]) -> GemmKernel:
    """The default kernel with the given KERNEL_OPTIONS (removed from `given`) in place."""
    chosen = {name: value for name in map(_name, KERNEL_OPTIONS) if (value := given.pop(name)) is not None}
    if "tile" in chosen:
        chosen["tile_m"], chosen["tile_n"], chosen["tile_k"] = chosen.pop("tile")
    if "warps" in chosen:
        chosen["warps_m"], chosen["warps_n"] = chosen.pop("warps")
    return replace(DEFAULT_KERNEL, **chosen)


def problem_of(m: int, n: int, k: int, given: dict[str, Any]) -> GemmProblem:
    """The problem with the given PROBLEM_OPTIONS (removed from `given`) in place."""
    chosen = {name: value for name in map(_name, PROBLEM_OPTIONS) if (value := given.pop(name)) is not None}
    element_bytes = ELEMENT_BYTES[chosen.pop("dtype")]
    out_dtype = chosen.pop("out_dtype", None)
    chosen["a_bytes"] = chosen["b_bytes"] = element_bytes
    chosen["c_bytes"] = ELEMENT_BYTES[out_dtype] if out_dtype else element_bytes
    return GemmProblem(m, n, k, **chosen)


def workload_problem(name: str) -> GemmProblem:
    """The GEMM of a sub-layer named model/layer/tpN."""
    return named_sublayer(name, "--workload")[0]


def _name(option: Callable) -> str:
    """Parameter name that a click option gives to its command."""
    command = click.command()(option(lambda **_: None))
    return str(command.params[0].name)
