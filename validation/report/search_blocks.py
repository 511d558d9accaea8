"""Tables of a search: verdict, nearest machines, effects of factors and pairs, and every factor with its reason."""

from collections.abc import Mapping, Sequence
from math import isnan

import pandas as pd

from sim.scenario.result import IDEAL, SEQUENTIAL, T3, T3_MCA
from traces.command.document import Block, Bullets, Heading, Table, Text
from traces.command.tables import number_text
from validation.experiments.search import BASE, Search
from validation.experiments.space import BLOCK, load_space
from validation.experiments.workbench import scenario_names
from validation.report.effects import (
    contrasts,
    is_balanced,
    level_means,
    main_effects,
    margins,
    noise,
    pair_effects,
    pairs_in_three,
)
from validation.report.surface import Surface, surface, verdict

NEAREST = 10
"""Machines in the table of the nearest."""
SHOWN = 3
"""Machines whose levels are listed."""
PAIRS = 12
"""Pairs of factors in their table."""
LEAST_SHARE = 0.02
"""Pairs that explain less are not listed."""
WORDS = (
    "distance: root mean square of error / tolerance over the fitted targets; check: the same over the targets that "
    "were left out (in brackets). A limit on one side counts only where it is broken. share: part of the variance of "
    "an aggregate over all machines that a factor explains alone, adjusted for its number of levels; of a pair: what "
    "its cells explain beyond the level means of the strongest factors."
)
BAR_WORDS = (
    "Mean of the six machines with the second level less that of the six with the first one. *: larger than the error "
    "bar, which is Lenth's: it takes most factors to have no effect. Pairs: for each aggregate its three strongest "
    "factors; all others count as chance."
)


def search_blocks(experiment: Search, answers: Mapping[str, float]) -> list[Block]:
    """Everything that the report says about a search."""
    found = surface(experiment, answers)
    blocks = summary_blocks(experiment, found)
    if not found.tried.any():
        return blocks
    if experiment.across is not None:
        blocks += [
            Heading(f"By {experiment.across.name}", 3),
            across_table(found),
            harm_table(scenario_names(experiment.scenarios), found, answers, experiment.across.name),
        ]
    else:
        blocks += effect_blocks(found) or [Heading("What T3 loses", 3), loss_table(experiment, found, answers)]
    return blocks + (space_blocks(experiment) if found.drawn else [])


def summary_blocks(experiment: Search, found: Surface) -> list[Block]:
    """The verdict and the nearest machines."""
    said: list[Block] = [Text(_counts(experiment, found)), Bullets(verdict(found)), Text(WORDS)]
    return [*said, nearest_table(found), level_table(found)]


def nearest_table(found: Surface) -> Table:
    """The base and the machines with the smallest distance, with all aggregates."""
    order = [*([BASE] if BASE in found.levels.index else []), *found.distance[found.trials].nsmallest(NEAREST).index]
    titles = [_title(found, claim) for claim in found.aims]
    rows = [["published", "", "", *(number_text(aim.claim.published) for aim in found.aims.values()), "", ""]]
    rows += [["tolerance", "", "", *(number_text(aim.tolerance) for aim in found.aims.values()), "", ""]]
    for name in order:
        values = [f"{value:.4g}" for value in found.values.loc[name]]
        scores = [_known(found.distance[name]), _known(found.check[name])]
        rows.append([name, *scores, *values, f"{found.rs_of_link[name]:.3f}", _known(found.gemm_of_peak[name])])
    columns = ["machine", "distance", "check", *titles, "RS / link time", "GEMM / peak"]
    return Table(columns, rows, columns[1:])


def _known(number: float) -> str:
    """Empty for NaN, e.g. the check of a search without targets that were left out."""
    return "" if isnan(number) else f"{number:.2f}"


def level_table(found: Surface) -> Table:
    """Factors in which the base and the nearest machines differ."""
    nearest = list(found.distance[found.trials].nsmallest(SHOWN).index)
    shown = [*([BASE] if BASE in found.levels.index else []), *nearest]
    levels = found.levels.loc[shown].fillna("")
    rows = [[factor, *levels[factor]] for factor in levels if levels[factor].nunique() > 1]
    return Table(["factor", *shown], rows)


