"""Means of signed relative errors (0.1 = 10 % too large)."""

from collections.abc import Collection
from statistics import fmean
from typing import NamedTuple


class MeanErrors(NamedTuple):
    """absolute: mean of the absolute errors. mean: of the signed ones."""

    absolute: float
    mean: float


def mean_errors(errors: Collection[float]) -> MeanErrors:
    """errors: at least one."""
    return MeanErrors(fmean(map(abs, errors)), fmean(errors))
