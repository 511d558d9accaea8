"""One point of a study: its runs, and its rows in the archive."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sim.run.reason import reason_of
from sim.run.result import Failure, RunResult
from sim.run.run import Run
from sim.run.runner import Outcomes
from sim.study.asked import Asked, AskedScenario, asked_of
from traces.checksum import canonical_json
from traces.errors import UserError


@dataclass(frozen=True)
class Point:
    """One combination of swept values.

    Attributes:
        number: index in the study, from 0.
        settings: field -> value (`sim.study.fields`).
        coordinates: the settings that the study sweeps.
        folder: paths in the settings are relative to it.
    """

    number: int
    settings: dict[str, Any]
    coordinates: dict[str, Any]
    folder: str

    @cached_property
    def asked(self) -> Asked | AskedScenario | str:
        """A run or a scenario; a text = why the point cannot run."""
        try:
            asked = asked_of(self.settings, self.folder)
            asked.content  # noqa: B018 - finds mistakes in every run of a scenario
            return asked
        except UserError as mistake:
            return self._without_place(reason_of(mistake))

    @property
    def runs(self) -> list[Run]:
        """Runs that the point needs."""
        return [] if isinstance(self.asked, str) else list(self.asked.runs.values())

    @cached_property
    def content(self) -> dict[str, Any]:
        """All inputs that determine its rows, as plain data. Has `failure` if the point cannot run."""
        content = {"failure": self.asked} if isinstance(self.asked, str) else self.asked.content
        return content | {"run": self.settings["run"], "point": self.coordinates}

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(canonical_json(self.content).encode()).hexdigest()

    def failure(self, outcomes: Outcomes) -> str:
        """Why it failed; "" = it did not."""
        if isinstance(self.asked, str):
            return self.asked
        reasons = (outcomes.failed.get(run.key, "") for run in self.runs)
        return self._without_place(next(filter(None, reasons), ""))

    def rows(self, outcomes: Outcomes) -> Sequence[RunResult | Failure]:
        """Its rows in the archive. No run of it may be lost."""
        reason = self.failure(outcomes)
        if reason or isinstance(self.asked, str):
            return [Failure(self.coordinates, reason)]
        results = {name: outcomes.result(run) for name, run in self.asked.runs.items()}
        rows = self.asked.rows(results)
        for row in rows:
            row.point = self.coordinates | row.point
        return rows

    def _without_place(self, reason: str) -> str:
        """The reason without the folder of the study on this machine."""
        return reason.replace(self.folder + os.sep, "")
