"""The section of a search in the report."""

import random

import pytest

from sim.scenario.result import IDEAL
from traces.command.document import Bullets, Heading, Table
from validation.experiments.search import BASE, GEMM_OF_PEAK, RS_OF_LINK, Search
from validation.experiments.space import Factor, Level
from validation.experiments.workbench import Workbench
from validation.report.search_blocks import nearest_table, search_blocks
from validation.report.surface import joined, surface, verdict

SUBLAYERS = ("mega-gpt-2/op/tp8", "mega-gpt-2/fc2/tp16")
ARBITERS = Factor(
    name="arbiter",
    reason="r",
    level=(Level(value="as it is"), Level(value="compute first", overrides=("hbm.arbiter=compute_first",))),
)


def search(**given):
    return Search(title="", space="t3_authors", scenarios=SUBLAYERS, bench=Workbench(tokens=256), **given)


def made_up(experiment, mca=1.3):
    """Answers: every aggregate as published, but T3's geomean grows with the queue. mca: of T3-MCA, or a rule."""
    drawn, answers = random.Random(1), {}
    for each in experiment.candidates():
        if each.refused:
            continue
        for aim in experiment.aims():
            answers[f"{each.name}/{aim.answer}"] = aim.claim.published + drawn.gauss(0, aim.tolerance / 10)
        if each.levels["DRAM queue entries"].value in ("8", "16"):
            answers[f"{each.name}/geomean/T3/speedup"] += 0.3
        answers |= {f"{each.name}/{RS_OF_LINK}": 1.1, f"{each.name}/{GEMM_OF_PEAK}": 0.8}
        for name in SUBLAYERS:
            answers[f"{each.name}/{name}/T3/speedup"] = 1.2
            answers[f"{each.name}/{name}/T3-MCA/speedup"] = mca(each, name) if callable(mca) else mca
            answers |= {f"{each.name}/{name}/{IDEAL}/time_us": 100.0, f"{each.name}/{name}/T3/time_us": 112.0}
    return answers


def tables(blocks):
    return [block for block in blocks if isinstance(block, Table)]


@pytest.mark.slow
def test_sections_of_a_screening():
    experiment = search(machines=24)
    blocks = search_blocks(experiment, made_up(experiment))
    assert [block.text for block in blocks if isinstance(block, Heading)] == [
        *("Share of a factor (%)", "Pairs of factors", "Mean of each level", "The space")
    ]
    nearest, levels, shares, _, means, space = tables(blocks)
    assert nearest.rows[2][0] == BASE and len(nearest.rows) == 2 + 1 + 10
    distances = [float(row[1]) for row in nearest.rows[3:]]
    assert distances == sorted(distances) and distances[0] < 0.2
    assert levels.rows[1][:2] == ["DRAM queue entries", "64"]
    place = shares.columns.index("t3-geomean")
    share = {row[0]: int(row[place]) for row in shares.rows}
    assert share["DRAM queue entries"] > 90 > 60 > share["a factor without effect is below, in 95 of 100 cases"] > 0
    mean = {row[0]: float(row[place + 1]) for row in means.rows}
    assert mean["DRAM queue entries = 8"] == pytest.approx(1.5, abs=0.02)
    assert mean["DRAM queue entries = 64"] == pytest.approx(1.2, abs=0.02)
    assert any(row[0] == "GEMM tile" and row[1].startswith("128 x 128; 64 x 64") for row in space.rows)
    verdict = next(block for block in blocks if isinstance(block, Bullets))
    assert verdict.lines[0].startswith("Machines that meet all targets: base, ")


