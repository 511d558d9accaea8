"""The list of the fifos of a machine: their names and depths."""

import numpy as np


class Fifos:
    """Numbers the fifos of a machine and remembers their names and depths."""

    def __init__(self):
        self.depths: list[int] = []
        self.names: list[str] = []

    def add(self, name: str, count: int, depth: int) -> np.ndarray:
        """`count` fifos called name0, name1, ...; returns their numbers."""
        first = len(self.depths)
        self.depths += [depth] * count
        self.names += [f"{name}{k}" for k in range(count)]
        return np.arange(first, first + count)
