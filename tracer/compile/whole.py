"""The answer of a user's policy as an int64. One that is no whole number does not compile, and the error says so."""

import numpy as np
from numba.core import types
from numba.extending import overload


def whole(answer):
    """The answer of `pick(channel, now_ps)`.

    Raises:
        TypeError: when it is compiled: its type on some path is not a whole number.
    """
    return answer


@overload(whole)
def _whole(answer):
    if not isinstance(answer, types.Integer):
        raise TypeError(f"pick(channel, now_ps) returns {answer}, allowed is a whole number on every path")
    return lambda answer: np.int64(answer)  # noqa: PLW0108  numba inlines a function of Python
