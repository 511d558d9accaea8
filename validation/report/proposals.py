"""Machines that the effects of a search point to: nearest by a linear model of its machines, to be simulated next.

The model of an aggregate has one number per level of every factor (ridge regression). How strongly it is drawn to the
mean is decided by the machines themselves: each is predicted from all others (leave one out). So a factor whose effect
cannot be told from chance has almost none in the model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from validation.experiments.space import Space
from validation.report.surface import Surface

PENALTIES = tuple(float(10**power) for power in np.arange(-1, 4.25, 0.25))
STARTS = 12
"""Machines from which the descent begins: those with the smallest distance."""
Levels = dict[str, str]


@dataclass(frozen=True)
class Model:
    """Aggregates as sums over levels.

    Attributes:
        mean: of each aggregate.
        effect: by (factor, level) and aggregate.
        foreseen: share of the variance of each aggregate that is predicted for machines which the model does not know;
            below 0: worse than the mean.
    """

    mean: pd.Series
    effect: pd.DataFrame
    foreseen: pd.Series

    def predict(self, levels: Levels) -> pd.Series:
        """The aggregates of a machine. A level that no machine had counts as the mean."""
        return self.mean + self.effect.reindex(list(levels.items()), fill_value=0.0).sum()


def model_of(levels: pd.DataFrame, values: pd.DataFrame) -> Model:
    """The linear model of each aggregate (column of `values`) over the levels of all factors (columns of `levels`)."""
    dummies = pd.concat({factor: pd.get_dummies(levels[factor], dtype=float) for factor in levels}, axis=1)
    x = (dummies - dummies.mean()).to_numpy()
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    effects, foreseen = {}, {}
    for claim, column in values.items():
        y = column.to_numpy() - column.mean()
        missed = {penalty: _left_out_errors(u, s, y, penalty) for penalty in PENALTIES}
        best = min(missed, key=lambda penalty: float((missed[penalty] ** 2).sum()))
        effect = vt.T @ (s / (s**2 + best) * (u.T @ y))
        # a machine with the mean of all levels has the mean
        effects[claim] = effect - _of_mean(effect, dummies)
        varied = float((y**2).sum())
        foreseen[claim] = 1 - float((missed[best] ** 2).sum()) / varied if varied else 1.0
    return Model(values.mean(), pd.DataFrame(effects, index=dummies.columns), pd.Series(foreseen))


def _left_out_errors(u: np.ndarray, s: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    """Error of each machine when the others predict it."""
    shrink = s**2 / (s**2 + penalty)
    leverage = (u**2 * shrink).sum(axis=1) + 1 / len(y)
    return (y - u @ (shrink * (u.T @ y))) / (1 - leverage)


def _of_mean(effect: np.ndarray, dummies: pd.DataFrame) -> np.ndarray:
    """For each level, the mean effect of its factor."""
    weighted = pd.Series(effect * dummies.mean().to_numpy(), index=dummies.columns)
    sums = weighted.groupby(level=0).sum()
    return sums.loc[dummies.columns.get_level_values(0)].to_numpy()


def proposals(found: Surface, space: Space, count: int) -> list[tuple[Levels, pd.Series]]:
    """The machines with the smallest predicted distance, and the prediction of their aggregates."""
    model = model_of(found.levels, found.values)
    fitted = {claim: aim for claim, aim in found.aims.items() if aim.fit}

    def distance(levels: Levels) -> float:
        predicted = model.predict(levels)
        return float(np.mean([aim.error(predicted[claim]) ** 2 for claim, aim in fitted.items()]))

    choices = {factor.name: [level.value for level in factor.level] for factor in space.factor}
    known = [dict(row) for _, row in found.levels.iterrows()]
    ends = []
    for name in found.distance[found.counted].nsmallest(STARTS).index:
        end = _descend(dict(found.levels.loc[name]), choices, distance)
        if end not in ends and end not in known:
            ends.append(end)
    ends.sort(key=distance)
    return [(end, model.predict(end)) for end in ends[:count]]


def _descend(levels: Levels, choices: Mapping[str, list[str]], distance: Callable[[Levels], float]) -> Levels:
    """Change one factor at a time to its best level, until nothing gets nearer."""
    least = distance(levels)
    while True:
        before = least
        for factor, values in choices.items():
            for value in values:
                if (tried := distance({**levels, factor: value})) < least:
                    least, levels = tried, {**levels, factor: value}
        if least == before:
            return levels
