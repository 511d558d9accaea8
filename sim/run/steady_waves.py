"""Prediction of the remaining waves of a kernel from the finished ones, with its uncertainty.

A *wave* is the number of workgroups that the machine holds at once. Waves become steady slowly: workgroups start at the
same time and drift apart, L2 fills, and the time per wave changes by some percent over tens of waves. The work itself
repeats after a *period*, for example a row of tiles. So rates are taken over a *window* of whole periods that is at
least a wave. The prediction is the mean rate of the last waves. Its uncertainty has two parts, taken as independent:

* noise: Student's prediction interval for the mean of the remaining waves. Windows overlap; as many of them count as
  independent as fit side by side;
* drift: the change between the two halves of the last waves continues as the logarithm of their number. The change
  slows down; that it follows this law is *assumed*.
"""

from math import hypot, log, sqrt
from typing import NamedTuple

import numpy as np

LEAST_WINDOWS = 5
"""Least number of rates, one wave apart, to predict from (assumed)."""
STUDENT = 2.8
"""Width of the interval in standard errors: 95 % for `LEAST_WINDOWS` rates, more for more rates."""


class Waves(NamedTuple):
    """What a kernel had done at the ends of its waves.

    Attributes:
        ended: f8 [waves + 1], workgroups that had ended, ascending.
        values: f8 [waves + 1], a time or a counter at these moments.
        wave: workgroups that the machine holds at once.
        window: workgroups of a window (`window_of`).
    """

    ended: np.ndarray
    values: np.ndarray
    wave: int
    window: int

    def since(self, start: np.ndarray) -> np.ndarray:
        """Increase of the values per workgroup over the window that begins at each of the given workgroups."""
        begin = np.interp(start, self.ended, self.values)
        return (np.interp(start + self.window, self.ended, self.values) - begin) / self.window


class Rest(NamedTuple):
    """Prediction of the remaining workgroups, in the unit of the values.

    Attributes:
        rate: of one workgroup.
        total: of all remaining workgroups.
        uncertainty: of the total.
    """

    rate: float
    total: float
    uncertainty: float


def window_of(wave: int, repeats_after: int) -> int:
    """The smallest number of whole periods that is at least a wave, in workgroups."""
    return -(-wave // repeats_after) * repeats_after


def windows_in(steady: int, wave: int, window: int) -> int:
    """Number of windows, one wave apart, in a number of workgroups."""
    return (steady - window) // wave + 1


def rest(waves: Waves, steady: int, left: int) -> Rest:
    """Predict the remaining workgroups by the mean rate of the last ended ones.

    Args:
        waves: the ended workgroups.
        steady: number of the last workgroups to take the mean of; at least two windows fit in.
        left: number of workgroups to predict.
    """
    end, wave, window = float(waves.ended[-1]), waves.wave, waves.window
    rates = waves.since(end - window - wave * np.arange(windows_in(steady, wave, window))[::-1])
    sides = steady // window  # windows side by side
    mean = float(waves.since(end - window * np.arange(1, sides + 1)).mean())
    noise = STUDENT * rates.std(ddof=1) * sqrt(window / steady + window / left)
    half = len(rates) // 2
    apart = end - steady / 4, end - 3 * steady / 4
    ahead = log((end + left / 2) / (end - steady / 2)) / log(apart[0] / apart[1])
    drift = abs(rates[half:].mean() - rates[:half].mean()) * ahead
    return Rest(mean, left * mean, left * hypot(noise, drift))


def wave_ends(times_ps: np.ndarray, ended: np.ndarray, wave: int) -> tuple[np.ndarray, np.ndarray]:
    """Workgroups up to the end of each wave, and the mean time at which the workgroups of the wave ended, ps.

    Args:
        times_ps: i8 [looks], ascending. ended: i8 [looks], workgroups that have ended at each time.
        wave: number of workgroups in a wave. The last wave ends with the last ended workgroup.
    """
    waves = int(ended[-1]) // wave
    first = int(ended[-1]) - waves * wave
    ends_ps = np.interp(np.arange(first, int(ended[-1])) + 0.5, ended, times_ps)
    return first + wave * np.arange(1.0, waves + 1), ends_ps.reshape(waves, wave).mean(axis=1)
