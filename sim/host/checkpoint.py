"""The checkpoint of a run: a file from which the same run goes on, to the same bytes of results.

    FILE.npz        about        json: file type, version, and what the run is: machine, trace, options, code
                    facts        json: how far it is, in plain values
                    NAME ...     arrays: records of the machine, and what is done

What facts and arrays say is `sim.run.standing` for a run of one GPU, `sim.scenario.evaluation_standing` for an
evaluation.

Taken between two time windows, written under a temporary name, synced and renamed: whatever ends the program, the file
is the last whole checkpoint. It belongs to one run with one version of the code; everything else refuses it.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import numpy as np

from sim.host.state import State
from traces.errors import UserError
from traces.version import VERSION
from traces.write import output_path, replacing

FILE_TYPE = "t3sim-checkpoint"
FORMAT_VERSION = 1
Stood = TypeVar("Stood")


class Checkpoint:
    """The file of a run, written every so often.

    Raises:
        UserError: a place that cannot be written.
    """

    def __init__(self, path: str | Path, every_s: float, clock_s: Callable[[], float] = monotonic):
        """every_s: least time from one writing to the next; clock_s: what tells the time."""
        self.path = output_path(path)
        self._name, self._every_s, self._clock_s = str(path), every_s, clock_s
        self._written_s = clock_s()
        self._about: dict[str, Any] = {}

    def open(self, run: dict[str, Any], read: Callable[[State], Stood]) -> Stood | None:
        """Say what the run is (plain values, two levels) and read how far it came. None where there is no file yet.

        Args:
            run: all that decides the results.
            read: the inverse of what was done to make the content.

        Raises:
            UserError: no checkpoint, a damaged one, or that of another run; the first difference is named.
        """
        about = {"file_type": FILE_TYPE, "format_version": FORMAT_VERSION, "writer": f"t3sim {VERSION}", **run}
        self._about = json.loads(json.dumps(about))
        if not self.path.exists():
            return None
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as content:
                self._check(json.loads(str(content["about"])))
                return read(State(json.loads(str(content["facts"])), {name: content[name] for name in content.files}))
        except UserError:
            raise
        except Exception as problem:  # numpy and zipfile raise whatever their layers meet in a damaged file
            text = " ".join(str(problem).split())
            raise UserError(f"{self._name}: damaged, or no checkpoint ({text}); remove it to start anew") from None

    def _check(self, found: Any) -> None:
        difference = _difference(found, self._about)
        if difference:
            raise UserError(f"{self._name}: the checkpoint of another run: {difference}; remove it to start anew")

    def due(self) -> bool:
        """Is it time to write again?"""
        return self._clock_s() >= self._written_s + self._every_s

    def write(self, content: State) -> None:
        """Replace the file by one that says how far the run is.

        Raises:
            UserError: it cannot be written, disk full. The one before is left.
        """
        texts = {"about": np.array(json.dumps(self._about)), "facts": np.array(json.dumps(content.facts))}
        with replacing(self.path) as temporary, open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **texts, **content.arrays)
            file.flush()
            os.fsync(file.fileno())
        self._written_s = self._clock_s()

    def remove(self) -> None:
        """The run is over and its results are safe."""
        self.path.unlink(missing_ok=True)


def _difference(found: Any, ours: dict[str, Any]) -> str:
    """The first thing in which two runs differ, "" = none."""
    for name in ours | found:
        one, other = found.get(name), ours.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            inner = _difference(one, other)
            if inner:
                return f"{name} {inner}"
        elif one != other:
            return f"{name}: found {one!r}, this run has {other!r}"
    return ""
