"""Workloads as plain values: what results say about the kernels that they are of."""

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

from tracer.gemm.kernel import kernel_fields
from tracer.gemm.problem import spelled_out
from tracer.gemm.source import GemmSource
from traces.source import KernelSource


def gemm_input(source: GemmSource) -> dict[str, Any]:
    """A GEMM as plain values; defaults are replaced by the values that they mean."""
    fields_of_both = {"problem": asdict(spelled_out(source.problem)), "kernel": kernel_fields(source.kernel)}
    return {"name": source.info.name} | _plain(fields_of_both)


def kernel_input(source: KernelSource) -> dict[str, Any]:
    """A kernel as plain values: its name and what its maker says about it."""
    return {"name": source.info.name} | _plain(source.info.attributes)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values for JSON; the lower-case names of enum members."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        nested = _plain(value) if isinstance(value, Mapping) else value
        plain[name] = nested.name.lower() if isinstance(nested, Enum) else nested
    return plain
