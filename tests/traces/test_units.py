"""Conversions between clocks, picoseconds and rates."""

import pytest

from traces import units


@pytest.mark.parametrize(("clock_MHz", "clocks", "time_ps"), [(1000, 7, 7000), (1400, 7, 5000), (1132, 5000, 4416961)])
def test_clocks_to_ps(clock_MHz, clocks, time_ps):
    assert units.clocks_to_ps(clocks, clock_MHz) == time_ps


def test_rate():
    assert units.bytes_per_s(32, 1000) == 32e9
    assert units.bytes_per_s(32, 0) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.time_text(1_234_000_000), "1.234 ms"),
        (units.time_text(0), "0 ps"),
        (units.time_text(2_500), "2.5 ns"),
        (units.bytes_text(16 << 20), "16 MiB"),
        (units.bytes_text(3 << 29), "1.5 GiB"),
        (units.bytes_text(100), "100 B"),
    ],
)
def test_text(text, expected):
    assert text == expected
