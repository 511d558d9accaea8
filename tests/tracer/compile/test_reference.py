"""Named tuples by reference: compiled functions see the fields that Python sees."""

from typing import NamedTuple

import numpy as np
import pytest
from numba.core import config
from numba.core.errors import TypingError

from tracer.compile.jit import compiled
from tracer.compile.reference import by_reference


@by_reference
class Inner(NamedTuple):
    counts: np.ndarray
    factor: int


@by_reference
class Outer(NamedTuple):
    first: np.ndarray
    inner: Inner
    second: np.ndarray


@by_reference
class Swapped(NamedTuple):
    second: np.ndarray
    inner: Inner
    first: np.ndarray


@compiled
def count(inner, amount):
    inner.counts[0] += amount * inner.factor


@compiled
def difference(node):
    count(node.inner, len(node.first))
    return node.first[1] - node.second[0]


@compiled
def missing(node):
    return node.third


def records(kind):
    fields = {"first": np.array([7, 9]), "second": np.array([4]), "inner": Inner(np.zeros(1, np.int64), 10)}
    return kind(**fields)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Outer, Swapped])
def test_fields_are_found_by_name_and_arrays_are_shared(kind):
    """Two classes whose fields have the same types in the same order, and other names."""
    node = records(kind)
    assert difference(node) == 5 and difference(node) == 5
    assert node.inner.counts[0] == 40
    assert difference(node._replace(first=np.array([0, 100, 0]))) == 96
    assert node.inner.counts[0] == 70


@pytest.mark.slow
@pytest.mark.skipif(config.DISABLE_JIT, reason="plain Python says it in its own words")
def test_an_unknown_field_is_refused():
    with pytest.raises(TypingError, match="third"):
        missing(records(Outer))
