"""A search: its space, its design, and what its machines are."""

from collections import Counter
from itertools import combinations

import msgspec
import pytest

from tests.support.fake_runs import fake_results
from traces.errors import UserError
from validation.experiments.load import load_experiments
from validation.experiments.search import BASE, BRIDGE, Search, aims_of
from validation.experiments.space import BLOCK, FOLDER, Factor, Level, Proposed, Space, Target, load_space
from validation.experiments.workbench import Workbench
from validation.report.surface import surface

NAME = "mega-gpt-2/op/tp8"
SUBLAYERS = (NAME, "mega-gpt-2/fc2/tp16")
SMALL = Workbench(tokens=256)


def factor(name, *fields):
    levels = [Level(value=f"{place}", overrides=(text,) if text else ()) for place, text in enumerate(("", *fields))]
    return Factor(name=name, reason="r", level=tuple(levels))


ENTRIES = factor("entries", "hbm.queue_entries=16", "hbm.queue_entries=32")
ENGINES = factor("engines", "dma.engines=1")
BOTH = Space(title="", seed=1, factor=(ENTRIES, ENGINES), target=())


def search(**given):
    usual = {"title": "", "space": "t3_authors", "scenarios": SUBLAYERS, "bench": SMALL}
    return Search(**usual | given)


