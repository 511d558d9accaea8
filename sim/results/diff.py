"""Differences between two results archives, by name. Causes come first: input, options, machine, versions.

Then come the results: figures, times, counters, series. A cause that all runs share is named once, for the archive.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sim.hw.request import Stream
from sim.results.archive import ResultsArchive
from sim.run.result import Failure, KernelResult, RunResult

DIGESTS = ("input trace", "input output_sha256")
"""Inputs that follow from others; they are named after what they follow from."""


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
        cause: it is part of what was simulated, and may explain differences of results.
    """

    run: int
    kernel: int
    name: str
    before: Any
    after: Any
    instances: int = 0
    cause: bool = False

    @property
    def change(self) -> float | None:
        """after / before - 1; None if that is not a number."""
        numbers = all(isinstance(value, int | float) for value in (self.before, self.after))
        return self.after / self.before - 1 if numbers and self.before else None


def moves(one: ResultsArchive, other: ResultsArchive) -> list[Move]:
    """All differences: the causes, then the results. Runs and kernels are compared by number."""
    differences = [] if len(one.runs) == len(other.runs) else [Move(-1, -1, "runs", len(one.runs), len(other.runs))]
    pairs = list(zip(one.runs, other.runs, strict=False))
    causes = [list(_causes(number, *pair)) for number, pair in enumerate(pairs)]
    for number, pair in enumerate(pairs):
        differences += _run_moves(number, *pair)
    return [*_shared_once(causes), *differences]


def _causes(number: int, one: RunResult | Failure, other: RunResult | Failure) -> Iterator[Move]:
    """Differences in what was simulated, and by which version."""
    yield from _dict_moves(number, "point ", one.point, other.point)
    if isinstance(one, RunResult) and isinstance(other, RunResult):
        inputs = list(_dict_moves(number, "input ", _flat(one.input), _flat(other.input)))
        yield from (move for move in inputs if move.name not in DIGESTS)
        yield from _dict_moves(number, "option ", one.options, other.options)
        yield from _dict_moves(number, "machine ", one.preset.values(), other.preset.values())
        yield from (move for move in inputs if move.name in DIGESTS)
        yield from _dict_moves(number, "", {"interval_ps": one.interval_ps}, {"interval_ps": other.interval_ps})
        yield from _dict_moves(number, "version ", {"code": one.code}, {"code": other.code})
    yield from _dict_moves(number, "version ", {"writer": one.writer}, {"writer": other.writer})


def _shared_once(causes: list[list[Move]]) -> list[Move]:
    """The causes of all runs. A cause that every one of several runs has is named once, without a run."""
    times = Counter((move.name, repr(move.before), repr(move.after)) for found in causes for move in found)
    named: dict[tuple[int, str], Move] = {}
    for move in (move for found in causes for move in found):
        everywhere = times[move.name, repr(move.before), repr(move.after)] == len(causes) > 1
        move = replace(move, run=-1) if everywhere else move
        named.setdefault((move.run, move.name), move)
    return sorted(named.values(), key=lambda move: move.run)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under names with dots: kernel.tile_m."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _run_moves(number: int, one: RunResult | Failure, other: RunResult | Failure) -> Iterator[Move]:
    """Differences in what was found."""
    if isinstance(one, Failure) or isinstance(other, Failure):
        before, after = (run.reason if isinstance(run, Failure) else "" for run in (one, other))
        if before != after:
            yield Move(number, -1, "failure", before, after)
        return
    for figure, before, after in _unequal(one.figures, other.figures):
        yield Move(number, -1, f"figure {figure}", before, after)
    for name in ("time_ps", "kernel_ps", "link_bytes", "line_requests", "exactly_once"):
        if getattr(one, name) != getattr(other, name):
            yield Move(number, -1, name, getattr(one, name), getattr(other, name))
    for name, before, after in _unequal(_mean_bytes(one), _mean_bytes(other)):
        yield Move(number, -1, name, before, after)
    if len(one.kernels) != len(other.kernels):
        yield Move(number, -1, "kernels", len(one.kernels), len(other.kernels))
    for place, (ours, theirs) in enumerate(zip(one.kernels, other.kernels, strict=False)):
        yield from _kernel_moves(number, place, ours, theirs)
    yield from _series_moves(number, "", one.series, other.series)
    if len(one.others) != len(other.others):
        yield Move(number, -1, "other GPUs with records", len(one.others), len(other.others))
    for gpu, (first, second) in enumerate(zip(one.others, other.others, strict=False), 1):
        yield from _series_moves(number, f"GPU {gpu} ", first.series, second.series)


def _mean_bytes(run: RunResult) -> dict[str, int]:
    """DRAM bytes of a run on several GPUs, the mean of all; the counters are those of GPU 0."""
    mean = run.mean_dram_bytes
    return {} if mean is None else {f"mean_dram_bytes.{each.name.lower()}": int(mean[each]) for each in Stream}


def _dict_moves(run: int, prefix: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Move]:
    for name, before, after in _unequal(one, other):
        yield Move(run, -1, prefix + name, before, after, cause=True)


def _unequal(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in {**one, **other}:
        if one.get(name) != other.get(name):
            yield name, one.get(name), other.get(name)


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


def _series_moves(run: int, prefix: str, one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> Iterator[Move]:
    """Differences of the series: in the number of intervals, or in the sum; `instances` counts intervals."""
    for name in one | other:
        before, after = one.get(name), other.get(name)
        if before is None or after is None or before.shape != after.shape:
            yield Move(run, -1, f"{prefix}series {name}, intervals", _length(before), _length(after))
        elif (before != after).any():
            moved = int((before != after).sum())
            yield Move(run, -1, f"{prefix}series {name}, sum", int(before.sum()), int(after.sum()), moved)


def _length(values: np.ndarray | None) -> int | None:
    return None if values is None else len(values)
