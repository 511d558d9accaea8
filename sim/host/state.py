"""The state of a simulated GPU as plain arrays by name: every record of its node, and the host's facts.

The records are the complete state of the machine. So a machine of the same build with these arrays continues the run
without any difference. `sim.host.checkpoint` stores them in a file.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

Records = TypeVar("Records", bound=tuple)


class State(NamedTuple):
    """A GPU with kernels on it, between two time windows.

    Attributes:
        facts: values of the host, which JSON can hold.
        arrays: name -> records: the node's own arrays, not copies; or those of a file, read one by one when asked for.
    """

    facts: dict[str, Any]
    arrays: Mapping[str, np.ndarray]


class ClusterState(NamedTuple):
    """GPUs with kernels on them, between two rounds. The shared wires are in the state of each GPU.

    Attributes:
        horizon_ps: time up to which they have run.
        still: consecutive rounds in which nothing moved.
        gpus: the state of each GPU.
    """

    horizon_ps: int
    still: int
    gpus: list[State]


class SavePoints(NamedTuple):
    """The moments of a simulation at which its state can be saved.

    Attributes:
        act: called at each of them, with a function that returns the state at that moment.
        state: of the same simulation at an earlier save point: continue from there; None = start from the beginning.
    """

    act: Callable[[Callable[[], State]], None]
    state: State | None


def flat_state(cluster: ClusterState) -> State:
    """The states of all GPUs as one State: the facts of each GPU, and their arrays as `gpu.NUMBER.NAME`."""
    facts = {"horizon_ps": cluster.horizon_ps, "still": cluster.still, "gpus": [gpu.facts for gpu in cluster.gpus]}
    arrays = {
        f"gpu.{number}.{name}": values for number, gpu in enumerate(cluster.gpus) for name, values in gpu.arrays.items()
    }
    return State(facts, arrays)


def cluster_state(flat: State) -> ClusterState:
    """The inverse of `flat_state`."""
    gpus = [State(facts, _Below(f"gpu.{number}.", flat.arrays)) for number, facts in enumerate(flat.facts["gpus"])]
    return ClusterState(flat.facts["horizon_ps"], flat.facts["still"], gpus)


class _Below(Mapping[str, np.ndarray]):
    """The arrays whose names begin with a prefix, by the rest of their names."""

    def __init__(self, prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
        self._prefix, self._arrays = prefix, arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._arrays if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def named_arrays(records: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of a named tuple, and of the named tuples in it ("output.tiles")."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in records._asdict().items():
        if isinstance(value, tuple):
            arrays |= named_arrays(value, f"{prefix}{name}.")
        else:
            arrays[prefix + name] = value
    return arrays


def with_arrays(records: Records, arrays: Mapping[str, np.ndarray], prefix: str) -> Records:
    """The named tuple with copies of the given arrays, which have the names of `named_arrays`.

    An array whose shape does not change is overwritten in place. So its other users (for wires) see the new values.
    """
    values: dict[str, Any] = {}
    for name, old in records._asdict().items():  # type: ignore[attr-defined]
        if isinstance(old, tuple):
            values[name] = with_arrays(old, arrays, f"{prefix}{name}.")
        else:
            values[name] = _overwritten(old, arrays[prefix + name])
    return records._replace(**values)  # type: ignore[attr-defined]


def _overwritten(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Copy `new` into `old` if their shapes are equal, else into a new array. Returns the array."""
    if old.shape != new.shape:
        old = np.zeros(new.shape, old.dtype)
    old[...] = new
    return old
