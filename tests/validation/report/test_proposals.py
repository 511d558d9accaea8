"""The linear model of a search and the machines that it proposes, on made-up answers whose effects are known."""

import msgspec
import numpy as np
import pandas as pd
import pytest

from tests.support.made_up_space import SPACE, drawn_levels
from validation.claims.claim import Claim
from validation.experiments.search import BASE, Aim
from validation.report.proposals import model_of, proposals
from validation.report.surface import Surface

MACHINES = 60
LEVELS = drawn_levels(MACHINES).rename(index=str)
A, B = (LEVELS[name].str[1:].astype(float) for name in "ab")
NOISE = pd.Series(np.random.default_rng(3).normal(size=MACHINES), index=LEVELS.index)


def test_the_model_tells_effects_from_chance():
    """6 a + noise of variance 1: 9 / 10 can be foreseen, and nothing of the noise."""
    model = model_of(LEVELS, pd.DataFrame({"y": 6 * A + NOISE, "noise": NOISE, "flat": 0 * A + 2}))
    assert model.foreseen["y"] == pytest.approx(0.88, abs=0.06) and model.foreseen["flat"] == 1
    assert model.foreseen["noise"] < 0.1 and model.effect["noise"].abs().max() < 0.3
    difference = model.effect.loc[("a", "a1"), "y"] - model.effect.loc[("a", "a0"), "y"]
    assert difference == pytest.approx(6, abs=0.7)
    assert model.predict({"a": "a1"})["flat"] == 2


def test_what_is_foreseen_is_what_the_other_machines_predict():
    """Leave one out, the slow way: a model of all other machines with the same penalty."""
    values = pd.DataFrame({"y": 6 * A + 2 * B + NOISE})
    missed = []
    for name in LEVELS.index:
        others = LEVELS.index != name
        model = model_of(LEVELS[others], values[others])
        missed.append(values.loc[name, "y"] - model.predict(dict(LEVELS.loc[name]))["y"])
    share = 1 - np.square(missed).sum() / values["y"].var(ddof=0) / MACHINES
    assert model_of(LEVELS, values).foreseen["y"] == pytest.approx(share, abs=0.03)


def aim(name, published):
    words = dict.fromkeys(("id", "quantity", "source", "read", "experiment", "answer"), name)
    claim = words | {"published": published, "unit": "x", "kind": "prediction"}
    return Aim(msgspec.convert(claim, Claim), 0.5, True)


def test_a_proposal_meets_what_no_machine_meets():
    """x needs a1 and b2, y needs a1 and e0; of the machines with all three there is none here."""
    e = (LEVELS["e"] == "e0").astype(float)
    kept = ~((A == 1) & (B == 2) & (e == 1))
    values = pd.DataFrame({"x": 6 * A + 2 * B, "y": 6 * A + 8 * e})[kept] + 0.0
    aims = {"x": aim("x", 10), "y": aim("y", 14)}
    found = Surface(
        aims=aims,
        levels=LEVELS[kept],
        values=values,
        errors=pd.DataFrame({claim: values[claim].map(each.error) for claim, each in aims.items()}),
        rs_of_link=values["x"],
        gemm_of_peak=values["x"],
        least_gemm=0.0,
        machine=values.index.to_series(),
        refused={},
        waiting=(),
        bridged=False,
        drawn=True,
    )
    assert found.distance.min() > 1 and BASE not in found.levels.index
    (levels, expected), *_ = proposals(found, SPACE, 3)
    assert (levels["a"], levels["b"], levels["e"]) == ("a1", "b2", "e0")
    assert expected["x"] == pytest.approx(10, abs=0.5) and expected["y"] == pytest.approx(14, abs=0.5)
