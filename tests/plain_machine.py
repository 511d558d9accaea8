"""The machine without a compiler: with NUMBA_DISABLE_JIT=1 kernels are plain Python functions, and these views give
them records with attributes and whole numbers of Python, so that one code runs both ways.

    python -m tests.plain_machine SEED ...

prints what `outcome` finds for the random kernel of each seed, as JSON.
"""

import json
import os
import sys
import warnings

import numpy as np

if __name__ == "__main__":
    os.environ["NUMBA_DISABLE_JIT"] = "1"

import sim.engine
import sim.gpu
import sim.hw.l2
from sim.run import simulate
from tests.sim.programs import SMALL, TIGHT, random_kernel, small_preset
from tracer.sequence import CommandSequence


class PlainArray:
    """An array of records or numbers; scalars come out as int (u8 as np.uint64, which the kernels' masks need)."""

    __slots__ = ("_data",)

    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    @property
    def size(self):
        return self._data.size

    def __getitem__(self, place):
        return plain(self._data[owned(place)])

    def __setitem__(self, place, value):
        self._data[owned(place)] = owned(value)


class PlainRecord:
    """One record, its fields as attributes."""

    __slots__ = ("_data",)

    def __init__(self, data):
        object.__setattr__(self, "_data", data)

    def __getattr__(self, name):
        return plain(self._data[name])

    def __setattr__(self, name, value):
        self._data[name] = owned(value)


def plain(value):
    if isinstance(value, np.ndarray):
        return PlainArray(value)
    if isinstance(value, np.void):
        return PlainRecord(value)
    return value if isinstance(value, np.uint64) else value.item()


def owned(value):
    """What a view looks at."""
    if isinstance(value, tuple):
        return tuple(owned(part) for part in value)
    return value._data if isinstance(value, (PlainArray, PlainRecord)) else value


def without_compiler():
    """Let the engine see its node through plain views."""
    warnings.simplefilter("ignore", RuntimeWarning)  # 64-bit products of hashes wrap
    sim.engine.borrowed = PlainArray
    sim.hw.l2.REQUEST = np.dtype((np.record, sim.hw.l2.REQUEST))


def outcome(seed):
    """All counters and times of a random kernel, run twice in a row on a roomy and on a tight machine."""
    found = {}
    for name, size in (("small", SMALL), ("tight", TIGHT)):
        one = random_kernel(seed, workgroups=4, events=3)
        results = simulate(CommandSequence([one, one]), small_preset("dispatch.jitter_ps=5000", size=size))
        found[name] = [[r.start_ps, r.end_ps, dict(sorted(r.totals.items()))] for r in results.kernels]
    return found


if __name__ == "__main__":
    without_compiler()
    json.dump([outcome(int(seed)) for seed in sys.argv[1:]], sys.stdout)
