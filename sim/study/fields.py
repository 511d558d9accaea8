"""The fields of a study: their names, types and defaults. Every field may be swept.

run, preset, trace, workload, kernels, flush_l2, interval_ns, policy    how and what to run
gemm.<field>                                                            tracer.gemm.source: GemmProblem and GemmKernel
<unit>.<field>                                                          the machine: sim.spec
"""

from dataclasses import fields as dataclass_fields
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

from msgspec import Meta

from sim.presets.load import checked_value, choices, machine_fields
from tracer.gemm.source import GemmKernel, GemmProblem
from traces.errors import UserError


class StudyError(UserError):
    """A mistake in a study file."""


class Kind(StrEnum):
    """What a point of a study runs."""

    REPLAY = "replay"  # a trace archive
    GEMM = "gemm"  # a GEMM, synthesised while it runs: gemm.m, gemm.n and gemm.k, or a workload
    T3 = "t3"  # a GEMM and its all-reduce on many GPUs, in the configurations of the paper


Count = Annotated[int, Meta(ge=0)]
GENERAL: dict[str, Any] = {
    "run": Kind,
    "preset": str,
    "trace": str,
    "workload": str,
    "kernels": list[Count],
    "flush_l2": bool,
    "interval_ns": Count,
    "policy": str,
}
"""Field -> type, of those without a dot."""
T3_FIELDS: dict[str, Any] = {
    "t3.gpus": Annotated[int, Meta(ge=2)],
    "t3.configurations": list[str],
    "t3.explicit": bool,
    "t3.chunks": list[Count],
    "t3.plan": str,
}
DEFAULTS: dict[str, Any] = {"run": Kind.GEMM, "preset": "v100"}
PATHS = ("trace", "policy", "t3.plan")
"""Files, relative to the study; so is a preset that ends in .toml."""


def _gemm_types() -> dict[str, Any]:
    return {
        f"gemm.{field.name}": get_type_hints(owner)[field.name]
        for owner in (GemmProblem, GemmKernel)
        for field in dataclass_fields(owner)
    }


FIELDS: dict[str, Any] = GENERAL | _gemm_types() | T3_FIELDS | machine_fields()
"""Field -> type."""


def checked_field(name: str, value: Any, where: str) -> Any:
    """A value of the study file as plain data, of the type of its field.

    Raises:
        StudyError: no such field, or a value that it cannot have, whatever the others are.
    """
    if name not in FIELDS:
        raise StudyError(f"{where}: {name}: unknown field; {choices(name, FIELDS)}")
    try:
        checked_value(value, FIELDS[name], f"{where}: {name}")
    except UserError as mistake:
        raise StudyError(str(mistake)) from None
    return value


def part_of(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Settings whose names begin with `prefix`, without it, as the types of their fields."""
    return {
        name.removeprefix(prefix): checked_value(value, FIELDS[name], name)
        for name, value in settings.items()
        if name.startswith(prefix)
    }
