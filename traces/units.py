"""Units of simulated time, clocks, rates and sizes, and their conversions.

Simulated time is int64 picoseconds (`_ps`), sizes are bytes (`_bytes`), clocks are MHz (`_MHz`), rates are bytes per
second (`_bytes_per_s`). A G is 10**9 in bandwidth (GB/s) and in operations (TFLOP/s = 10**12); KiB, MiB and GiB are
powers of two and are used for capacities.
"""

PS_PER_NS = 1_000
PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000
PS_PER_S = 1_000_000_000_000
NS_PER_US = 1_000
US_PER_S = 1_000_000
HZ_PER_MHZ = 1_000_000
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
KILO = 1_000
MEGA = 1_000_000
GIGA = 1_000_000_000
TERA = 1_000_000_000_000


def period_ps(clock_MHz):
    """Clock period in picoseconds, not rounded (float)."""
    return PS_PER_US / clock_MHz


def whole_period_ps(clock_MHz):
    """Clock period in whole picoseconds, as the simulator uses it (D1)."""
    return round(period_ps(clock_MHz))


def clocks_to_ps(clocks, clock_MHz):
    """Duration of a number of clocks, rounded to whole picoseconds."""
    return round(clocks * period_ps(clock_MHz))


def ps_to_ns(time_ps):
    return time_ps / PS_PER_NS


def bytes_per_s(data_bytes, time_ps):
    """Rate of `data_bytes` in `time_ps`; 0 if the time is 0."""
    return data_bytes * PS_PER_S / time_ps if time_ps else 0.0


_TIMES = ((PS_PER_S, "s"), (PS_PER_MS, "ms"), (PS_PER_US, "us"), (PS_PER_NS, "ns"), (1, "ps"))
_SIZES = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))


def time_text(time_ps):
    """A duration as text for a person: `1.234 ms`."""
    return _scaled(time_ps, _TIMES)


def bytes_text(data_bytes):
    """A size as text for a person: `16 MiB`, `1.5 GiB`."""
    return _scaled(data_bytes, _SIZES)


def _scaled(value, steps):
    for factor, unit in steps:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} {steps[-1][1]}"
