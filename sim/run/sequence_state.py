"""The state of a sequence of kernels on one GPU, as the content of a checkpoint (`sim.host.checkpoint`).

facts                        the kernel in progress, the finished kernels
node.*                       records of the machine; series: rows of the time series so far
before.UNIT                  counters before the kernel in progress
done.NUMBER.UNIT             counters of the finished kernels
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.counters import totals
from sim.host.state import State
from sim.run.result import KernelResult


@dataclass
class SequenceState:
    """The progress of a sequence of kernels.

    Attributes:
        kernel: number of the kernel in progress.
        start_ps: its launch.
        before: unit -> counters when it was launched (sim.counters.take).
        done: results of the finished kernels.
        gpu: the machine with the kernel on it; None = before the launch.
    """

    kernel: int
    start_ps: int
    before: dict[str, np.ndarray]
    done: list[KernelResult]
    gpu: State | None = None


def content_of(sequence: SequenceState, gpu: State) -> State:
    """The content of a checkpoint: the progress of the sequence and the current state of the machine."""
    facts: dict[str, Any] = {
        "kernel": sequence.kernel,
        "start_ps": sequence.start_ps,
        "gpu": gpu.facts,
        "done": [[result.name, result.start_ps, result.end_ps] for result in sequence.done],
        "units": list(sequence.before),
    }
    arrays = {**gpu.arrays, **{f"before.{unit}": counters for unit, counters in sequence.before.items()}}
    for number, result in enumerate(sequence.done):
        arrays |= {f"done.{number}.{unit}": counters for unit, counters in result.units.items()}
    return State(facts, arrays)


def sequence_of(content: State) -> SequenceState:
    """The inverse of `content_of`."""
    facts, arrays = content
    units = facts["units"]
    done = []
    for number, (name, start_ps, end_ps) in enumerate(facts["done"]):
        counted = {unit: arrays[f"done.{number}.{unit}"] for unit in units}
        done.append(KernelResult(name, start_ps, end_ps, counted, totals(counted)))
    before = {unit: arrays[f"before.{unit}"] for unit in units}
    return SequenceState(facts["kernel"], facts["start_ps"], before, done, State(facts["gpu"], arrays))
