"""What a search found, as tables: levels, aggregates, errors and distance of each machine; what can be met together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan
from typing import TypeVar

import pandas as pd

from validation.experiments.search import BASE, BRIDGE, GEMM_OF_PEAK, RS_OF_LINK, Aim, Search
from validation.experiments.space import load_space

MET = 1.0
"""Largest error of an aggregate that is met, in tolerances."""
Frame = TypeVar("Frame", pd.DataFrame, pd.Series)
LISTED = 6
"""Conflicts that the verdict lists, the hardest first."""
SURE = 3.0
"""Rule of three: what was never seen in n independent trials has a share of less than 3 / n, at 95 % confidence."""


@dataclass(frozen=True)
class Surface:
    """The machines of a search that have answers. Rows are machines; BASE is among them.

    Attributes:
        aims: the targets, by claim.
        levels: level in words, a column per factor.
        values: aggregates with the shift of the bridge, a column per target.
        errors: the same as distances from what is published, in tolerances.
        rs_of_link: time of the reduce-scatter over that of its bytes on the link.
        gemm_of_peak: smallest share of the matrix peak that a GEMM alone reaches; NaN = not known.
        least_gemm: what a machine must reach of it to count (`Space.gemm_of_peak`).
        machine: name without the level of `Search.across`.
        refused: machine -> why it could not be simulated.
        waiting: machines without all results: not run yet, or failed.
        bridged: the shift of the bridge is in `values`.
        drawn: the machines are the first ones of the design, not chosen or joined.
    """

    aims: Mapping[str, Aim]
    levels: pd.DataFrame
    values: pd.DataFrame
    errors: pd.DataFrame
    rs_of_link: pd.Series
    gemm_of_peak: pd.Series
    least_gemm: float
    machine: pd.Series
    refused: Mapping[str, str]
    waiting: tuple[str, ...]
    bridged: bool
    drawn: bool

    @property
    def distance(self) -> pd.Series:
        """Root mean square of the errors of the fitted targets, in tolerances."""
        return self._root_mean_square(fit=True)

    @property
    def check(self) -> pd.Series:
        """The same of the targets that were left out."""
        return self._root_mean_square(fit=False)

    def _root_mean_square(self, *, fit: bool) -> pd.Series:
        chosen = [name for name, aim in self.aims.items() if aim.fit == fit]
        return (self.errors[chosen] ** 2).mean(axis=1) ** 0.5

    @property
    def varied(self) -> pd.DataFrame:
        """Levels of the tried machines, of the factors in which they differ."""
        levels = self.levels[self.tried]
        return levels.loc[:, levels.nunique() > 1]

    @property
    def tried(self) -> pd.Series:
        """True for all machines but the base."""
        return self.machine != BASE

    @property
    def counted(self) -> pd.Series:
        """True for machines with a GEMM that a library could have, the base included."""
        return ~(self.gemm_of_peak < self.least_gemm)

    @property
    def trials(self) -> pd.Series:
        """True for the machines that count, without the base."""
        return self.counted & self.tried


def surface(experiment: Search, answers: Mapping[str, float]) -> Surface:
    """The answers of a search as tables.

    Args:
        answers: of `Search.answers`.
    """
    aims = {aim.claim.id: aim for aim in experiment.aims()}
    some = next(iter(aims.values())).answer
    candidates = [each for each in experiment.candidates() if each.name != BRIDGE]
    held = [each for each in candidates if f"{each.name}/{some}" in answers]
    aims = {claim: aim for claim, aim in aims.items() if not held or f"{held[0].name}/{aim.answer}" in answers}
    names = pd.Index([each.name for each in held])
    values = pd.DataFrame(
        {
            claim: [answers[f"{name}/{aim.answer}"] + _shift(aim.answer, answers) for name in names]
            for claim, aim in aims.items()
        },
        index=names,
    )
    return Surface(
        aims=aims,
        levels=pd.DataFrame([{name: level.value for name, level in each.levels.items()} for each in held], index=names),
        values=values,
        errors=pd.DataFrame({claim: values[claim].map(aim.error) for claim, aim in aims.items()}, index=names),
        rs_of_link=pd.Series({name: answers[f"{name}/{RS_OF_LINK}"] for name in names}, dtype=float),
        gemm_of_peak=pd.Series({name: answers.get(f"{name}/{GEMM_OF_PEAK}", nan) for name in names}, dtype=float),
        least_gemm=load_space(experiment.space).gemm_of_peak,
        machine=pd.Series([each.machine for each in held], index=names, dtype=str),
        refused={each.name: each.refused for each in candidates if each.refused},
        waiting=tuple(each.name for each in candidates if not each.refused and each not in held),
        bridged=f"{BRIDGE}/{some}" in answers,
        drawn=not experiment.chosen,
    )


def joined(parts: Sequence[Surface]) -> Surface:
    """The machines of several searches of one space, with the aggregates that all of them have.

    A machine of two searches has the values of the first one.
    """
    shared = [claim for claim in parts[0].aims if all(claim in each.aims for each in parts)]

    def rows(pick: Callable[[Surface], Frame]) -> Frame:
        whole = pd.concat([pick(each) for each in parts])
        return whole[~whole.index.duplicated()]

    levels = rows(lambda each: each.levels)
    return Surface(
        aims={claim: parts[0].aims[claim] for claim in shared},
        levels=levels,
        values=rows(lambda each: each.values[shared]),
        errors=rows(lambda each: each.errors[shared]),
        rs_of_link=rows(lambda each: each.rs_of_link),
        gemm_of_peak=rows(lambda each: each.gemm_of_peak),
        least_gemm=parts[0].least_gemm,
        machine=rows(lambda each: each.machine),
        refused={name: why for each in parts for name, why in each.refused.items()},
        waiting=tuple(dict.fromkeys(name for each in parts for name in each.waiting if name not in levels.index)),
        bridged=all(each.bridged for each in parts),
        drawn=False,
    )


def _shift(answer: str, answers: Mapping[str, float]) -> float:
    """What the base has more in the sub-layers of the bridge; 0 without a bridge."""
    bridge = answers.get(f"{BRIDGE}/{answer}")
    return 0.0 if bridge is None else bridge - answers[f"{BASE}/{answer}"]


def conflicts(errors: pd.DataFrame) -> pd.DataFrame:
    """Pairs of targets that are met, but by no machine together.

    Args:
        errors: in tolerances, by machine and target.

    Returns:
        columns first, second, machine, error: the machine whose larger error of the two is smallest, and that error.
        The largest error first.
    """
    far, rows = errors.abs(), []
    possible = [claim for claim in far if (far[claim] <= MET).any()]
    for first, second in combinations(possible, 2):
        worse = far[[first, second]].max(axis=1)
        if worse.min() > MET:
            rows.append({"first": first, "second": second, "machine": worse.idxmin(), "error": worse.min()})
    found = pd.DataFrame(rows, columns=["first", "second", "machine", "error"])
    return found.sort_values("error", ascending=False, kind="stable", ignore_index=True)


def verdict(found: Surface) -> list[str]:
    """In words: the machines that meet all targets, or the nearest ones and what forbids it."""
    trials = int(found.trials.sum())
    if not trials:
        return ["No machine but the base has answers yet."]
    errors = found.errors[found.counted].abs()
    meets = (errors <= MET).all(axis=1)
    if meets.any():
        return [f"Machines that meet all targets: {', '.join(errors.index[meets])}."]
    nearest = found.distance[found.counted].nsmallest(3)
    near = ", ".join(f"{name} ({distance:.2f})" for name, distance in nearest.items())
    lines = [f"None of {trials} machines meets all targets. The nearest, with their distance: {near}."]
    if found.drawn and trials > SURE:
        lines[0] += f" So less than {100 * SURE / trials:.1f} % of the machines that count do (95 % confidence)."
    for claim in errors:
        if (best := errors[claim].min()) > MET:
            machine = errors[claim].idxmin()
            lines.append(
                f"Out of reach: {_words(found, claim)}; nearest is machine {machine} with "
                f"{found.values.loc[machine, claim]:.4g}, {best:.1f} tolerances away."
            )
    lines += [
        f"Never met together: {_words(found, row.first)}, and {_words(found, row.second)}; the best compromise is "
        f"machine {row.machine}, {row.error:.1f} tolerances away."
        for row in conflicts(found.errors[found.counted]).head(LISTED).itertuples()
    ]
    return lines


def _words(found: Surface, claim: str) -> str:
    about = found.aims[claim].claim
    return f"{about.quantity} ({about.published:g} {about.unit})"
