"""Colours of figures and pages: colour-blind readers can distinguish all series, and every text has enough contrast."""

import re
from itertools import combinations

import pytest

from sim.view import model_figure, style
from sim.view.page import WEB
from tests.support.colour_vision import READABLE, VISIONS, contrast, difference, seen

CLEAR = 10.0
"""Smallest CIEDE2000 between two series."""
SCRIPT, SHEET = ((WEB / name).read_text(encoding="utf-8") for name in ("base.js", "base.css"))
OF_PAGES = re.findall(r"#\w{6}", re.search(r"const PALETTE = \[(.*?)\]", SCRIPT)[1])
LIGHTGREY = "#d3d3d3"
SERIES = {
    "pages": OF_PAGES,
    "figures": style.PALETTE,
    "models": [LIGHTGREY if name == "lightgrey" else name for name in {*model_figure.COLOURS.values()}],
}
THEMES = [
    dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r":root[^{]*\{(.*?)\}", SHEET, re.DOTALL)
]


@pytest.mark.parametrize(
    ("one", "other", "published"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (50, 0, -2.5), 4.3065),
        ((50, -1.0, 2.0), (50, 0, 0), 2.3669),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_formula_gives_published_differences(one, other, published):
    assert difference(one, other) == pytest.approx(published, abs=5e-5)
    assert difference(other, one) == pytest.approx(published, abs=5e-5)


def test_colours_that_look_alike_are_found():
    """Orange and olive: clearly different for most readers, the same in protanopia."""
    assert difference(seen("#e69f00", "all cones"), seen("#b3a800", "all cones")) > CLEAR
    assert difference(seen("#e69f00", "protanopia"), seen("#b3a800", "protanopia")) < 1


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("where", SERIES)
def test_all_readers_can_distinguish_the_series(where, vision):
    assert len(SERIES[where]) >= 6
    found = {pair: difference(*(seen(colour, vision) for colour in pair)) for pair in combinations(SERIES[where], 2)}
    assert {pair: value for pair, value in found.items() if value < CLEAR} == {}


def test_texts_of_pages_stand_out_in_both_themes():
    assert len(THEMES) == 2
    for theme in THEMES:
        for text in ("text", "soft", "accent"):
            assert all(contrast(theme[text], theme[ground]) >= READABLE for ground in ("back", "panel"))
        assert all(contrast(colour, theme["back"]) >= 2 for colour in OF_PAGES)  # bars are seen on both backgrounds
