"""Smallest and largest allowed value of each field. The range is wider than any hardware but overflows no counter.

So a typing error (a size in bits, a time in the wrong unit) gives a message that names the field. Without the bounds it
could give a run that never ends or takes all memory.
"""

from traces.units import GIB, KIB, MIB, PS_PER_S

BOUNDS = (
    ("capacity_bytes", 1, MIB * GIB),
    ("header_bytes", 0, 64 * KIB),
    ("bytes_per_clk", 1, MIB),
    ("bytes", 0, KIB * GIB),
    ("_ps", 0, PS_PER_S),
    ("per_clk", 1e-6, 1e6),
    ("_clk", 0, 1_000_000),
    ("_MHz", 1, 1e6),
    ("per_s", 1e-3, 1e6),
    ("seed", 0, 1 << 62),
)
"""End of a field's name, least, most. The first row that matches a name counts."""
TIMING_CLK = 0, 1_000_000
OTHERS = 0, MIB


def bound_rules(values):
    """(holds, field, what is allowed) for every number of a machine.

    Args:
        values: iterable of (dotted field, plain value).
    """
    for field, value in values:
        if isinstance(value, int | float):
            least, most = _bounds(field)
            yield least <= value <= most, field, f"{least:,} to {most:,}"


def _bounds(field):
    if field.startswith("hbm.timing."):
        return TIMING_CLK
    return next(((least, most) for end, least, most in BOUNDS if field.endswith(end)), OTHERS)
