"""Prediction of the remaining waves of a kernel from the finished ones, with its uncertainty.

A *wave* is the number of workgroups that the machine holds at once. Waves become steady slowly: workgroups start at the
same time and drift apart, and the time per wave changes by some percent over tens of waves. A mean alone is therefore
not enough. The prediction has an uncertainty of three parts, taken as independent:

* noise: two standard errors of the mean wave;
* drift: the change between the last two quarters of the waves continues as the logarithm of their number. The change
  slows down; that it follows this law is *assumed*;
* the end (`END_WAVES`): if workgroups are in step, the last, incomplete wave takes as long as a full one; if they have
  drifted apart, it takes only its share. The simulated part and the whole kernel may end in different ways.
"""

from math import hypot, log, sqrt
from typing import NamedTuple

import numpy as np

QUARTER_WAVES = 3
"""Least number of waves in a quarter. The mean of fewer waves is not reliable (assumed)."""
END_WAVES = 0.5
"""Uncertainty of the end, in waves. The last wave takes between its share of a wave and a whole wave."""


class Rest(NamedTuple):
    """Prediction of the remaining waves, in the unit of the waves.

    Attributes:
        total: sum over all remaining waves.
        wave: value of one wave.
        uncertainty: of the total, from noise and drift.
    """

    total: float
    wave: float
    uncertainty: float


def quarter_waves(waves: int) -> int:
    """Number of waves in a quarter of the finished waves."""
    return waves // 4


def rest(waves: np.ndarray, left: float) -> Rest:
    """Predict the remaining waves by the mean of the last two quarters of the finished ones.

    Args:
        waves: f8 [waves], time or traffic of each wave in order; at least four waves.
        left: number of waves to predict.
    """
    done, quarter = len(waves), quarter_waves(len(waves))
    last = waves[-2 * quarter :]
    change = abs(last[quarter:].mean() - last[:quarter].mean())
    noise = 2 * last.std(ddof=1) / sqrt(len(last))
    observed = log((done - quarter / 2) / (done - 3 * quarter / 2))
    ahead = log((done + left / 2) / (done - quarter))
    return Rest(left * last.mean(), last.mean(), left * hypot(noise, change * ahead / observed))


def wave_times(ends_ps: np.ndarray, wave: int) -> np.ndarray:
    """Time between the mean ends of consecutive waves, f8 [waves - 1], ps.

    Args:
        ends_ps: i8 [workgroups], end of each workgroup, ascending. The last wave ends with the last workgroup.
        wave: number of workgroups in a wave.
    """
    waves = len(ends_ps) // wave
    means = ends_ps[len(ends_ps) - waves * wave :].reshape(waves, wave).mean(axis=1)
    return np.diff(means)
