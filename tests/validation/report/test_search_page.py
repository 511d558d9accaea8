"""The committed page of the searches: it is what the code makes of the committed answers."""

import h5py
import pytest

from validation.experiments.search import BASE
from validation.report.search_page import (
    ANSWERS,
    EFFECTS,
    FRONT,
    SCREENING,
    TABLE,
    add_answers,
    answers_in,
    page,
    read_answers,
    read_revisions,
    searches,
)


def test_answers_are_kept_to_the_last_bit(tmp_path):
    found = {"search": {"0/max/T3/speedup": 1 / 3, "base/geomean/T3": 2.0}, "search_seeds": {"0, seed 2/x": 1e-300}}
    add_answers(tmp_path / "a.csv", found, "1")
    assert read_answers(tmp_path / "a.csv") == found


def test_new_answers_take_the_place_of_old_ones_of_the_same_machine(tmp_path):
    table = tmp_path / "a.csv"
    add_answers(table, {"search": {"0/x": 1 / 3, "0/gone": 1.0, "1/x": 1e-300}}, "0012345")
    add_answers(table, {"search": {"0/x": 2 / 3}, "search_near": {"a/x": 3.0}}, "abc")
    assert read_answers(table) == {"search": {"0/x": 2 / 3, "1/x": 1e-300}, "search_near": {"a/x": 3.0}}
    assert read_revisions(table) == {"0012345": ["search"], "abc": ["search", "search_near"]}


def test_a_search_of_which_a_report_has_only_what_others_share_is_left_out(tmp_path):
    with h5py.File(tmp_path / "validation.h5", "w") as file:
        for name, keys in (("search_around", ["base/x", "bridge/x", "z/x"]), ("search_seeds", ["base/x", "bridge/x"])):
            group = file.create_group(f"answers/{name}")
            group["name"], group["value"] = keys, [1.0] * len(keys)
    assert answers_in(tmp_path) == {"search_around": {"base/x": 1.0, "bridge/x": 1.0, "z/x": 1.0}}


@pytest.mark.slow
def test_the_committed_page_is_made_from_the_committed_answers():
    assert TABLE.read_text(encoding="utf-8") == page(read_answers(ANSWERS), read_revisions(ANSWERS))
    assert all((TABLE.parent / picture.path).exists() for picture in (FRONT, EFFECTS))


def test_the_answers_are_those_of_searches_with_their_base():
    found = read_answers(ANSWERS)
    assert set(SCREENING) <= set(found) <= set(searches())
    assert all(any(key.startswith(f"{BASE}/") for key in answers) for answers in found.values())
