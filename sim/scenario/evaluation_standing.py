"""How far an evaluation has come, as the content of its checkpoint (`sim.host.checkpoint`).

facts                        parts that are done, in plain values; the part in progress and the facts of its GPUs
done.PART.NAME               arrays of a part that is done; done.PART.series.COLUMN its time series
gpu.NUMBER.NAME              arrays of a GPU of the part in progress (sim.host.state)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.host.state import ClusterState, State
from sim.run.job_result import JobResult

PLAIN = ("time_ps", "kernel_ps", "link_bytes", "totals", "exactly_once", "facts", "requests")
ARRAYS = ("dram_bytes", "spans", "triggers")


@dataclass
class EvaluationStanding:
    """How far an evaluation has come.

    Attributes:
        done: parts that have been simulated, in their order.
        part: in progress, "" = none.
        state: of its GPUs.
    """

    done: dict[str, JobResult] = field(default_factory=dict)
    part: str = ""
    state: ClusterState | None = None


def evaluation_content(standing: EvaluationStanding) -> State:
    """What a checkpoint keeps of an evaluation."""
    facts: dict[str, Any] = {"done": {}, "part": standing.part}
    arrays: dict[str, np.ndarray] = {}
    for name, result in standing.done.items():
        plain = {fact: getattr(result, fact) for fact in PLAIN}
        facts["done"][name] = plain | {"wrong": list(result.wrong), "series": list(result.series)}
        arrays |= {f"done.{name}.{array}": getattr(result, array) for array in ARRAYS}
        arrays |= {f"done.{name}.series.{column}": values for column, values in result.series.items()}
    if standing.state is not None:
        gpus = standing.state.gpus
        facts["state"] = [standing.state.horizon_ps, standing.state.still, [gpu.facts for gpu in gpus]]
        for number, gpu in enumerate(gpus):
            arrays |= {f"gpu.{number}.{array}": values for array, values in gpu.arrays.items()}
    return State(facts, arrays)


def evaluation_standing(content: State) -> EvaluationStanding:
    """The inverse of `evaluation_content`."""
    facts, arrays = content
    done = {name: _result(name, dict(plain), arrays) for name, plain in facts["done"].items()}
    if "state" not in facts:
        return EvaluationStanding(done)
    horizon_ps, still, gpus = facts["state"]
    states = [State(gpu, _below(f"gpu.{number}.", arrays)) for number, gpu in enumerate(gpus)]
    return EvaluationStanding(done, facts["part"], ClusterState(horizon_ps, still, states))


def _result(name: str, plain: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> JobResult:
    series = {column: arrays[f"done.{name}.series.{column}"] for column in plain.pop("series")}
    wrong = tuple(plain.pop("wrong"))
    found: dict[str, Any] = {array: arrays[f"done.{name}.{array}"] for array in ARRAYS}
    return JobResult(**plain, **found, wrong=wrong, series=series)


def _below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
