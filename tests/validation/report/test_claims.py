"""Claims are complete, equal to the files that they were taken from, and answered by an experiment; verdicts."""

import json

import pytest

from tests.support.paths import ROOT
from traces.errors import UserError
from validation.claims.claim import OVER_CLAIMS, Claim, load_claims
from validation.csv_file import read_csv
from validation.experiments.load import load_experiments
from validation.experiments.sublayers import Sublayers
from validation.report.answers import Findings, _unnamed, all_claims, check_answers, check_names
from validation.report.compare import (
    BASELINE,
    FAILED,
    INSIDE,
    NOT_RUN,
    OUTSIDE,
    SHOWN,
    Row,
    accept,
    compare,
    verdict,
    worse,
)

CLAIMS = all_claims(load_experiments())
REFERENCES = ROOT / "validation" / "references"


def claim(**changed):
    given = {
        "id": "one",
        "source": "a paper",
        "quantity": "a ratio",
        "published": 1.30,
        "unit": "x",
        "read": "text",
        "kind": "prediction",
        "experiment": "paper",
        "answer": "geomean",
    }
    return Claim(**given | changed)


def test_every_number_of_the_paper_is_a_claim():
    published = {each.id: each.published for each in CLAIMS}
    assert published["paper-ideal-geomean"] == 1.35 and published["paper-ideal-max"] == 1.50
    assert published["paper-t3-geomean"] == 1.20 and published["paper-t3-max"] == 1.39
    assert published["paper-t3-mca-geomean"] == 1.30 and published["paper-t3-mca-max"] == 1.47
    assert published["train-t3-geomean"] == 1.07 and published["train-mca-geomean"] == 1.10
    assert published["prompt-t3-geomean"] == 1.09 and published["prompt-mca-geomean"] == 1.12
    assert published["paper-dram-geomean-with-ag"] == -22 and published["paper-dram-max-with-ag"] == -36


def test_claims_are_the_numbers_of_the_reference_files():
    by_answer = {(each.experiment, each.answer): each.published for each in CLAIMS}
    for row in read_csv(REFERENCES / "v100_gemm_counters.csv"):
        large = "_large" if row["kernel"] == "cudaTensorCoreGemm" else ""
        key = (f"gemm_counters{large}", f"{row['kernel']}/l2_read_miss_sectors")
        assert by_answer[key] == int(row["l2_read_miss_sectors"])
    channel = {(each.id.startswith("hbm-ramulator"), each.answer): each.published for each in CLAIMS}
    rows = read_csv(REFERENCES / "hbm2_channel.csv")
    assert len(rows) == 14
    for row in rows:
        key = (row["simulator"].startswith("Ramulator"), f"{row['config']}/{row['stream']}/bandwidth_GBps")
        assert channel[key] == float(row["bandwidth_GBps"])


def test_every_claim_has_an_experiment_and_groups_have_members():
    check_names(CLAIMS, load_experiments(), ())
    for each in CLAIMS:
        if each.experiment == OVER_CLAIMS:
            assert any(other.group == each.answer for other in CLAIMS), each.id


def test_calibration_is_never_counted_as_prediction():
    for each in CLAIMS:
        assert not (each.group and each.kind == "calibration"), each.id


@pytest.mark.parametrize(
    ("changed", "simulated", "expected"),
    [
        ({"tolerance": 0.03}, 1.3299, INSIDE),
        ({"tolerance": 0.03}, 1.3301, OUTSIDE),
        ({"tolerance": 0.03}, 1.2699, OUTSIDE),
        ({"tolerance": 10, "mode": "relative"}, 1.42, INSIDE),
        ({"tolerance": 10, "mode": "relative"}, 1.44, OUTSIDE),
        ({"tolerance": 0, "relation": "at_least"}, 1.30, INSIDE),
        ({"tolerance": 0, "relation": "at_least"}, 2.0, INSIDE),
        ({"tolerance": 0, "relation": "at_least"}, 1.29, OUTSIDE),
        ({"tolerance": 0, "relation": "at_most"}, 1.31, OUTSIDE),
        ({"tolerance": 3, "mode": "relative", "published": -22, "unit": "%"}, -22.5, INSIDE),
        ({}, 9.0, SHOWN),
    ],
)
def test_verdicts(changed, simulated, expected):
    assert verdict(claim(**changed), simulated) == expected