def effect_blocks(found: Surface) -> list[Block]:
    """The effects of a balanced design with error bars.

    Of machines that the design of the space drew: shares of factors and of pairs, and the means of all levels.
    """
    levels, values = found.varied, found.values[found.tried]
    if is_balanced(levels):
        return [
            Text(BAR_WORDS),
            contrast_table(found),
            Heading("Pairs of factors, with error bars", 3),
            bar_table(found),
        ]
    if not found.drawn or len(levels) < BLOCK:
        return []
    titles = [_title(found, claim) for claim in values]
    means = level_means(levels, values)
    mean_rows = [
        [f"{factor} = {level}", *(f"{value:.4g}" for value in row)] for (factor, level), row in means.iterrows()
    ]
    mean_table = Table(["level", "machines", *titles], mean_rows, ["machines", *titles])
    return [*share_blocks(found), Heading("Mean of each level", 3), mean_table]


def contrast_table(found: Surface) -> Table:
    """What each factor changes, and the error bar. `*`: larger than the error bar."""
    effects = contrasts(found.varied, found.values[found.tried])
    bars = margins(effects)
    effects = effects.loc[(effects.abs() / bars).mean(axis=1).sort_values(ascending=False, kind="stable").index]
    second = {
        factor: found.varied[factor][found.varied[factor] != found.varied[factor].iloc[0]].iloc[0]
        for factor in effects.index
    }
    rows = [
        [f"{factor} = {second[factor]}", *(_starred(number, bars[claim]) for claim, number in row.items())]
        for factor, row in effects.iterrows()
    ]
    rows.append(["error bar (95 %)", *(f"{bar:.2g}" for bar in bars)])
    titles = [_title(found, claim) for claim in effects]
    return Table(["factor, second level", *titles], rows, titles)


def bar_table(found: Surface) -> Table:
    """Pairs of the three strongest factors of each fitted aggregate."""
    rows = []
    for claim, aim in found.aims.items():
        if aim.fit:
            pairs = pairs_in_three(found.varied, found.values.loc[found.tried, claim])
            rows += [
                [_title(found, claim), row.first, row.second, _starred(row.contrast, row.margin), f"{row.margin:.2g}"]
                for row in pairs.itertuples()
            ]
    columns = ["aggregate", "first factor", "second factor", "both together beyond the sum", "error bar (95 %)"]
    return Table(columns, rows, columns[3:])


def _starred(number: float, bar: float) -> str:
    return f"{number:+.3g}{' *' if abs(number) > bar else ''}"


