"""Estimators of a search, on made-up answers whose effects are known."""

import msgspec
import numpy as np
import pandas as pd
import pytest

from tests.support.made_up_space import drawn_levels
from validation.experiments import search
from validation.experiments.search import BASE, BRIDGE, RS_OF_LINK, Search, aims_of
from validation.experiments.space import Target, load_space
from validation.report.effects import (
    contrasts,
    front,
    is_balanced,
    level_means,
    main_effects,
    margins,
    noise,
    pair_effects,
    pairs_in_three,
    rank_correlation,
    reaches,
)
from validation.report.surface import conflicts, surface, verdict

MACHINES = 96
LEVELS = drawn_levels(MACHINES)
A, B, C = ((LEVELS[name].str[1:].astype(float)) for name in "abc")
NOISE = pd.Series(np.random.default_rng(3).normal(size=MACHINES))


def test_level_means_and_reaches():
    values = pd.DataFrame({"y": 10 + 4 * A, "z": B})
    means = level_means(LEVELS, values)
    assert means.loc[("a", "a1"), "y"] == 14 and means.loc[("a", "a0"), "y"] == 10
    assert means.loc[("a", "a1"), "machines"] == MACHINES / 2 and means.loc[("e", "e0"), "machines"] == MACHINES / 6
    assert reaches(LEVELS, values).loc["a", "y"] == 4 and reaches(LEVELS, values).loc["b", "z"] == 2


def test_shares_of_factors():
    """y = 6 a + noise of variance 1: a has variance 9 of 10."""
    shares = main_effects(LEVELS, pd.DataFrame({"y": 6 * A + NOISE, "only b": B, "flat": 0 * A}))
    assert shares.loc["a", "y"] == pytest.approx(0.9, abs=0.04)
    assert shares.loc[["b", "c", "d", "e", "f"], "y"].max() < 0.1
    assert shares.loc["b", "only b"] == pytest.approx(1)
    assert (shares["flat"] == 0).all()


def test_a_factor_without_effect_has_no_share_however_many_levels_it_has():
    """The share is adjusted: the raw one of a factor of six levels is 5 / 95 on average."""
    draws = np.random.default_rng(5).normal(size=(MACHINES, 200))
    values = pd.DataFrame(draws, columns=[f"{column}" for column in range(200)])
    explained = main_effects(LEVELS, values).loc["e"]
    assert explained.mean() < 0.03 and (explained == 0).mean() > 0.4


def test_the_noise_of_shares():
    """A factor of two levels without effect: the share of 1 / 95 of the variance, F distributed, adjusted."""
    values = pd.DataFrame({"y": NOISE, "z": 6 * A + NOISE})
    quiet = noise(LEVELS, values)
    assert 0.01 < quiet["y"] < 0.12 and quiet["z"] < 0.15
    assert (main_effects(LEVELS, values)["y"] < quiet["y"]).sum() >= 4


def test_a_pair_is_told_from_two_factors():
    """a and b add up in `sum`; in `product` the effect of b needs a."""
    product = pair_effects(LEVELS, (8 * A * B + 2 * C + NOISE).rename("y"))
    assert {product.loc[0, "first"], product.loc[0, "second"]} == {"a", "b"}
    # variance of the interaction of a (2 levels) and b (0, 1, 2): 64 x var(a) x var(b) = 64 x 1/4 x 2/3
    variance = 64 / 4 * 2 / 3
    whole = 64 * ((1 / 2) * (5 / 3) - (1 / 2) ** 2) + 4 / 4 + 1
    assert product.loc[0, "share"] == pytest.approx(variance / whole, abs=0.05)
    assert product.loc[1:, "share"].max() < 0.05
    added = pair_effects(LEVELS, (8 * A + 8 * B + 2 * C + NOISE).rename("y"))
    assert added["share"].max() < 0.01


