"""The one kernel decorator."""

import numba


def kernel(function):
    """Compile `function` with numba in nopython mode, cached on disk."""
    return numba.njit(**{"cache": True, "error_model": "numpy"})(function)
