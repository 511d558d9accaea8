"""Predictions of waves: exact where the rate is constant, or repeats; uncertain where it is not."""

import numpy as np
import pytest

from sim.run.steady_waves import LEAST_WINDOWS, Waves, rest, wave_ends, window_of, windows_in

WAVE = 100


def waves(per_workgroup, period=1, count=20):
    """Waves whose workgroups have these values, in order."""
    ended = WAVE * np.arange(count + 1.0)
    total = np.concatenate([[0.0], np.cumsum(per_workgroup[: WAVE * count])])
    return Waves(ended, total[ended.astype(int)], WAVE, window_of(WAVE, period))


def test_a_constant_rate_is_predicted_exactly():
    found = rest(waves(np.full(2000, 7.0)), 10 * WAVE, 3000)
    assert (found.rate, found.total) == (pytest.approx(7), pytest.approx(21_000))
    assert found.uncertainty == pytest.approx(0, abs=1e-6)


def test_the_start_is_forgotten():
    values = np.full(2000, 7.0)
    values[:900] = 30
    assert rest(waves(values), 10 * WAVE, 3000).rate == pytest.approx(7)


@pytest.mark.parametrize("period", [50, 200, 500])
def test_what_repeats_is_predicted_exactly(period):
    """The first workgroups of each period read a new panel. A period that is no wave is whole periods long."""
    values = np.where(np.arange(3000) % period < 10, 50.0, 2.0)
    found = rest(waves(values, period, 30), 15 * WAVE, 10 * period)
    assert found.total == pytest.approx(values[:period].sum() * 10)
    assert found.uncertainty == pytest.approx(0, abs=1e-6)


def test_noise_makes_uncertain_and_covers_the_rest():
    """Student's interval: of 200 noisy kernels at least 95 % end within it."""
    kept = 0
    for seed in range(200):
        values = np.repeat(np.random.default_rng(seed).normal(1, 0.05, 40), WAVE)
        found = rest(waves(values), 10 * WAVE, 20 * WAVE)
        kept += abs(found.total - values[20 * WAVE :].sum()) <= found.uncertainty
    assert kept >= 190


def test_a_drift_makes_uncertain():
    steps = np.repeat(1 + 0.1 * np.log(np.arange(1.0, 41)), WAVE)
    found = rest(waves(steps), 10 * WAVE, 20 * WAVE)
    assert abs(found.total - steps[20 * WAVE :].sum()) <= found.uncertainty
    slower = np.repeat(1 + 0.01 * np.log(np.arange(1.0, 41)), WAVE)
    assert rest(waves(slower), 10 * WAVE, 20 * WAVE).uncertainty < found.uncertainty / 5


def test_uncertainty_of_one_series_by_hand():
    """Waves of 1 and 2 in turn, no drift between the halves of four windows: the noise alone."""
    values = np.repeat(np.tile([1.0, 2.0], 10), WAVE)
    found = rest(waves(values), 4 * WAVE, 4 * WAVE)
    deviation = np.std([1, 2, 1, 2], ddof=1)
    assert found.rate == 1.5
    assert found.uncertainty == pytest.approx(4 * WAVE * 2.8 * deviation * np.sqrt(1 / 4 + 1 / 4))


def test_a_drift_continues_as_the_logarithm_by_hand():
    """The halves of the last four of 20 waves have their middles at 17 and 19 waves, the four after them at 22."""
    values = np.repeat(np.r_[[1.0] * 18, [2.0] * 2], WAVE)
    found = rest(waves(values), 4 * WAVE, 4 * WAVE)
    noise = 2.8 * np.std([1, 1, 2, 2], ddof=1) * np.sqrt(1 / 4 + 1 / 4)
    drift = 1 * np.log(22 / 18) / np.log(19 / 17)
    assert found.uncertainty == pytest.approx(4 * WAVE * np.hypot(noise, drift))


@pytest.mark.parametrize(
    ("wave", "period", "window"), [(100, 1, 100), (100, 64, 128), (100, 100, 100), (100, 640, 640)]
)
def test_a_window_is_whole_periods(wave, period, window):
    assert window_of(wave, period) == window
    assert windows_in(window + (LEAST_WINDOWS - 1) * wave, wave, window) == LEAST_WINDOWS


def test_wave_ends_are_the_mean_ends_of_workgroups():
    """Against a plain loop over workgroups that end one after the other."""
    ends_ps = np.cumsum(np.random.default_rng(1).integers(1, 9, 730))
    positions, means = wave_ends(np.r_[0, ends_ps], np.arange(731), WAVE)
    assert positions.tolist() == [30 + WAVE * n for n in range(1, 8)]
    exact = [np.mean(ends_ps[30 + WAVE * n : 30 + WAVE * (n + 1)]) for n in range(7)]
    assert means == pytest.approx(exact, abs=9)
