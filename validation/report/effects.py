"""Estimators for a search: what factors and pairs of factors explain of an answer, and which machines are on the front.

share: of the variance of an answer, what a model explains, adjusted for the number of its levels (adjusted R squared).
It is about 0 for a factor without effect, also where machines are few. A main effect is the share of the factor's level
means. A pair is what the means of all cells of two factors explain beyond the level means of the strongest factors.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

STRONGEST = 6
"""Factors whose pairs are looked at, for each answer."""
PER_CELL = 3
"""Machines that a cell of two factors has on average, at least; else a pair is not looked at."""
QUIET, ROTATIONS = 0.95, 20
"""Of `noise`."""
RESAMPLES = 1000
"""Of `rank_correlation`."""
CONTRASTS = 11
"""Factors of a Plackett-Burman design of twelve machines."""
T_OF_LENTH, T_OF_PAIRS = 2.879, 2.571
"""Student's t for 95 %, on both sides: CONTRASTS / 3 degrees of freedom, and twelve machines less seven numbers."""


def level_means(levels: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Mean of each answer over the machines with a level.

    Args:
        levels: level by machine (row) and factor (column).
        values: number by machine and answer.

    Returns:
        rows (factor, level) in order of appearance, a column `machines` with their number, then one per answer.
    """
    parts = {}
    for factor in levels:
        grouped = values.groupby(levels[factor], sort=False)
        parts[factor] = pd.concat([grouped.size().rename("machines"), grouped.mean()], axis=1)
    return pd.concat(parts, names=["factor", "level"])


def main_effects(levels: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Share of the variance of each answer (column) that a factor (row) explains alone, 0 to 1."""
    return pd.DataFrame({factor: _explained(values, [levels[factor]]).clip(lower=0) for factor in levels}).T


def noise(levels: pd.DataFrame, values: pd.DataFrame) -> pd.Series:
    """Share of each answer below which QUIET of the factors stay if they have no effect.

    The answers are given to other machines: those of machine k + n to machine k, for the first ROTATIONS values of n.
    """
    rotations = range(1, min(ROTATIONS, len(values) - 1) + 1)
    rotated = pd.concat([values.set_axis(np.roll(values.index, n)) for n in rotations], axis=1, keys=rotations)
    effects = main_effects(levels, rotated.loc[values.index])
    return effects.stack(level=0, future_stack=True)[values.columns].quantile(QUIET)


def reaches(levels: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Largest less smallest level mean of each answer (column) for a factor (row), in the unit of the answer."""
    grouped = level_means(levels, values).drop(columns="machines").groupby(level="factor", sort=False)
    return grouped.max() - grouped.min()


def pair_effects(levels: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Pairs of the STRONGEST factors of an answer: columns first, second, share; the largest share first."""
    alone = main_effects(levels, values.to_frame())[values.name]
    strongest = list(alone.nlargest(STRONGEST).index)
    single = [levels[factor] for factor in strongest]
    by_single = _explained(values.to_frame(), single)
    rows = []
    for first, second in combinations(strongest, 2):
        cells = levels[first] + " & " + levels[second]
        if len(cells) >= PER_CELL * cells.nunique():
            gained = _explained(values.to_frame(), [*single, cells]) - by_single
            rows.append({"first": first, "second": second, "share": gained.iloc[0]})
    found = pd.DataFrame(rows, columns=["first", "second", "share"])
    return found.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def contrasts(levels: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Mean with the second level less mean with the first one, of each answer (column) for a factor (row).

    Args:
        levels: of a design of two levels, all in half of the machines, every pair of levels in a quarter.
    """
    above_first = values.to_numpy() - values.to_numpy()[0]  # so that an answer that does not vary has 0 exactly
    return pd.DataFrame(np.linalg.lstsq(_signs(levels), above_first)[0] * 2, levels.columns, values.columns)


def margins(found: pd.DataFrame) -> pd.Series:
    """Error bar of the contrasts of each answer (95 %), by the method of Lenth (Technometrics 31, 1989).

    A design with as many factors as it can hold leaves no machine to judge chance by. So chance is judged by the
    contrasts themselves: most factors are taken to have no effect, and the median contrast shows what chance gives.

    Args:
        found: CONTRASTS rows of `contrasts`.

    Raises:
        ValueError: another number of rows.
    """
    if len(found) != CONTRASTS:
        raise ValueError(f"found {len(found)} contrasts, allowed are {CONTRASTS}")
    size = found.abs()
    return T_OF_LENTH * 1.5 * size[size <= 2.5 * 1.5 * size.median()].median()


def is_balanced(levels: pd.DataFrame) -> bool:
    """Is it a design of CONTRASTS factors with two levels, in which every pair of levels is in a quarter?"""
    if levels.shape != (CONTRASTS + 1, CONTRASTS) or (levels.nunique() != 2).any():
        return False
    signs = _signs(levels)
    return bool((signs.T @ signs == len(signs) * np.eye(CONTRASTS)).all() and (signs.sum(axis=0) == 0).all())


def pairs_in_three(levels: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """What two second levels give beyond the sum of each alone, for pairs of the three strongest factors of an answer.

    Any three factors of a Plackett-Burman design of twelve machines have all eight combinations of levels. So their
    contrasts and those of their three pairs can be told apart. All other factors count as chance.

    Returns:
        columns first, second, contrast, margin (95 %).
    """
    strongest = contrasts(levels, values.to_frame())[values.name].abs().nlargest(3).index
    signs = pd.DataFrame(_signs(levels), columns=levels.columns)[list(strongest)]
    pairs = list(combinations(strongest, 2))
    products = [signs[first] * signs[second] for first, second in pairs]
    matrix = np.column_stack([np.ones(len(signs)), signs, *products])
    y = values.to_numpy(dtype=float)
    fitted = np.linalg.lstsq(matrix, y)[0]
    variance = ((y - matrix @ fitted) ** 2).sum() / (len(y) - matrix.shape[1]) * np.linalg.inv(matrix.T @ matrix)
    rows = [
        (first, second, 4 * fitted[place], T_OF_PAIRS * 4 * variance[place, place] ** 0.5)
        for place, (first, second) in enumerate(pairs, start=1 + len(strongest))
    ]
    return pd.DataFrame(rows, columns=["first", "second", "contrast", "margin"])


def _signs(levels: pd.DataFrame) -> np.ndarray:
    """-1 for the level that comes first in a column, 1 for the other one."""
    return np.where(levels == levels.iloc[0], -1.0, 1.0)


def rank_correlation(one: pd.Series, other: pd.Series) -> tuple[float, float, float]:
    """Spearman's rank correlation of two answers over the machines, and the ends of its error bar (95 %, bootstrap)."""
    drawn = np.random.default_rng(1).integers(len(one), size=(RESAMPLES, len(one)))
    resampled = [one.iloc[rows].rank().corr(other.iloc[rows].rank()) for rows in (np.arange(len(one)), *drawn)]
    low, high = np.quantile(resampled[1:], [0.025, 0.975])
    return float(resampled[0]), float(low), float(high)


def front(errors: pd.DataFrame) -> pd.Series:
    """True for each machine (row) that no other one beats: at most as far from 0 in all columns, nearer in one."""
    far = errors.abs().to_numpy()
    beaten = [bool(((far <= row).all(axis=1) & (far < row).any(axis=1)).any()) for row in far]
    return pd.Series(~np.array(beaten, dtype=bool), index=errors.index)


def _explained(values: pd.DataFrame, groups: Sequence[pd.Series]) -> pd.Series:
    """Adjusted R squared of the additive model of groups, for each answer (column).

    0 where an answer does not vary, or where no machine is left to judge.
    """
    model = pd.concat([pd.get_dummies(group, dtype=float) for group in groups], axis=1).to_numpy()
    y = values.to_numpy(dtype=float)
    matrix = np.column_stack([np.ones(len(y)), model])
    fitted, _, rank, _ = np.linalg.lstsq(matrix, y)
    whole = ((y - y.mean(axis=0)) ** 2).sum(axis=0)
    left = len(y) - rank
    if left <= 0:
        return pd.Series(0.0, index=values.columns)
    rest = ((y - matrix @ fitted) ** 2).sum(axis=0)
    varies = whole > 0
    share = np.zeros(len(whole))
    share[varies] = 1 - (rest[varies] / left) / (whole[varies] / (len(y) - 1))
    return pd.Series(share, index=values.columns)