def share_blocks(found: Surface) -> list[Block]:
    """Shares of factors and of pairs."""
    levels, values = found.varied, found.values[found.tried]
    shares = main_effects(levels, values)
    shares = shares.loc[shares.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    titles = [_title(found, claim) for claim in values]
    shares.loc["a factor without effect is below, in 95 of 100 cases"] = noise(levels, values)
    share_rows = [[factor, *(f"{100 * share:.0f}" for share in row)] for factor, row in shares.iterrows()]
    return [
        Heading("Share of a factor (%)", 3),
        Table(["factor", *titles], share_rows, titles),
        Heading("Pairs of factors", 3),
        pair_table(found, levels, values),
    ]


def pair_table(found: Surface, levels: pd.DataFrame, values: pd.DataFrame) -> Table:
    """The strongest pairs of all aggregates."""
    pairs = [
        (row.share, _title(found, claim), row.first, row.second)
        for claim in values
        for row in pair_effects(levels, values[claim]).itertuples()
        if row.share >= LEAST_SHARE
    ]
    pairs.sort(key=lambda pair: -pair[0])
    rows = [[title, first, second, f"{100 * share:.0f}"] for share, title, first, second in pairs[:PAIRS]]
    return Table(["aggregate", "first factor", "second factor", "share (%)"], rows, ["share (%)"])


def across_table(found: Surface) -> Table:
    """One row per machine and level, and below the levels of a machine how far apart they are."""
    rows = []
    for name, group in found.values[found.tried].groupby(found.machine[found.tried], sort=False):
        for machine, values in group.iterrows():
            rows.append([f"{machine}", f"{found.distance[machine]:.2f}", *(f"{value:.4g}" for value in values)])
        rows.append([f"{name}: largest - smallest", "", *(f"{value:.3g}" for value in group.max() - group.min())])
    columns = ["machine", "distance", *(_title(found, claim) for claim in found.aims)]
    return Table(columns, rows, columns[1:])


def harm_table(names: Sequence[str], found: Surface, answers: Mapping[str, float], factor: str) -> Table:
    """For each level of a factor: sub-layers where T3-MCA is slower than T3 or Sequential, by how much at most.

    Args:
        names: sub-layers; a machine need not have all.
    """
    rows = []
    for level, group in found.levels[found.trials].groupby(factor, sort=False):
        cases = [f"{machine}/{name}" for machine in group.index for name in names]
        cases = [case for case in cases if f"{case}/{T3_MCA}/speedup" in answers]
        mca = [answers[f"{case}/{T3_MCA}/speedup"] for case in cases]
        over_t3 = [speedup / answers[f"{case}/{T3}/speedup"] for speedup, case in zip(mca, cases, strict=True)]
        rows.append([f"{level}", f"{len(cases)}", *_slower(over_t3), *_slower(mca)])
    columns = [factor, "sub-layers", f"slower than {T3}", "at most (%)", f"slower than {SEQUENTIAL}", "at most (%) "]
    return Table(columns, rows, columns[1:])


def loss_table(experiment: Search, found: Surface, answers: Mapping[str, float]) -> Table:
    """Time of T3 less that of the ideal overlap, by machine and sub-layer."""
    names = scenario_names(experiment.scenarios)
    rows = []
    for machine in found.levels.index:
        times = [[answers[f"{machine}/{name}/{each}/time_us"] for each in (T3, IDEAL)] for name in names]
        changed = [
            f"{factor}: {level}"
            for factor, level in found.levels.loc[machine].items()
            if level != found.levels.loc[BASE, factor]
        ]
        rows.append(
            [machine, "; ".join(changed), *(f"{t3 - ideal:.0f} ({100 * (t3 / ideal - 1):.1f})" for t3, ideal in times)]
        )
    titles = [f"{name}, us (%)" for name in names]
    return Table(["machine", "other than the base", *titles], rows, titles)


def _slower(speedups: Sequence[float]) -> tuple[str, str]:
    """Number of speed-ups below 1, and the largest loss in percent of the time."""
    return f"{sum(speedup < 1 for speedup in speedups)}", f"{max(0.0, 100 * (1 / min(speedups) - 1)):.1f}"


def space_blocks(experiment: Search) -> list[Block]:
    """Every factor with its levels and its reason, and what does not vary."""
    space = load_space(experiment.space)
    rows = [[each.name, "; ".join(level.value for level in each.level), each.reason] for each in space.factor]
    table = Table(["factor", "levels (the base first)", "reason"], rows)
    return [Heading("The space", 3), table, Text("Left out:"), Bullets(list(space.left_out))]


def _counts(experiment: Search, found: Surface) -> str:
    bridge = ""
    if experiment.bridge and not found.bridged:
        bridge = " The bridge has no answers yet: aggregates are those of the sub-layers that were simulated."
    return (
        f"{found.tried.sum()} machines have answers, {found.trials.sum()} of them count: their GEMM alone reaches at "
        f"least {100 * found.least_gemm:.0f} % of the matrix peak. {len(found.refused)} cannot be built (rules of the "
        f"machine or of the kernel), {len(found.waiting)} have not run or failed. Space: validation/experiments/spaces/"
        f"{experiment.space}.toml.{bridge}"
    )


def _title(found: Surface, claim: str) -> str:
    """Short name of a target; in brackets if it was left out of the distance."""
    short = claim.removeprefix("paper-")
    return short if found.aims[claim].fit else f"({short})"
