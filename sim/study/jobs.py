"""From the settings of a point to a job: a machine, something to run on it, and what decides the outcome.

A new kind of run is a member of `Kind`, its fields in `sim.study.fields`, and a branch in `_job` that names what
decides its results and a function that gives them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sim.presets import Preset, load_preset
from sim.results import RunResult
from sim.run.policy_file import policy_digest
from sim.run.run import KernelRun
from sim.run.store import Store, run_or_get
from sim.study.evaluation import evaluated, make_case
from sim.study.fields import KERNEL_PREFIX, PATHS, Kind, StudyError, kernel_of, part_of
from tracer.kernels import make_gemm, make_kernel
from tracer.sequence import CommandSequence
from traces.archive import open_archive
from traces.source import TraceSource
from traces.units import PS_PER_NS

ONLY_FOR = {
    Kind.REPLAY: ("trace", "kernels", "flush_l2", "interval_ns"),
    Kind.KERNEL: ("kernel", KERNEL_PREFIX, "flush_l2", "interval_ns"),
    Kind.T3: ("kernel", KERNEL_PREFIX, "t3.", "interval_ns"),
}
"""Kind -> fields (or, with a dot at the end, what they begin with) beyond run, preset, policy and the machine."""
TAKEN = {name for names in ONLY_FOR.values() for name in names}


@dataclass(frozen=True)
class Job:
    """What a point comes to.

    Attributes:
        content: all that decides the results, as plain data.
        run: gives them: one run, or one of figures and one for each simulation behind it.
    """

    content: dict[str, Any]
    run: Callable[[], list[RunResult]]


@contextmanager
def opened_job(settings: dict[str, Any], folder: str) -> Iterator[Job]:
    """Load and check everything that settings name; a trace is open as long as the block lasts.

    Args:
        settings: field -> value (`sim.study.fields`).
        folder: that their paths start from.

    Raises:
        UserError: values that do not fit each other, a file that is not there.
    """
    settings = settings | {name: os.path.join(folder, settings[name]) for name in PATHS if name in settings}
    kind = Kind(settings["run"])
    _check_taken(kind, settings)
    preset = _preset(settings, folder)
    if kind != Kind.REPLAY:
        yield _job(kind, preset, settings, None)
        return
    if "trace" not in settings:
        raise StudyError('trace: missing; run = "replay" replays a trace archive')
    with open_archive(settings["trace"]) as trace:
        yield _job(kind, preset, settings, trace)


def _check_taken(kind: Kind, settings: dict[str, Any]) -> None:
    """Fields of another kind of run are a mistake, not something to ignore."""
    for name in settings:
        names = {name, name.partition(".")[0] + "."}
        if names & TAKEN and not names & set(ONLY_FOR[kind]):
            raise StudyError(f'{name}: not with run = "{kind}", which takes {", ".join(ONLY_FOR[kind])}')


def _preset(settings: dict[str, Any], folder: str) -> Preset:
    """The machine; a policy makes the arbiter the user's."""
    machine = {
        name: value for name, value in settings.items() if "." in name and not name.startswith((KERNEL_PREFIX, "t3."))
    }
    if "policy" in settings:
        if not os.path.isfile(settings["policy"]):
            raise StudyError(f"policy: no file {settings['policy']}")
        machine.setdefault("hbm.arbiter", "user")
    name = settings["preset"]
    loaded = load_preset(os.path.join(folder, name) if name.endswith(".toml") else name, machine)
    return Preset(name, loaded.title, loaded.machine, loaded.sources)


def _job(kind: Kind, preset: Preset, settings: dict[str, Any], trace: TraceSource | None) -> Job:
    content = {"run": kind, "preset": preset.as_dict()}
    if "policy" in settings:
        content["policy_sha256"] = policy_digest(settings["policy"])
    interval_ps = settings.get("interval_ns", 0) * PS_PER_NS
    kernel, changes = ("", {}) if trace else kernel_of(settings)
    if kind == Kind.T3:
        gemm, gpus = make_gemm(kernel, **changes)
        case = make_case(preset, gemm, part_of(settings, "t3."), gpus, interval_ps)
        return Job(content | case.content, lambda: _signed(evaluated(case), content))
    source = trace or CommandSequence([make_kernel(kernel, **changes)])
    given = {
        "kernels": settings.get("kernels"),
        "flush_l2": settings.get("flush_l2", True),
        "interval_ps": interval_ps,
    }
    run = content | given | {"trace": source.fingerprint()}
    described = KernelRun(preset=preset, source=source, **given)
    return Job(run, lambda: _signed([run_or_get(described, Store()).result], content))


def _signed(runs: list[RunResult], content: dict[str, Any]) -> list[RunResult]:
    """Runs that name the policy they come from."""
    if "policy_sha256" in content:
        for run in runs:
            run.options["policy_sha256"] = content["policy_sha256"]
    return runs
