"""The checkpoint of a run in progress: a file from which the run continues, to the same bytes of results.

    KEY.npz         about        json: file type, version, key of the run
                    facts        json: progress of the run, in plain values
                    NAME ...     arrays: records of the machine, and counters of finished kernels

Facts and arrays are defined in `sim.run.sequence_state` for kernels on one GPU, in `sim.host.state` for several GPUs.

A checkpoint is taken between two time windows. It is written under a temporary name, synced and renamed. So the file is
always the last complete checkpoint, also after a crash. It has a seal (`traces.seal`): a damaged file is not used. The
key is the one of `sim.run.run`: it identifies the kernels, the machine and the code.
"""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import numpy as np

from sim.host.state import SavePoints, State
from traces.errors import Notice, UserError
from traces.output import output_path, replacing
from traces.seal import check_seal, seal

FILE_TYPE = "t3sim-checkpoint"
FORMAT_VERSION = 3
EVERY_S = 300.0


class Checkpoint:
    """The checkpoint file of a run, written at intervals.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, path: str | Path, key: str, every_s: float = EVERY_S, clock_s: Callable[[], float] = monotonic):
        """Args:
        path: path of the file.
        key: key of the run.
        every_s: shortest time between two checkpoints.
        clock_s: function that returns the time.
        """
        self.path, self.key = output_path(path), key
        self._every_s, self._clock_s = every_s, clock_s
        self._written_s = clock_s()

    def save_points(self) -> SavePoints:
        """The state from which the run continues, and the function that saves it.

        If one cannot be written, for example because the disk is full, a warning says so and the run goes on.
        """

        def act(state: Callable[[], State]) -> None:
            if self.due():
                try:
                    self.write(state())
                except UserError as problem:
                    warnings.warn(f"no checkpoint is saved: {problem}", Notice, stacklevel=2)
                    self._written_s = self._clock_s()

        return SavePoints(act, self.read())

    def read(self) -> State | None:
        """The saved state. None if there is no file, or if it is damaged or of another run; then the run starts new."""
        try:
            if not check_seal(self.path):
                return None
            content = np.load(self.path, allow_pickle=False)  # stays open: a state can be as large as the machine
            if json.loads(str(content["about"])) != self._about():
                content.close()
                return None
            return State(json.loads(str(content["facts"])), content)
        except Exception:  # a damaged file makes numpy and zipfile raise many kinds of errors
            return None

    def _about(self) -> dict[str, object]:
        return {"file_type": FILE_TYPE, "format_version": FORMAT_VERSION, "key": self.key}

    def due(self) -> bool:
        """Is the next checkpoint due?"""
        return self._clock_s() >= self._written_s + self._every_s

    def write(self, content: State) -> None:
        """Replace the file with the current state of the run.

        Raises:
            UserError: the file cannot be written, for example because the disk is full. The previous file stays.
        """
        texts = {"about": np.array(json.dumps(self._about())), "facts": np.array(json.dumps(content.facts))}
        with replacing(self.path) as temporary, open(temporary, "wb+") as file:
            np.savez(file, allow_pickle=False, **texts, **content.arrays)
            seal(file)
            file.flush()
            os.fsync(file.fileno())
        self._written_s = self._clock_s()

    def remove(self) -> None:
        """Delete the file: the run is finished and its result is stored."""
        self.path.unlink(missing_ok=True)
