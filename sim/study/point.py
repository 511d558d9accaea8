"""One point of a study as a worker runs it: from its settings to the archive of its results."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from sim.hw.policy import VARIABLE
from sim.results import Failure, RunResult, write_runs
from sim.run.policy_file import is_bound
from sim.study.fields import StudyError
from sim.study.jobs import opened_job
from tracer.compile.fingerprint import source_fingerprint
from traces.checksum import canonical_json
from traces.errors import UserError
from traces.version import VERSION

REASON_CHARACTERS = 500
POLICY_PROCESS = "sim.study.policy_process"


@dataclass(frozen=True)
class Point:
    """One run of a study, as plain data that travels to a worker.

    Attributes:
        number: of the point in its study.
        settings: field -> value (`sim.study.fields`).
        coordinates: of these, the ones that the study sweeps.
        folder: that the paths of the settings start from.
        digest: of its content when the study was read.
    """

    number: int
    settings: dict[str, Any]
    coordinates: dict[str, Any]
    folder: str
    digest: str


def point_content(point: Point) -> dict[str, Any]:
    """What decides the results of a point, as plain data; names of files do not. `failure` where it cannot run."""
    try:
        with opened_job(point.settings, point.folder) as job:
            content = job.content
    except UserError as mistake:
        content = {"failure": reason_of(mistake, point)}
    return content | {"point": point.coordinates}


def reason_of(error: Exception, point: Point) -> str:
    """An error on one line, without the place of the study on this machine."""
    text = str(error).replace(point.folder + os.sep, "")
    return " ".join(text.split())[:REASON_CHARACTERS]


def content_digest(content: dict[str, Any]) -> str:
    """SHA-256 of a `point_content`."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


@cache
def simulator_digest() -> str:
    """SHA-256 of version and sources of everything that results come from."""
    return f"t3sim {VERSION} {source_fingerprint(__name__, __file__)}"


def run_point(point: Point, target: str) -> str:
    """Run a point and write its archive at once. Returns the reason where it failed, else "".

    Raises:
        UserError: the archive cannot be written, or the files that the point names are no longer those of the study.
    """
    if content_digest(point_content(point)) != point.digest:
        raise StudyError(f"point {point.number}: a file that it names has changed, or this worker sees another one")
    policy = point.settings.get("policy")
    if policy and not is_bound(os.path.join(point.folder, policy)):
        return _run_in_process_of_its_own(point, target, os.path.join(point.folder, policy))
    found = _attempt(point)
    write_runs(target, found)
    return "; ".join(run.reason for run in found if isinstance(run, Failure))


def _attempt(point: Point) -> Sequence[RunResult | Failure]:
    try:
        with opened_job(point.settings, point.folder) as job:
            runs = job.run()
    except (MemoryError, OSError):
        raise  # of this machine and moment, not of the point
    except UserError as mistake:
        return [Failure(point.coordinates, reason_of(mistake, point))]
    except Exception as error:  # a fault of the simulator or of a policy: the other points go on
        return [Failure(point.coordinates, f"{type(error).__name__}: {reason_of(error, point)}")]
    for run in runs:
        run.point = point.coordinates | run.point
    return runs


def _run_in_process_of_its_own(point: Point, target: str, policy: str) -> str:
    """A policy is bound when the machine is imported, so another one needs another process."""
    done = subprocess.run(
        [sys.executable, "-m", POLICY_PROCESS, target],
        input=json.dumps(asdict(point)),
        env=os.environ | {VARIABLE: policy, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise UserError(f"point {point.number}: {lines[-1]}")
    return done.stdout
