"""One point of a study: what it asks for, and its rows in the archive."""

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
    """A point.

    Attributes:
        number: in its study.
        settings: field -> value (`sim.study.fields`).
        coordinates: of these, the ones that the study sweeps.
        folder: that the paths of the settings start from.
    """

    number: int
    settings: dict[str, Any]
    coordinates: dict[str, Any]
    folder: str

    @cached_property
    def asked(self) -> Asked | AskedScenario | str:
        """A run or a scenario; the reason where it cannot be."""
        try:
            asked = asked_of(self.settings, self.folder)
            asked.content  # noqa: B018 - finds mistakes in every run of a scenario
            return asked
        except UserError as mistake:
            return self._without_place(reason_of(mistake))

    @property
    def runs(self) -> list[Run]:
        """Simulations that it needs."""
        return [] if isinstance(self.asked, str) else list(self.asked.runs.values())

    @cached_property
    def content(self) -> dict[str, Any]:
        """What decides its rows, as plain data; names of files do not. `failure` where it cannot run."""
        asked = {"failure": self.asked} if isinstance(self.asked, str) else self.asked.content
        return asked | {"run": self.settings["run"], "point": self.coordinates}

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(canonical_json(self.content).encode()).hexdigest()

    def failure(self, outcomes: Outcomes) -> str:
        """Why it failed, "" where it did not."""
        if isinstance(self.asked, str):
            return self.asked
        reasons = (outcomes.failed.get(run.key, "") for run in self.runs)
        return self._without_place(next(filter(None, reasons), ""))

    def rows(self, outcomes: Outcomes) -> Sequence[RunResult | Failure]:
        """Its rows in the archive; none of its runs was lost."""
        reason = self.failure(outcomes)
        if reason or isinstance(self.asked, str):
            return [Failure(self.coordinates, reason)]
        found = {name: outcomes.result(run) for name, run in self.asked.runs.items()}
        rows = self.asked.rows(found)
        for row in rows:
            row.point = self.coordinates | row.point
        return rows

    def _without_place(self, reason: str) -> str:
        """Without the place of the study on this machine."""
        return reason.replace(self.folder + os.sep, "")
