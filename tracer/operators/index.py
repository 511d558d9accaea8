"""Indices of rows: tokens spread over a vocabulary, or sorted by the experts that they are routed to.

Real indices depend on data. Here they come from a hash of the row number, so they are spread evenly and are the same in
every run (D33).
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Spread(IntEnum):
    """How the indices are made."""

    VOCABULARY = 0  # rows of a table of `table` rows, at random
    TO_EXPERTS = 1  # place of each (token, choice) after sorting by expert: a permutation
    FROM_EXPERTS = 2  # token of each place after sorting by expert


@dataclass(frozen=True)
class Index:
    """The index array of a kernel.

    Attributes:
        spread: how the indices are made.
        tokens: number of tokens.
        each: indices of a row of the work.
        table: rows of the table (VOCABULARY), number of experts (others).
        choices: experts of a token (TO_EXPERTS: equal to `each`).
    """

    spread: Spread
    tokens: int
    each: int
    table: int
    choices: int = 1

    @property
    def rows(self) -> int:
        """Rows of the work."""
        return self.tokens * self.choices // self.each

    @property
    def table_rows(self) -> int:
        """Different rows of the table that are touched, at most."""
        spread = {Spread.VOCABULARY: self.table, Spread.TO_EXPERTS: self.tokens * self.choices}
        return min(self.rows * self.each, spread.get(self.spread, self.tokens))

    @property
    def listed(self) -> np.ndarray:
        """i8 [rows, each]."""
        token = np.arange(self.tokens, dtype=np.uint64)
        if self.spread == Spread.VOCABULARY:
            return (mixed(token) % np.uint64(self.table)).astype(np.int64)[:, None]
        expert = (mixed(token)[:, None] + np.arange(self.choices, dtype=np.uint64)) % np.uint64(self.table)
        order = np.argsort(expert.ravel(), kind="stable")
        if self.spread == Spread.FROM_EXPERTS:
            return (order // self.choices)[:, None]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return place.reshape(self.tokens, self.choices)


def mixed(numbers: np.ndarray) -> np.ndarray:
    """A hash of each number, u8 [n] (the finaliser of SplitMix64; Steele, Lea and Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return x ^ x >> np.uint64(31)