def test_pairs_with_few_machines_per_cell_are_not_looked_at():
    assert pair_effects(LEVELS[:11], (8 * A * B)[:11].rename("y")).empty


GENERATOR = "11011100010"
"""The first row of the design of Plackett and Burman for twelve machines."""
PLAN = pd.DataFrame(
    [["0"] * 11, *([GENERATOR[(column + row) % 11] for column in range(11)] for row in range(11))],
    columns=[f"x{column}" for column in range(11)],
)
X = PLAN.astype(float)


def test_contrasts_of_a_balanced_design():
    assert is_balanced(PLAN)
    found = contrasts(PLAN, pd.DataFrame({"y": 3 + 2 * X["x1"] - 4 * X["x7"]}))["y"]
    assert found["x1"] == pytest.approx(2) and found["x7"] == pytest.approx(-4)
    assert found.drop(["x1", "x7"]).abs().max() == pytest.approx(0, abs=1e-12)


def test_an_answer_that_does_not_vary_has_no_effect_and_no_error_bar():
    found = contrasts(PLAN, pd.DataFrame({"y": 0 * X["x1"] - 45.11}))
    assert (found["y"] == 0).all() and margins(found)["y"] == 0


def test_other_designs_are_not_balanced():
    """Too few machines or factors, three levels, or two factors that change together."""
    assert not is_balanced(PLAN[:11]) and not is_balanced(PLAN.drop(columns="x3"))
    assert not is_balanced(PLAN.assign(x3=["2", *PLAN["x3"][1:]]))
    assert not is_balanced(PLAN.assign(x3=PLAN["x4"]))


def test_error_bars_of_contrasts():
    """Chance alone leaves its error bar about once in 20 contrasts; one true effect does not make the bar longer."""
    draws = pd.DataFrame(np.random.default_rng(9).normal(size=(12, 400)))
    found = contrasts(PLAN, draws)
    assert 0.02 < (found.abs() > margins(found)).to_numpy().mean() < 0.07
    with_effect = contrasts(PLAN, draws.add(30 * X["x2"], axis=0))
    bars = margins(with_effect)
    assert (with_effect.loc["x2"] > bars).all() and bars.mean() < 1.35 * margins(found).mean()
    with pytest.raises(ValueError, match="found 10 contrasts, allowed are 11"):
        margins(found[1:])


def test_pairs_of_the_strongest_three():
    """x0 and x1 together give 5 more than alone; x4 adds up. The error bars hold in 95 % of the draws."""
    truth = 8 * X["x0"] + 9 * X["x1"] + 6 * X["x4"] + 5 * X["x0"] * X["x1"]
    assert pairs_in_three(PLAN, truth.rename("y")).loc[0, ["first", "second"]].tolist() == ["x1", "x0"]
    held = []
    for chance in np.random.default_rng(2).normal(scale=0.2, size=(200, 12)):
        found = pairs_in_three(PLAN, (truth + chance).rename("y")).set_index(["first", "second"])
        expected = pd.Series(0.0, index=found.index) + 5.0 * (found.index == ("x1", "x0"))
        held += ((found["contrast"] - expected).abs() < found["margin"]).tolist()
    assert 0.92 < np.mean(held) < 0.98


def test_the_rank_correlation_has_an_error_bar():
    x = pd.Series(np.arange(30.0))
    assert rank_correlation(x, np.exp(-x)) == pytest.approx((-1, -1, -1))
    size, low, high = rank_correlation(x, x + 8 * NOISE[:30])
    assert 0 < low < size < high < 1
    assert rank_correlation(x[:10], x[:10] + 8 * NOISE[:10])[1] < low


def test_the_front():
    errors = pd.DataFrame({"x": [1.0, -2.0, 3.0, 1.0, 0.5], "y": [1.0, 0.5, -3.0, 1.0, 4.0]})
    assert front(errors).tolist() == [True, True, False, True, True]


