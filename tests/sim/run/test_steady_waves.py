"""What waves foretell of those to come, and how sure it is, against closed forms."""

from math import log, sqrt

import numpy as np
import pytest

from sim.run.steady_waves import quarter_waves, rest, wave_times


def test_equal_waves_foretell_exactly():
    assert rest(np.full(12, 7.0), 30.5) == pytest.approx((30.5 * 7, 7, 0))


def test_only_the_last_half_counts():
    assert rest(np.r_[np.full(8, 99.0), np.full(8, 7.0)], 10) == pytest.approx((70, 7, 0))


def test_noise_is_two_standard_errors():
    """Waves of 9 and 11 by turns: the quarters have equal means, so there is no drift."""
    waves = np.tile([9.0, 11.0], 8)
    found = rest(waves, 5)
    assert found.wave == 10
    assert found.uncertainty == pytest.approx(5 * 2 * np.std([9, 11] * 4, ddof=1) / sqrt(8))


@pytest.mark.parametrize("slope", [-0.3, 0.3])
@pytest.mark.parametrize("done", [16, 40, 160])
def test_a_logarithmic_drift_stays_within_the_uncertainty(slope, done):
    place = np.arange(1, 401)
    waves = 10 + slope * np.log(place)
    found = rest(waves[:done], 400 - done)
    off = abs(found.total - waves[done:].sum())
    assert 0.5 * found.uncertainty < off < found.uncertainty


def test_drift_goes_on_as_the_logarithm():
    """Quarters of 4 waves, centres 10 and 14 of 16; the mean stands at 12, the rest at 16 + 24 / 2."""
    waves = np.r_[np.full(12, 10.0), np.full(4, 12.0)]
    drift = 2 * log(28 / 12) / log(14 / 10)
    noise = 2 * waves[-8:].std(ddof=1) / sqrt(8)
    assert rest(waves, 24).uncertainty == pytest.approx(24 * sqrt(drift**2 + noise**2))


def test_waves_are_counted_from_the_last():
    ends_ps = np.array([5, 100, 110, 120, 230, 240, 250])
    assert wave_times(ends_ps, 3).tolist() == [130]
    assert wave_times(np.repeat(np.arange(1, 6) * 50, 4), 4).tolist() == [50] * 4


def test_quarters():
    assert [quarter_waves(waves) for waves in (3, 12, 15, 16)] == [0, 3, 3, 4]
