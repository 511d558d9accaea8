"""Cases from data: `model/layer/tpN` or a plain GEMM, on a preset with single values replaced."""

from dataclasses import replace
from enum import IntEnum
from typing import Any

import msgspec

from sim.presets import load_preset
from sim.scenario.scenario import Scenario
from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, TileOrder
from tracer.verbs.gemm_options import workload_problem
from tracer.workloads import DEFAULT_KERNEL, PAPER_CASES
from traces.errors import UserError
from traces.schema import Cache
from traces.units import PS_PER_NS

PAPER = "paper"
"""Stands for the 16 cases of the paper."""
KERNEL_ENUMS: dict[str, type[IntEnum]] = {
    "copy": Copy,
    "epilogue": Epilogue,
    "order": TileOrder,
    "load_cache": Cache,
    "store_cache": Cache,
}


class Workbench(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is common to the cases of an experiment.

    Attributes:
        preset: a preset's name.
        overrides: "unit.field=value".
        kernel: fields of the default GEMM kernel that are replaced.
        tokens: M of all cases, instead of the model's; None = the model's.
        interval_ns: of the time series of the cases in `series`.
        series: cases that take one, and those of the same shape with them.
    """

    preset: str = "t3_2024"
    overrides: tuple[str, ...] = ()
    kernel: dict[str, int | str] = {}
    tokens: int | None = None
    interval_ns: int = 5000
    series: tuple[str, ...] = ()

    def cases(self, names: tuple[str, ...]) -> dict[str, Scenario]:
        """Name -> case.

        Raises:
            UserError: an unknown workload, preset or field.
        """
        preset, kernel = load_preset(self.preset, self.overrides), kernel_from(self.kernel)
        timed = {(self._problem(name), gpus_of(name)) for name in self.series}
        found = {}
        for name in case_names(names):
            problem, gpus = self._problem(name), gpus_of(name)
            interval_ps = self.interval_ns * PS_PER_NS if (problem, gpus) in timed else 0
            found[name] = Scenario(preset, problem, kernel, gpus, interval_ps=interval_ps)
        return found

    def _problem(self, name: str) -> GemmProblem:
        problem = workload_problem(name)
        return problem if self.tokens is None else replace(problem, m=self.tokens)


def case_names(names: tuple[str, ...]) -> list[str]:
    """The names, with PAPER spelled out."""
    paper = [f"{model}/{layer}/tp{tp}" for model, layer, tp in PAPER_CASES]
    return [each for name in names for each in (paper if name == PAPER else [name])]


def gpus_of(name: str) -> int:
    """N of `model/layer/tpN`."""
    return int(name.rpartition("/tp")[2])


def layer_of(name: str) -> str:
    return name.split("/")[1]


def kernel_from(given: dict[str, Any], base: GemmKernel = DEFAULT_KERNEL) -> GemmKernel:
    """The default kernel with fields replaced; enum members by their lower-case names."""
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        if not hasattr(base, name):
            raise UserError(f"kernel: {name}: no such field of a GEMM kernel")
        enum = KERNEL_ENUMS.get(name)
        if enum and str(value).upper() not in enum.__members__:
            allowed = ", ".join(member.name.lower() for member in enum)
            raise UserError(f"kernel: {name}: found {value!r}, allowed are {allowed}")
        chosen[name] = enum[str(value).upper()] if enum else value
    return replace(base, **chosen)