def test_errors_are_in_the_unit_and_in_percent():
    (row,) = compare([claim(published=-20.0)], {"paper": {"geomean": -22.0}})
    assert row.error == pytest.approx(-2) and row.error_percent == pytest.approx(-10)
    assert {"id", "published", "simulated", "error", "verdict", "kind"} <= row.as_dict().keys()


def test_means_over_groups_wait_for_all_members():
    members = [claim(id=name, answer=name, published=100.0, group="g") for name in ("a", "b")]
    mean = claim(id="mean", experiment=OVER_CLAIMS, answer="g", published=6, tolerance=0, relation="at_most")
    rows = compare([mean, *members], {"paper": {"a": 103.0, "b": 95.0}})
    assert rows[0].simulated == pytest.approx(4) and rows[0].verdict == INSIDE
    assert compare([mean, *members], {"paper": {"a": 103.0}})[0].verdict == NOT_RUN


def test_a_claim_that_leaves_its_tolerance_is_named(tmp_path):
    baseline = tmp_path / "baseline.json"
    inside, outside = Row(claim(), 1.3, INSIDE), Row(claim(id="two"), 9.0, OUTSIDE)
    assert worse([inside, outside], baseline) == []
    accept([inside, outside], baseline)
    assert json.loads(baseline.read_text())["inside"] == ["one"]
    assert worse([outside], baseline) == []
    lost = Row(claim(), 9.0, OUTSIDE)
    assert worse([lost], baseline) == [lost]
    accept([Row(claim(), None, NOT_RUN), Row(claim(id="two"), 1.3, INSIDE)], baseline)
    assert json.loads(baseline.read_text())["inside"] == ["one", "two"]
    assert worse([Row(claim(), None, NOT_RUN)], baseline) == []
    failed = Row(claim(), None, FAILED)
    assert worse([failed], baseline) == [failed]
    accept([Row(claim(id="two"), None, NOT_RUN)], baseline)  # the claim "one" does not exist any more
    assert json.loads(baseline.read_text())["inside"] == ["two"]


@pytest.mark.parametrize(
    ("changed", "refused"), [({}, False), ({"tolerance": 1}, True), ({"group": "g"}, True), ({"answer": "max"}, False)]
)
def test_an_answer_that_decides_something_must_be_there(changed, refused):
    found = Findings({}, {"paper": {"max": 1.0}})
    if not refused:
        check_answers([claim(**changed)], found)
        return
    with pytest.raises(UserError, match="claim one: experiment paper has no answer 'geomean'"):
        check_answers([claim(**changed)], found)
    check_answers([claim(**changed)], Findings({}))  # it has not run


@pytest.mark.parametrize(
    ("options", "quick", "full"),
    [({"full": False}, True, True), ({}, False, True), ({"named": True}, False, False),
     ({"full": False, "named": True}, False, False)],
)  # fmt: skip
def test_experiments_of_hours_run_only_by_name(options, quick, full):
    experiment = Sublayers(title="One", scenarios=("mega-gpt-2/op/tp8",), **options)
    assert (_unnamed(experiment, False), _unnamed(experiment, True)) == (quick, full)


def test_the_committed_baseline_names_claims_that_exist():
    if BASELINE.is_file():
        assert set(json.loads(BASELINE.read_text(encoding="utf-8"))["inside"]) <= {each.id for each in CLAIMS}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[claim]]\nid = "x"\n', "x: Object missing required field"),
        ('[[claim]\nid = "x"\n', "not a TOML file"),
        ('[[claim]]\nid = "x"\nkind = "guess"\n', "x: "),
    ],
)
def test_mistakes_in_claims(tmp_path, text, words):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(UserError, match=words) as problem:
        load_claims(tmp_path)
    assert "bad.toml" in str(problem.value)


def test_two_claims_of_one_id_are_refused(tmp_path):
    row = "id,source,quantity,published,unit,read,kind,experiment,answer\na,s,q,1,x,r,prediction,paper,z\n"
    (tmp_path / "a.csv").write_text(row)
    assert load_claims(tmp_path)[0].tolerance is None
    (tmp_path / "b.csv").write_text(row)
    with pytest.raises(UserError, match="another claim has this id"):
        load_claims(tmp_path)
