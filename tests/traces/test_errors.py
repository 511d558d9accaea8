"""The place of a mistake in a file of the user."""

import pytest

from traces.errors import OWN_FOLDER, error_in_file, error_of_policy


def _raised_at(file):
    """An error that line 3 of a file has raised."""
    with pytest.raises(ValueError) as found:
        exec(compile("\n\nraise ValueError('late')", file, "exec"))
    return found.value


@pytest.mark.parametrize("file", ["/one/rule.py", "/other/rule.py"])
def test_a_policy_has_the_line_of_the_copy_that_was_compiled(file):
    """numba keeps the machine code of a file, with its path, for copies of it."""
    assert str(error_of_policy("/one/rule.py", _raised_at(file))) == "/one/rule.py:3: ValueError: late"


@pytest.mark.parametrize("file", ["/one/plan.py", f"{OWN_FOLDER}sim/rule.py"])
def test_an_error_of_another_file_is_not_one_of_the_policy(file):
    assert error_of_policy("/one/rule.py", _raised_at(file)) is None


def test_a_file_that_is_not_compiled_has_no_copies():
    assert str(error_in_file("/one/rule.py", "rule.py", _raised_at("/other/rule.py"))) == "rule.py: ValueError: late"
    assert str(error_in_file("/one/rule.py", "rule.py", _raised_at("/one/rule.py"))) == "rule.py:3: ValueError: late"