def test_every_level_comes_equally_often_in_each_block():
    for block in range(4):
        machines = [BOTH.machine(block * BLOCK + place) for place in range(BLOCK)]
        assert set(Counter(each["entries"].value for each in machines).values()) == {BLOCK // 3}
        assert set(Counter(each["engines"].value for each in machines).values()) == {BLOCK // 2}


def test_all_pairs_of_levels_meet():
    pairs = Counter((each["entries"].value, each["engines"].value) for each in map(BOTH.machine, range(20 * BLOCK)))
    assert len(pairs) == 6 and min(pairs.values()) > 20


def test_a_machine_is_the_same_for_ever():
    """Levels of the first machines, as they were when the design was made; another factor does not move them."""
    alone = Space(title="", seed=1, factor=(ENTRIES,), target=())
    levels = [BOTH.machine(number)["entries"].value for number in range(BLOCK)]
    assert levels == [alone.machine(number)["entries"].value for number in range(BLOCK)]
    assert "".join(levels) == "021120201120"
    other = Space(title="", seed=2, factor=(ENTRIES,), target=())
    assert levels != [other.machine(number)["entries"].value for number in range(BLOCK)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('level = [{value="1", overrides=["dma.engines=1"]}, {value="2"}]', "the first level, '1', is the base"),
        ('level = [{value="1"}]', "allowed are 2 to 12 levels"),
        ('level = [{value="1"}, {value="1", overrides=["dma.engines=1"]}]', "of different names"),
        ('level = [{value="1"}]\nspeed = 3', "speed"),
    ],
)
def test_mistakes_in_a_space(tmp_path, text, words):
    (tmp_path / "new.toml").write_text(
        f'title = "t"\nseed = 1\ntarget = []\n[[factor]]\nname = "f"\nreason = "r"\n{text}\n'
    )
    with pytest.raises(UserError, match=words):
        load_space("new", tmp_path)


def test_two_factors_of_one_field_are_refused(tmp_path):
    one = '[[factor]]\nname = "{}"\nreason = "r"\nlevel = [{{value="1"}}, {{value="2", overrides=["dma.engines=1"]}}]\n'
    (tmp_path / "new.toml").write_text('title = "t"\nseed = 1\ntarget = []\n' + one.format("a") + one.format("b"))
    with pytest.raises(UserError, match="a and b both set dma"):
        load_space("new", tmp_path)
    with pytest.raises(UserError, match="no such file in"):
        load_space("none", tmp_path)


def test_a_machine_by_its_levels():
    given = (Proposed(name="a", reason="r", level={"entries": "2"}), Proposed(name="b", reason="r", level={"x": "2"}))
    space = msgspec.structs.replace(BOTH, proposed=(*given, Proposed(name="c", reason="r", level={"engines": "7"})))
    assert {name: level.value for name, level in space.machine("a").items()} == {"entries": "2", "engines": "0"}
    with pytest.raises(UserError, match="machine 'd': the space proposes a, b, c"):
        space.machine("d")
    with pytest.raises(UserError, match="machine b: found x = '2', allowed are entries, engines"):
        space.machine("b")
    with pytest.raises(UserError, match="machine c: found engines = '7', allowed are 0, 1"):
        space.machine("c")


def test_a_machine_made_of_another():
    """It names only what differs; a level of the base may come back."""
    chain = (
        Proposed(name="a", reason="r", level={"entries": "2"}),
        Proposed(name="b", of="a", reason="r", level={"engines": "1"}),
        Proposed(name="c", of="b", reason="r", level={"entries": "0"}),
    )
    space = msgspec.structs.replace(BOTH, proposed=chain)
    assert {name: level.value for name, level in space.machine("b").items()} == {"entries": "2", "engines": "1"}
    assert {name: level.value for name, level in space.machine("c").items()} == {"entries": "0", "engines": "1"}


@pytest.mark.parametrize(
    ("machines", "words"),
    [
        ((("a", "b"), ("b", "")), "machine 'a': found of = 'b', allowed are machines above it"),
        ((("a", "a"),), "machine 'a': found of = 'a'"),
        ((("a", ""), ("a", "")), "machine 'a': found twice"),
        ((("", ""),), "machine '': found twice or empty"),
    ],
)
def test_machines_made_of_what_is_not_above_are_refused(tmp_path, machines, words):
    made = "".join(f'[[proposed]]\nname="{name}"\nof="{of}"\nreason="r"\nlevel={{}}\n' for name, of in machines)
    one = '[[factor]]\nname = "f"\nreason = "r"\nlevel = [{value="1"}, {value="2", overrides=["dma.engines=1"]}]\n'
    (tmp_path / "new.toml").write_text('title = "t"\nseed = 1\ntarget = []\n' + one + made)
    with pytest.raises(UserError, match=words):
        load_space("new", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.toml")])
def test_every_level_of_a_space_makes_a_machine(name):
    """Each level alone, on the base."""
    space = load_space(name)
    for each in space.factor:
        for level in each.level:
            bench = Workbench(tokens=2048, overrides=level.overrides, kernel=level.kernel)
            assert bench.scenarios((NAME,)), (each.name, level.value)


def test_machines_of_a_search():
    found = list(search(machines=2, bridge=(NAME,)).candidates())
    assert [each.name for each in found] == [BASE, BRIDGE, "0", "1"]
    assert found[0].sublayers.bench == SMALL
    assert found[1].sublayers.bench == Workbench()
    chosen = list(search(chosen=(1,)).candidates())[1]
    assert chosen.levels == found[3].levels and chosen.sublayers.bench == found[3].sublayers.bench
    overrides = [text for level in found[3].levels.values() for text in level.overrides]
    assert list(found[3].sublayers.bench.overrides) == overrides


def test_machines_with_some_factors_fixed():
    fixed = {"GEMM tile": "64 x 64", "DRAM queue": "one"}
    free, found = (list(search(machines=3, **given).candidates())[1:] for given in ({}, {"first": 1, "fixed": fixed}))
    assert [each.name for each in found] == ["1", "2", "3"]
    for one, other in zip(free[1:], found, strict=False):
        assert {name: level for name, level in one.levels.items() if name not in fixed}.items() <= other.levels.items()
        assert {name: other.levels[name].value for name in fixed} == fixed
    with pytest.raises(UserError, match="fixed: found GEMM tile = '32 x 32', allowed are 128 x 128, 64 x 64"):
        list(search(machines=1, fixed={"GEMM tile": "32 x 32"}).candidates())


def test_a_machine_with_each_level_of_another_factor():
    seeds = factor("seed", "dispatch.seed=2")
    found = list(search(chosen=(3,), across=seeds).candidates())
    assert [each.name for each in found] == [BASE, "3, 0", "3, 1"]
    assert found[2].sublayers.bench.overrides == (*found[1].sublayers.bench.overrides, "dispatch.seed=2")


def test_a_factor_that_only_t3_mca_has():
    """Runs of other configurations are those of the machine as it is, so they are simulated once."""
    arbiters = factor("arbiter", "mca.age_limit_ps=200000")
    plain = search(chosen=(3,))
    all_runs = [run.key for run in search(chosen=(3,), across=arbiters).runs()]
    keys = [run.key for run in search(chosen=(3,), across=arbiters, only_mca=True).runs()]
    new = set(keys) - {run.key for run in plain.runs()}
    assert len(new) == len(SUBLAYERS) and new < set(all_runs)
    assert len(keys) == len(all_runs) and len(set(keys)) < len(set(all_runs))


def test_a_target_of_other_sub_layers_has_no_answer():
    experiment = search(scenarios=(NAME,))
    answers = experiment.answers(fake_results(experiment.runs()))
    assert f"{BASE}/mean/tp8/nmc_gain" in answers and f"{BASE}/mean/tp16/nmc_gain" not in answers
    found = surface(experiment, answers)
    assert "paper-nmc-scatter-tp8" in found.values and "paper-nmc-scatter-tp16" not in found.values


def test_targets_of_a_search_take_the_place_of_those_of_the_space():
    own = search(targets=(Target(claim="large-mca-max"),))
    assert [aim.claim.id for aim in own.aims()] == ["large-mca-max"]
    assert len(search().aims()) == len(load_space("t3_authors").target) > 1
    found = surface(own, own.answers(fake_results(own.runs())))
    assert list(found.errors) == ["large-mca-max"] and found.check.isna().all()
    with pytest.raises(UserError, match="target 'none': no claim has this id"):
        search(targets=(Target(claim="none"),)).aims()


def test_what_cannot_be_built_is_left_out():
    large = Workbench(tokens=256, kernel={"tile_m": 256, "tile_n": 256})
    experiment = search(machines=1, bench=large)
    candidates = list(experiment.candidates())
    assert "registers" in candidates[0].refused
    assert len(experiment.runs()) == 12 * sum(not each.refused for each in candidates)


def test_errors_are_in_tolerances():
    equal, at_least, at_most = aims_of(
        [
            Target(claim="paper-t3-geomean"),
            Target(claim="paper-fc-loses-without-mca", tolerance=3),
            Target(claim="paper-nmc-ideal"),
        ]
    )
    assert equal.error(1.26) == pytest.approx(2) and equal.error(1.14) == pytest.approx(-2)
    assert at_least.error(9) == pytest.approx(-2) and at_least.error(40) == 0
    assert at_most.error(1.06) == pytest.approx(2) and at_most.error(1.0) == 0
    with pytest.raises(UserError, match="no claim has this id"):
        aims_of([Target(claim="none")])
    with pytest.raises(UserError, match="allowed is more than 0"):
        aims_of([Target(claim="paper-fc-loses-without-mca")])


def test_answers_are_those_of_complete_machines():
    experiment = search(machines=2)
    results = fake_results(experiment.runs())
    answers = experiment.answers(results)
    assert {name.partition("/")[0] for name in answers} == {BASE, "0", "1"}
    assert answers["0/max/T3/speedup"] == answers[f"0/{NAME}/T3/speedup"] > 1
    lost = list(experiment.candidates())[2].sublayers.runs()[0].key
    left = experiment.answers({key: result for key, result in results.items() if key != lost})
    assert {name.partition("/")[0] for name in left} == {BASE, "0"}


def test_the_machines_of_contention_are_balanced():
    """Each of two levels in half of the machines, and each pair of levels of two factors in a quarter."""
    experiment = load_experiments()["search_contention"]
    machines = [load_space(experiment.space).machine(name) for name in experiment.chosen]
    columns = {name: [machine[name].value for machine in machines] for name in machines[0]}
    varied = [column for column in columns.values() if len(set(column)) > 1]
    assert len(machines) == 12 and len(varied) == 11
    for first, second in combinations(varied, 2):
        assert list(Counter(zip(first, second, strict=True)).values()) == [3, 3, 3, 3]


@pytest.mark.slow
def test_few_machines_of_the_committed_searches_cannot_be_built():
    for name, experiment in load_experiments().items():
        if isinstance(experiment, Search):
            candidates = list(experiment.candidates())
            assert sum(bool(each.refused) for each in candidates) <= len(candidates) / 5, name
            assert experiment.named and experiment.aims()
