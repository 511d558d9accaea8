"""A fused GEMM and a reduce-scatter of two GPUs without a compiler, as a program of its own.

    python -m tests.support.t3_plain

prints what `outcome` finds, as JSON.
"""

import json
import os
import sys

if __name__ == "__main__":
    os.environ["NUMBA_DISABLE_JIT"] = "1"

import numpy as np

import sim.collective.check
import tracer.gemm.source
import tracer.gemm.tiles
from tests.support.plain_machine import without_compiler
from tests.support.plain_records import PlainArray, kernel_view
from tests.support.t3_cases import TILE, T3Case

FIELDS = ("time_ps", "kernel_ps", "link_bytes", "line_requests", "exactly_once", "totals", "figures")


def outcome():
    """Results of both jobs, on GPUs of their own and on a symmetric machine."""
    found = []
    for part in ("t3", "rs"):
        for explicit in (True, False):
            case = T3Case(32, 64, 16, 2, TILE, explicit=explicit, settings=("cu.count=1", "link.egress_fifo=4"))
            result, _ = case.run(part)
            found.append({name: getattr(result, name) for name in FIELDS})
    return found


class PlainNumpy:
    """What the writer of GEMM events uses of numpy, with a record that has attributes."""

    uint64 = np.uint64

    @staticmethod
    def zeros(*shape_and_type):
        return PlainArray(np.zeros(*shape_and_type))


def synthesise_without_compiler():
    write = tracer.gemm.source.write_workgroup
    tracer.gemm.tiles.np = PlainNumpy
    tracer.gemm.source.write_workgroup = lambda plan, index, events, first_event: write(
        PlainArray(plan), index, PlainArray(events), PlainArray(first_event)
    )


def play_without_compiler():
    play = sim.collective.check.play
    sim.collective.check.play = lambda *given: play(
        *(kernel_view(one) if isinstance(one, np.ndarray) else one for one in given)
    )


if __name__ == "__main__":
    without_compiler()
    play_without_compiler()
    synthesise_without_compiler()
    json.dump(outcome(), sys.stdout)