def test_chosen_machines_say_nothing_about_the_whole_space():
    """Effects with error bars in a balanced design, but no shares: those need machines that were drawn."""
    experiment = search(chosen=("z", *(f"z{number}" for number in range(1, 12))))
    answers = made_up(experiment) | {"z1/geomean/T3/speedup": 9.0}
    blocks = search_blocks(experiment, {key: value + 1 for key, value in answers.items()})
    assert [block.text for block in blocks if isinstance(block, Heading)] == ["Pairs of factors, with error bars"]
    effects, pairs = tables(blocks)[-2:]
    assert len(effects.rows) == 11 + 1 and effects.rows[-1][0] == "error bar (95 %)"
    assert len(pairs.rows) == 3 * sum(aim.fit for aim in experiment.aims())
    first = next(block for block in blocks if isinstance(block, Bullets)).lines[0]
    assert first.startswith("None of 12 machines meets all targets.") and "of the space do" not in first
    few = search(chosen=("aa", "ab"))
    blocks = search_blocks(few, made_up(few))
    assert [block.text for block in blocks if isinstance(block, Heading)] == ["What T3 loses"]
    losses = tables(blocks)[-1].rows
    assert losses[0] == [BASE, "", "12 (12.0)", "12 (12.0)"] and losses[1][0] == "aa"
    assert "delay between updates: 8 clocks" in losses[1][1] and "DRAM channels" not in losses[1][1]


def test_a_search_of_which_only_the_base_has_answers():
    """Another search shares the base: its answers are there before those of any machine."""
    experiment = search(chosen=("p0",), across=ARBITERS)
    answers = {key: value for key, value in made_up(experiment).items() if key.startswith(f"{BASE}/")}
    blocks = search_blocks(experiment, answers)
    assert next(block for block in blocks if isinstance(block, Bullets)).lines == [
        "No machine but the base has answers yet."
    ]
    assert not [block for block in blocks if isinstance(block, Heading)]


def test_the_harm_of_an_arbiter():
    """MCA is 4 % slower than T3 in one sub-layer of one machine; compute first is slower than Sequential everywhere."""

    def speedup(each, name):
        if each.name.endswith("compute first"):
            return 0.8
        return 1.2 / 1.04 if (each.machine, name) == ("2", SUBLAYERS[0]) else 1.25

    experiment = search(chosen=(2, 5), across=ARBITERS)
    found = tables(search_blocks(experiment, made_up(experiment, speedup)))
    across, harm = found[2], found[3]
    assert [row[0] for row in across.rows] == [
        *("2, as it is", "2, compute first", "2: largest - smallest"),
        *("5, as it is", "5, compute first", "5: largest - smallest"),
    ]
    place = across.columns.index("nmc-scatter-tp8")
    first, second, apart = (float(row[place]) for row in across.rows[:3])
    assert apart == pytest.approx(abs(first - second), abs=0.005) and apart > 0
    assert harm.rows == [["as it is", "4", "1", "4.0", "0", "0.0"], ["compute first", "4", "4", "50.0", "4", "25.0"]]


def test_searches_are_joined_by_the_aggregates_that_all_of_them_have():
    """The first search has no sub-layer of eight GPUs, the other one has another base."""
    drawn, chosen = search(machines=3), search(chosen=("aa", "ab"))
    without = {key: value for key, value in made_up(drawn).items() if not key.endswith("tp8/nmc_gain")}
    parts = surface(drawn, without), surface(chosen, {key: value + 1 for key, value in made_up(chosen).items()})
    found = joined(parts)
    assert list(found.levels.index) == [BASE, "0", "1", "2", "aa", "ab"] and found.tried.sum() == 5
    assert "paper-nmc-scatter-tp8" in parts[1].aims
    assert list(found.aims) == list(parts[0].aims) == list(found.values) == list(found.errors)
    assert found.distance[BASE] == parts[0].distance[BASE] < parts[1].distance[BASE]
    assert parts[0].drawn and not found.drawn


def test_a_machine_without_a_library_s_gemm_does_not_count():
    """The nearest machine has a GEMM that is too slow: it is neither in the verdict nor among the nearest."""
    experiment = search(machines=4)
    answers = made_up(experiment)
    nearest = surface(experiment, answers).distance.drop(BASE).idxmin()
    found = surface(experiment, answers | {f"{nearest}/{GEMM_OF_PEAK}": 0.49})
    assert found.tried.sum() == found.trials.sum() + 1 and not found.counted[nearest]
    assert nearest not in [row[0] for row in nearest_table(found).rows]
    assert f" {nearest}" not in verdict(found)[0].replace(",", "")
    unknown = {key: value for key, value in answers.items() if not key.endswith(GEMM_OF_PEAK)}
    assert surface(experiment, unknown).counted[nearest]
