"""Fields of a study: names, types and defaults. A study can sweep every field.

run, preset, trace, kernels, flush_l2, accuracy, interval_ns, policy    how and what to run
kernel                                                        the kernel: a text of tracer.kernels
kernel.<field>                                                added to that text, or replaces one of its fields
t3.<field>                                                    the configurations of the paper
<unit>.<field>                                                the machine: sim.spec
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta

from sim.hw.space import MAX_GPUS
from sim.presets.bounds import BOUNDS
from sim.presets.load import checked_value, choices, machine_fields, presets
from sim.run.accuracy import accuracy_of
from sim.scenario.asked import ALL
from sim.scenario.result import ALL_CONFIGURATIONS
from tracer.kernels import KERNELS, fields_of, read_kernel
from traces.bounds import Bound
from traces.errors import UserError


class StudyError(UserError):
    """A mistake in a study file."""


class Kind(StrEnum):
    """Kind of a point."""

    REPLAY = "replay"  # a trace archive
    KERNEL = "kernel"  # a kernel, synthesised while it runs
    T3 = "t3"  # a GEMM and its all-reduce on many GPUs, in the configurations of the paper


Count = Annotated[int, Meta(ge=0)]
"""Number of a kernel or of tiles."""
STUDY_BOUNDS = {
    "interval_ns": Bound(0, 100_000_000, "0.1 s; 0 = no time series"),
    "t3.gpus": Bound(2, MAX_GPUS, "a collective needs two; each GPU is a bit in a set of contributors"),
}
"""Ranges of the numbers that are not of the machine or of a kernel."""
GENERAL: dict[str, Any] = {
    "run": Kind,
    "preset": str,
    "trace": str,
    "kernel": str,
    "kernels": list[Count],
    "flush_l2": bool,
    "accuracy": str,
    "interval_ns": int,
    "policy": str,
}
"""Field -> type, for fields without a dot."""
T3_FIELDS: dict[str, Any] = {
    "t3.gpus": int,
    "t3.configurations": list[str],
    "t3.explicit": bool,
    "t3.chunks": list[Count],
    "t3.plan": str,
}
DEFAULTS: dict[str, Any] = {"run": Kind.KERNEL, "preset": "v100"}
PATHS = ("trace", "policy", "t3.plan")
"""Fields that name files, relative to the study file. A preset that ends in .toml is such a file too."""


KERNEL_PREFIX = "kernel."
KERNEL_FIELDS = {KERNEL_PREFIX + field: int | bool | str for name in KERNELS for field in fields_of(name)}
"""Fields of all kernels. `kernel_of` checks them for one kernel."""
FIELDS: dict[str, Any] = GENERAL | KERNEL_FIELDS | T3_FIELDS | machine_fields()
"""Field -> type."""


def _known_preset(name: str, field: str) -> None:
    if not name.endswith(".toml") and name not in presets():
        raise StudyError(f"{field}: found {name!r}; {choices(name, presets())}, or a .toml file")


def _known_configurations(names: Sequence[str], field: str) -> None:
    allowed = (*ALL_CONFIGURATIONS, ALL)
    if not names or not set(names) <= set(allowed):
        raise StudyError(f"{field}: found {names}, allowed are {', '.join(allowed)}")


WORDS: dict[str, Callable[[Any, str], object]] = {
    "accuracy": accuracy_of,
    "preset": _known_preset,
    "t3.configurations": _known_configurations,
}
"""Field -> function that refuses a word that the field does not have. Arguments: value, field in the message."""


def checked_field(name: str, value: Any, where: str) -> Any:
    """Check one value of a study file and return it.

    Raises:
        StudyError: an unknown field, or a value of another type or outside the limits of its field.
    """
    if name not in FIELDS:
        raise StudyError(f"{where}: {name}: unknown field; {choices(name, FIELDS)}")
    try:
        checked_value(value, FIELDS[name], f"{where}: {name}", (BOUNDS | STUDY_BOUNDS).get(name))
        if name in WORDS:
            WORDS[name](value, f"{where}: {name}")
    except UserError as mistake:
        raise StudyError(str(mistake)) from None
    return value


def kernel_of(settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text of the kernel, and the fields that change it.

    Raises:
        StudyError: no kernel, or a field or value that the kernel does not allow.
    """
    if "kernel" not in settings:
        raise StudyError('kernel: missing; give a text, e.g. kernel = "gemm:m=512,n=512,k=256"')
    changes = {name.removeprefix(KERNEL_PREFIX): settings[name] for name in settings if name.startswith(KERNEL_PREFIX)}
    try:
        read_kernel(settings["kernel"], changes)
    except UserError as mistake:
        raise StudyError(str(mistake)) from None
    return settings["kernel"], changes


def part_of(settings: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The settings whose names begin with `prefix`, by their names without it, as values of their types."""
    return {
        name.removeprefix(prefix): checked_value(value, FIELDS[name], name)
        for name, value in settings.items()
        if name.startswith(prefix)
    }
