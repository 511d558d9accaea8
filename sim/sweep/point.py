"""One point of a study: from its settings to a job, its digest and its results. This is what a worker calls.

A new kind of run is a member of `Kind`, its fields in `sim.sweep.fields`, and a branch in `opened_job` and `run_job`.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from sim.hw.policy import VARIABLE
from sim.policy_file import is_bound, policy_digest
from sim.presets import Preset, load_preset
from sim.results import Failure, Results, write_results
from sim.run import simulate
from sim.sweep.fields import PATHS, Kind, StudyError, part_of
from sim.units import PS_PER_NS
from tracer.gemm import GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from tracer.sources import source_fingerprint
from tracer.workloads import DEFAULT_KERNEL, named_sublayer
from traces.archive import Archive, open_archive
from traces.checksum import canonical_json
from traces.errors import UserError
from traces.source import TraceSource
from traces.version import VERSION

REASON_CHARACTERS = 500
POLICY_PROCESS = "sim.sweep.policy_process"


@dataclass(frozen=True)
class Point:
    """One run of a study, as plain data that travels to a worker.

    Attributes:
        number: of the point in its study.
        settings: field -> value (`sim.sweep.fields`).
        coordinates: of these, the ones that the study sweeps.
        folder: that the paths of the settings start from.
        digest: of its content when the study was read.
    """

    number: int
    settings: dict[str, Any]
    coordinates: dict[str, Any]
    folder: str
    digest: str


@dataclass(frozen=True)
class Job:
    """What a point comes to: a machine, something to run on it, and how."""

    kind: Kind
    preset: Preset
    source: TraceSource
    kernels: list[int] | None
    flush_l2: bool
    interval_ps: int
    policy: str  # file, "" = none


@contextmanager
def opened_job(point: Point) -> Iterator[Job]:
    """Load and check everything that a point names; its trace is open as long as the block lasts.

    Raises:
        UserError: values that do not fit each other, a file that is not there.
    """
    settings = point.settings | {
        name: os.path.join(point.folder, point.settings[name]) for name in PATHS if name in point.settings
    }
    kind = Kind(settings["run"])
    machine = {name: value for name, value in settings.items() if "." in name and not name.startswith("gemm.")}
    policy = settings.get("policy", "")
    if policy:
        if not os.path.isfile(policy):
            raise StudyError(f"policy: no file {point.settings['policy']}")
        machine.setdefault("hbm.arbiter", "user")
    preset = _preset(settings["preset"], machine, point.folder)
    with ExitStack() as stack:
        source = _source(kind, settings)
        if isinstance(source, Archive):
            stack.enter_context(source)
        yield Job(
            kind=kind,
            preset=preset,
            source=source,
            kernels=settings.get("kernels"),
            flush_l2=settings["flush_l2"],
            interval_ps=settings["interval_ns"] * PS_PER_NS,
            policy=policy,
        )


def _preset(name: str, machine: dict[str, Any], folder: str) -> Preset:
    path = os.path.join(folder, name) if name.endswith(".toml") else name
    loaded = load_preset(path, machine)
    return Preset(name, loaded.title, loaded.machine, loaded.sources)


def _source(kind: Kind, settings: dict[str, Any]) -> TraceSource:
    gemm, workload, trace = part_of(settings, "gemm."), settings.get("workload"), settings.get("trace")
    if kind == Kind.REPLAY:
        if trace is None or workload is not None or gemm:
            raise StudyError('run = "replay": give trace, and neither workload nor gemm')
        return open_archive(trace)
    if trace is not None:
        raise StudyError('run = "gemm": trace is for run = "replay"')
    problem_fields = {name: value for name, value in gemm.items() if name in GemmProblem.__dataclass_fields__}
    kernel_fields = {name: value for name, value in gemm.items() if name in GemmKernel.__dataclass_fields__}
    return CommandSequence(
        [GemmSource(_problem(workload, problem_fields), GemmKernel(**(asdict(DEFAULT_KERNEL) | kernel_fields)))]
    )


def _problem(workload: str | None, given: dict[str, Any]) -> GemmProblem:
    if workload is not None:
        if given:
            raise StudyError(f"gemm.{next(iter(given))}: not with workload, which gives the problem")
        return named_sublayer(workload)
    missing = [name for name in ("m", "n", "k") if name not in given]
    if missing:
        raise StudyError(f"gemm.{missing[0]}: missing; give gemm.m, gemm.n and gemm.k, or workload")
    return GemmProblem(**given)


def point_content(point: Point) -> dict[str, Any]:
    """What decides the results of a point, as plain data; names of files do not. `failure` where it cannot run."""
    try:
        with opened_job(point) as job:
            content = _job_content(job)
    except UserError as mistake:
        content = {"failure": " ".join(str(mistake).split())}
    return content | {"point": point.coordinates}


def content_digest(content: dict[str, Any]) -> str:
    """SHA-256 of a `point_content`."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def _job_content(job: Job) -> dict[str, Any]:
    return {
        "kind": job.kind,
        "preset": job.preset.as_dict(),
        "trace": job.source.fingerprint(),
        "kernels": job.kernels,
        "flush_l2": job.flush_l2,
        "interval_ps": job.interval_ps,
        "policy": policy_digest(job.policy) if job.policy else "",
    }


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
    write_results(target, found)
    return found.reason if isinstance(found, Failure) else ""


def _attempt(point: Point) -> Results | Failure:
    try:
        with opened_job(point) as job:
            results = run_job(job)
    except (MemoryError, OSError):
        raise  # of this machine and moment, not of the point
    except UserError as mistake:
        return Failure(point.coordinates, " ".join(str(mistake).split()))
    except Exception as error:  # a fault of the simulator or of a policy: the other points go on
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return Failure(point.coordinates, reason[:REASON_CHARACTERS])
    results.point = point.coordinates
    return results


def run_job(job: Job) -> Results:
    """Simulate."""
    results = simulate(job.source, job.preset, kernels=job.kernels, flush_l2=job.flush_l2, interval_ps=job.interval_ps)
    if job.policy:
        results.options["policy_sha256"] = policy_digest(job.policy)
    return results


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
