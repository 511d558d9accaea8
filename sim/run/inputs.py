"""Workloads as plain values: what results say about the kernels that they are of."""

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

from tracer.gemm.kernel import kernel_fields
from tracer.gemm.problem import spelled_out
from tracer.gemm.source import GemmSource
from tracer.sequence import CommandSequence
from traces.source import KernelSource, Prefill, TraceSource


def gemm_input(source: GemmSource) -> dict[str, Any]:
    """A GEMM as plain values; defaults are replaced by the values that they mean."""
    fields_of_both = {"problem": asdict(spelled_out(source.problem)), "kernel": kernel_fields(source.kernel)}
    return {"name": source.info.name} | _plain(fields_of_both)


def kernel_input(source: KernelSource) -> dict[str, Any]:
    """A kernel as plain values: its name and what its maker says about it."""
    return {"name": source.info.name} | _plain(source.info.attributes)


def sequence_input(source: CommandSequence, numbers: tuple[int, ...] | None) -> dict[str, Any]:
    """Kernels that do not come from a file, as plain values: the operations of each that runs (None = it does not state
    them), what its maker says about a single one, and the text from which they were made."""
    commands = list(source.commands())
    single = commands[0] if len(commands) == 1 else None
    described = {} if single is None or isinstance(single, Prefill) else kernel_input(single)
    described["flops"] = [getattr(kernel, "flops", None) for kernel in chosen_kernels(source, numbers)]
    return described | ({"text": source.text} if source.text else {})


def chosen_kernels(source: TraceSource, numbers: tuple[int, ...] | None) -> list[KernelSource]:
    """The kernels of a trace with these numbers, counted from 0; None = all."""
    kernels = [command for command in source.commands() if not isinstance(command, Prefill)]
    return [kernel for number, kernel in enumerate(kernels) if numbers is None or number in numbers]


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values for JSON; the lower-case names of enum members."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        nested = _plain(value) if isinstance(value, Mapping) else value
        plain[name] = nested.name.lower() if isinstance(nested, Enum) else nested
    return plain
