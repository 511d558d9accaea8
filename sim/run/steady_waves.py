"""How well the waves of a kernel that have run foretell those that have not.

A *wave* is as many workgroups as the machine holds at once. Waves settle slowly: workgroups that start in step drift
apart, and the pace changes by some percent over tens of waves. So a mean alone promises nothing; what is foretold has
an uncertainty of three parts, taken as independent:

* noise: two standard errors of the mean wave;
* drift: the change between the last two quarters of the waves goes on as the logarithm of their number. A settling
  slows down; that it follows this law is *assumed*;
* the end (`END_WAVES`): workgroups in step leave a last, incomplete wave that takes as long as a full one; those that
  have drifted apart fill it. What was simulated ends in the one way and the whole run perhaps in the other.
"""

from math import hypot, log, sqrt
from typing import NamedTuple

import numpy as np

QUARTER_WAVES = 3
"""Waves in a quarter, at least: of fewer a mean says little (assumed)."""
END_WAVES = 0.5
"""Uncertainty of the end in waves: it costs between the share of places that it fills and a whole wave."""


class Rest(NamedTuple):
    """What the waves left will add, in the unit of the waves.

    Attributes:
        total: of all waves left.
        wave: of one.
        uncertainty: of the total, from noise and drift.
    """

    total: float
    wave: float
    uncertainty: float


def quarter_waves(waves: int) -> int:
    """Waves in a quarter of those that have run."""
    return waves // 4


def rest(waves: np.ndarray, left: float) -> Rest:
    """Foretell by the mean of the last two quarters.

    Args:
        waves: f8 [waves], time or traffic of each, in their order; four at least.
        left: waves to foretell.
    """
    done, quarter = len(waves), quarter_waves(len(waves))
    last = waves[-2 * quarter :]
    change = abs(last[quarter:].mean() - last[:quarter].mean())
    noise = 2 * last.std(ddof=1) / sqrt(len(last))
    observed = log((done - quarter / 2) / (done - 3 * quarter / 2))
    ahead = log((done + left / 2) / (done - quarter))
    return Rest(left * last.mean(), last.mean(), left * hypot(noise, change * ahead / observed))


def wave_times(ends_ps: np.ndarray, wave: int) -> np.ndarray:
    """Time between the mean ends of neighbouring waves, f8 [waves - 1].

    Args:
        ends_ps: i8 [workgroups], when each ended, ascending. Waves are counted from the last one back.
        wave: workgroups of a wave.
    """
    waves = len(ends_ps) // wave
    means = ends_ps[len(ends_ps) - waves * wave :].reshape(waves, wave).mean(axis=1)
    return np.diff(means)
