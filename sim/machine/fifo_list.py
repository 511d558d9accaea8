"""The list of the fifos of a machine: their names and depths."""

import numpy as np


class Fifos:
    """Numbers the fifos of a machine and remembers their names, depths and credits."""

    def __init__(self):
        self.depths: list[int] = []
        self.credits_ps: list[int] = []
        self.names: list[str] = []

    def add(self, name: str, count: int, depth: int, credit_ps: int = 0) -> np.ndarray:
        """`count` fifos called name0, name1, ...; returns their numbers."""
        first = len(self.depths)
        self.depths += [depth] * count
        self.credits_ps += [credit_ps] * count
        self.names += [f"{name}{k}" for k in range(count)]
        return np.arange(first, first + count)
