"""The checkpoint of a run in progress: a file from which the same run goes on, to the same bytes of results.

    KEY.npz         about        json: file type, version, key of the run
                    facts        json: how far it is, in plain values
                    NAME ...     arrays: records of the machine, and counters of kernels that are done

What facts and arrays say is `sim.run.sequence_state` for kernels on one GPU, `sim.host.state` for several GPUs.

Taken between two time windows, written under a temporary name, synced and renamed: whatever ends the program, the file
is the last whole checkpoint. The key is that of `sim.run.run`: it says what runs, on which machine, with which code.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import numpy as np

from sim.host.state import SavePoints, State
from traces.write import output_path, replacing

FILE_TYPE = "t3sim-checkpoint"
FORMAT_VERSION = 2
EVERY_S = 300.0


class Checkpoint:
    """The file of a run, written every so often.

    Raises:
        UserError: a place that cannot be written.
    """

    def __init__(self, path: str | Path, key: str, every_s: float = EVERY_S, clock_s: Callable[[], float] = monotonic):
        """Args:
        path: of the file.
        key: of the run.
        every_s: least time from one writing to the next.
        clock_s: what tells the time.
        """
        self.path, self.key = output_path(path), key
        self._every_s, self._clock_s = every_s, clock_s
        self._written_s = clock_s()

    def save_points(self) -> SavePoints:
        """The state from which the run continues, and the function that saves it."""

        def act(state: Callable[[], State]) -> None:
            if self.due():
                self.write(state())

        return SavePoints(act, self.read())

    def read(self) -> State | None:
        """How far the run came. None where there is no file, and where it is damaged or that of another run: begin."""
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as content:
                if json.loads(str(content["about"])) != self._about():
                    return None
                return State(json.loads(str(content["facts"])), {name: content[name] for name in content.files})
        except Exception:  # numpy and zipfile raise whatever their layers meet in a damaged file
            return None

    def _about(self) -> dict[str, object]:
        return {"file_type": FILE_TYPE, "format_version": FORMAT_VERSION, "key": self.key}

    def due(self) -> bool:
        """Is it time to write again?"""
        return self._clock_s() >= self._written_s + self._every_s

    def write(self, content: State) -> None:
        """Replace the file by one that says how far the run is.

        Raises:
            UserError: it cannot be written, disk full. The one before is left.
        """
        texts = {"about": np.array(json.dumps(self._about())), "facts": np.array(json.dumps(content.facts))}
        with replacing(self.path) as temporary, open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **texts, **content.arrays)
            file.flush()
            os.fsync(file.fileno())
        self._written_s = self._clock_s()

    def remove(self) -> None:
        """The run is over and its result is safe."""
        self.path.unlink(missing_ok=True)
