"""How far a run of one GPU has come, as the content of its checkpoint (`sim.host.checkpoint`).

facts                        the kernel in progress, the kernels that are done
node.*                       records of the machine; series: rows of the time series taken so far
before.UNIT                  counters before the kernel in progress
done.NUMBER.UNIT             counters of kernels done
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.counters import totals
from sim.host.state import State
from sim.results import KernelResult


@dataclass
class Standing:
    """How far a run has come.

    Attributes:
        kernel: number of the kernel in progress.
        start_ps: its launch.
        before: unit -> counters when it was launched (sim.counters.take).
        done: kernels that have ended.
        gpu: the machine with the kernel on it; None = before the launch.
    """

    kernel: int
    start_ps: int
    before: dict[str, np.ndarray]
    done: list[KernelResult]
    gpu: State | None = None


def content_of(standing: Standing, gpu: State) -> State:
    """What a checkpoint keeps of a run, with the machine as it is."""
    facts: dict[str, Any] = {
        "kernel": standing.kernel,
        "start_ps": standing.start_ps,
        "gpu": gpu.facts,
        "done": [[result.name, result.start_ps, result.end_ps] for result in standing.done],
        "units": list(standing.before),
    }
    arrays = {**gpu.arrays, **{f"before.{unit}": counters for unit, counters in standing.before.items()}}
    for number, result in enumerate(standing.done):
        arrays |= {f"done.{number}.{unit}": counters for unit, counters in result.units.items()}
    return State(facts, arrays)


def standing_of(content: State) -> Standing:
    """The inverse of `content_of`."""
    facts, arrays = content
    units = facts["units"]
    done = []
    for number, (name, start_ps, end_ps) in enumerate(facts["done"]):
        counted = {unit: arrays[f"done.{number}.{unit}"] for unit in units}
        done.append(KernelResult(name, start_ps, end_ps, counted, totals(counted)))
    before = {unit: arrays[f"before.{unit}"] for unit in units}
    return Standing(facts["kernel"], facts["start_ps"], before, done, State(facts["gpu"], arrays))
