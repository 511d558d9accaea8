"""A space of six made-up factors, a to f, and the machines that its design draws."""

import pandas as pd

from validation.experiments.space import Factor, Level, Space

SPACE = Space(
    title="",
    seed=1,
    target=(),
    factor=tuple(
        Factor(name=name, reason="r", level=tuple(Level(value=f"{name}{place}") for place in range(levels)))
        for name, levels in (("a", 2), ("b", 3), ("c", 2), ("d", 4), ("e", 6), ("f", 2))
    ),
)


def drawn_levels(machines: int) -> pd.DataFrame:
    """Level by machine (row) and factor (column)."""
    rows = [{name: level.value for name, level in SPACE.machine(number).items()} for number in range(machines)]
    return pd.DataFrame(rows)
