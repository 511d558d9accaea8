"""Differences between two results archives, by name: counters, times, series, values of the machine, figures."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.results.archive import ResultsArchive
from sim.run.result import Failure, KernelResult, RunResult


@dataclass(frozen=True)
class Move:
    """One difference.

    Attributes:
        run: number of the run, -1 = a difference of the archive.
        kernel: number of the kernel, -1 = a difference of the run.
        name: "unit.counter", or the name of another value.
        before: value in the first archive, None = it has none.
        after: value in the second archive, None = it has none.
        instances: number of instances of the unit that differ (0 for values without instances).
    """

    run: int
    kernel: int
    name: str
    before: Any
    after: Any
    instances: int = 0

    @property
    def change(self) -> float | None:
        """after / before - 1; None if that is not a number."""
        numbers = all(isinstance(value, int | float) for value in (self.before, self.after))
        return self.after / self.before - 1 if numbers and self.before else None


def moves(one: ResultsArchive, other: ResultsArchive) -> list[Move]:
    """All differences. Runs and kernels are compared by number."""
    differences = [] if len(one.runs) == len(other.runs) else [Move(-1, -1, "runs", len(one.runs), len(other.runs))]
    for number, (ours, theirs) in enumerate(zip(one.runs, other.runs, strict=False)):
        differences += _run_moves(number, ours, theirs)
    return differences


def _run_moves(number: int, one: RunResult | Failure, other: RunResult | Failure) -> Iterator[Move]:
    yield from _dict_moves(number, -1, "point ", one.point, other.point)
    if isinstance(one, Failure) or isinstance(other, Failure):
        before, after = (run.reason if isinstance(run, Failure) else "" for run in (one, other))
        if before != after:
            yield Move(number, -1, "failure", before, after)
        return
    yield from _dict_moves(number, -1, "machine ", one.preset.values(), other.preset.values())
    yield from _dict_moves(number, -1, "option ", one.options, other.options)
    yield from _dict_moves(number, -1, "figure ", one.figures, other.figures)
    for name in ("trace_fingerprint", "interval_ps", "time_ps", "link_bytes", "exactly_once"):
        if getattr(one, name) != getattr(other, name):
            yield Move(number, -1, name, getattr(one, name), getattr(other, name))
    if len(one.kernels) != len(other.kernels):
        yield Move(number, -1, "kernels", len(one.kernels), len(other.kernels))
    for place, (ours, theirs) in enumerate(zip(one.kernels, other.kernels, strict=False)):
        yield from _kernel_moves(number, place, ours, theirs)
    yield from _series_moves(number, one.series, other.series)


def _dict_moves(run: int, kernel: int, prefix: str, one: dict, other: dict) -> Iterator[Move]:
    for name in one | other:
        before, after = one.get(name), other.get(name)
        if before != after:
            yield Move(run, kernel, prefix + name, before, after)


def _kernel_moves(run: int, place: int, one: KernelResult, other: KernelResult) -> Iterator[Move]:
    for name in ("name", "start_ps", "end_ps"):
        if getattr(one, name) != getattr(other, name):
            yield Move(run, place, name, getattr(one, name), getattr(other, name))
    instances = {name: _instances(name, one, other) for name in one.totals | other.totals}
    for name, moved in instances.items():
        before, after = one.totals.get(name), other.totals.get(name)
        if before != after or moved:
            yield Move(run, place, name, before, after, moved)


def _instances(name: str, one: KernelResult, other: KernelResult) -> int:
    """For a counter over all streams: number of instances of its unit that differ."""
    unit, counter, *stream = name.split(".")
    both = [kernel.units.get(unit) for kernel in (one, other)]
    if stream or any(values is None or counter not in (values.dtype.names or ()) for values in both):
        return 0
    before, after = (np.atleast_2d(values[counter].T) for values in both)  # type: ignore[index]
    if before.shape != after.shape:
        return max(before.shape[-1], after.shape[-1])
    return int((before != after).any(axis=0).sum())


def _series_moves(run: int, one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> Iterator[Move]:
    """Differences of the series: in the number of intervals, or in the sum; `instances` counts intervals."""
    for name in one | other:
        before, after = one.get(name), other.get(name)
        if before is None or after is None or before.shape != after.shape:
            yield Move(run, -1, f"series {name}, intervals", _length(before), _length(after))
        elif (before != after).any():
            moved = int((before != after).sum())
            yield Move(run, -1, f"series {name}, sum", int(before.sum()), int(after.sum()), moved)


def _length(values: np.ndarray | None) -> int | None:
    return None if values is None else len(values)