def test_targets_that_forbid_each_other():
    errors = pd.DataFrame(
        {"x": [0.0, 3.0, 2.0], "y": [-4.0, 0.0, 1.5], "both": [0.0, 0.0, 0.0], "never": [9.0, 8.0, 7.0]},
        index=["p", "q", "r"],
    )
    found = conflicts(errors)
    assert found.to_dict("records") == [{"first": "x", "second": "y", "machine": "r", "error": 2.0}]


TARGETS = (
    Target(claim="paper-t3-geomean"),
    Target(claim="paper-fc-loses-without-mca", tolerance=3),
    Target(claim="paper-gemm-reads", fit=False),
)
EXPERIMENT = Search(title="", space="t3_authors", machines=4, scenarios=("mega-gpt-2/op/tp8",))
ANSWERS = [aim.answer for aim in aims_of(TARGETS)]


@pytest.fixture
def few_targets(monkeypatch):
    """The space of the authors' machines, with TARGETS."""
    space = msgspec.structs.replace(load_space("t3_authors"), target=TARGETS)
    monkeypatch.setattr(search, "load_space", lambda _: space)


def answers_of(**machines):
    """Answers of machines (name without `m`) that were given in the order of the targets."""
    given = {name.removeprefix("m"): values for name, values in machines.items()}
    answers = {f"{name}/{RS_OF_LINK}": 1.1 for name in given}
    for name, values in given.items():
        answers |= {f"{name}/{key}": value for key, value in zip(ANSWERS, values, strict=True)}
    return answers


def test_the_surface_of_a_search(few_targets):
    found = surface(EXPERIMENT, answers_of(base=(1.30, 5, 1.2), m0=(1.23, 9, 1.56), m2=(1.20, 20, 1.86)))
    assert list(found.levels.index) == [BASE, "0", "2"] and found.waiting == ("1", "3")
    assert found.levels.loc[BASE, "DRAM queue entries"] == "64"
    assert found.errors.loc["0"].tolist() == pytest.approx([1, -2, 0])
    assert found.distance["0"] == pytest.approx((5 / 2) ** 0.5) and found.distance["2"] == pytest.approx(0)
    assert found.check["2"] == pytest.approx(2) and found.tried.tolist() == [False, True, True]


def test_the_bridge_shifts_every_machine(few_targets):
    answers = answers_of(base=(1.30, 5, 1.2), m0=(1.23, 9, 1.56)) | answers_of(**{BRIDGE: (1.35, 6, 1.1)})
    found = surface(EXPERIMENT, answers)
    assert found.values.loc["0"].tolist() == pytest.approx([1.28, 10, 1.46])
    assert found.values.loc[BASE].tolist() == pytest.approx([1.35, 6, 1.1]) and BRIDGE not in found.levels.index
    assert found.bridged and not surface(EXPERIMENT, answers_of(base=(1.30, 5, 1.2))).bridged


def test_what_the_verdict_says(few_targets):
    assert verdict(surface(EXPERIMENT, answers_of(base=(1.2, 16, 1.5)))) == ["No machine but the base has answers yet."]
    met = surface(EXPERIMENT, answers_of(base=(1.30, 5, 1.2), m1=(1.21, 14, 1.5)))
    assert verdict(met) == ["Machines that meet all targets: 1."]
    apart = surface(EXPERIMENT, answers_of(base=(1.30, 5, 1.9), m1=(1.21, 9, 1.9), m3=(1.26, 16, 1.92)))
    first, out_of_reach, never = verdict(apart)
    assert first.startswith("None of 2 machines meets all targets.") and "distance: 3 (1.41), 1 (1.43), base" in first
    assert "DRAM reads of the GEMM" in out_of_reach and "machine base with 1.9, 2.3 tolerances away" in out_of_reach
    assert "T3: geomean speed-up (1.2 x), and large FC layers" in never and "machine 1, 2.0 tolerances away" in never
