"""The texts of an accuracy."""

import pytest

from sim.run.accuracy import accuracy_of, accuracy_text
from traces.errors import UserError


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), ("0.5 %", 0.005), ("10%", 0.1), ("exact", 0.0)])
def test_texts_and_values(text, value):
    assert accuracy_of(text) == value
    assert accuracy_of(accuracy_text(value)) == value


@pytest.mark.parametrize(
    "text", ["0", "0%", "-1%", "60%", "0.01%", "1", "0.01", "one", "", "nan%", "1%%", "1e0%", None, 1]
)
def test_what_is_refused(text):
    with pytest.raises(UserError, match=r"--accuracy: found .*allowed are exact and percentages from 0.1% to 10%"):
        accuracy_of(text, "--accuracy")
