"""From the settings of a point to what it asks for: a run, or a scenario in several configurations.

A new kind is a member of `Kind`, its fields in `sim.study.fields`, and a branch in `asked_of`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any

from sim.collective.chunks import chunks_of
from sim.collective.own_plan import load_plan
from sim.presets import Preset, load_preset
from sim.run.policy_file import policy_digest
from sim.run.result import RunResult
from sim.run.run import KernelRun, Run
from sim.scenario.archive import COLUMN, scenario_row, scenario_runs
from sim.scenario.result import CONFIGURATIONS
from sim.scenario.scenario import Scenario, assemble, runs_of
from sim.study.fields import KERNEL_PREFIX, PATHS, Kind, StudyError, kernel_of, part_of
from tracer.gemm.source import GemmSource
from tracer.kernels import make_gemm, make_kernel
from tracer.sequence import CommandSequence
from traces.archive import Archive, open_archive
from traces.units import PS_PER_NS

ONLY_FOR = {
    Kind.REPLAY: ("trace", "kernels", "flush_l2", "interval_ns"),
    Kind.KERNEL: ("kernel", KERNEL_PREFIX, "flush_l2", "interval_ns"),
    Kind.T3: ("kernel", KERNEL_PREFIX, "t3.", "interval_ns"),
}
"""Kind -> fields (or, with a dot at the end, what they begin with) beyond run, preset, policy and the machine."""
TAKEN = {name for names in ONLY_FOR.values() for name in names}
OPEN_TRACES = 4


@dataclass(frozen=True)
class Asked:
    """One run.

    Attributes:
        runs: name -> run.
        content: what decides the rows in the archive, as plain data.
    """

    runs: dict[str, Run]
    content: dict[str, Any]

    def rows(self, found: Mapping[str, RunResult]) -> list[RunResult]:
        """Rows of the archive, from the results of `runs` by their names."""
        return list(found.values())


@dataclass(frozen=True)
class AskedScenario:
    """A scenario: its figures as one row, and with a time series one for each run behind it.

    Attributes:
        scenario: what is simulated.
        configurations: which are put together.
        options: what decides it beside the machine, as plain data.
    """

    scenario: Scenario
    configurations: Sequence[str]
    options: dict[str, Any]

    @cached_property
    def runs(self) -> dict[str, Run]:
        return {name: self.scenario.run(name) for name in runs_of(self.configurations)}

    @property
    def content(self) -> dict[str, Any]:
        return self.options | {
            "preset": self.scenario.preset.as_dict(),
            "runs": [run.key for run in self.runs.values()],
        }

    def rows(self, found: Mapping[str, RunResult]) -> list[RunResult]:
        whole = assemble(self.scenario, found, self.configurations)
        row = scenario_row(whole, self.options)
        if whole.interval_ps:
            return [row, *scenario_runs(whole)]
        del row.point[COLUMN]  # the only row of its point
        return [row]


def asked_of(settings: dict[str, Any], folder: str) -> Asked | AskedScenario:
    """Load and check everything that settings name.

    Args:
        settings: field -> value (`sim.study.fields`).
        folder: that their paths start from.

    Raises:
        UserError: values that do not fit each other, a file that is not there.
    """
    settings = settings | {name: os.path.join(folder, settings[name]) for name in PATHS if name in settings}
    kind = Kind(settings["run"])
    _check_taken(kind, settings)
    common: dict[str, Any] = {
        "preset": _preset(settings, folder),
        "interval_ps": settings.get("interval_ns", 0) * PS_PER_NS,
        "policy": settings.get("policy", ""),
    }
    if kind == Kind.T3:
        text, changes = kernel_of(settings)
        return _asked_scenario(*make_gemm(text, **changes), part_of(settings, "t3."), common)
    if kind == Kind.KERNEL:
        text, changes = kernel_of(settings)
        source: CommandSequence | Archive = CommandSequence([make_kernel(text, **changes)])
    elif "trace" in settings:
        source = _trace(settings["trace"], os.stat(settings["trace"]).st_mtime_ns)
    else:
        raise StudyError('trace: missing; run = "replay" replays a trace archive')
    kernels = tuple(settings["kernels"]) if "kernels" in settings else None
    run = KernelRun(source=source, kernels=kernels, flush_l2=settings.get("flush_l2", True), **common)
    content = {"preset": run.preset.as_dict(), "runs": [run.key], "options": run.options}
    return Asked({"": run}, content)


@lru_cache(OPEN_TRACES)
def _trace(path: str, _mtime_ns: int) -> Archive:
    return open_archive(path)


def _check_taken(kind: Kind, settings: dict[str, Any]) -> None:
    """Fields of another kind are a mistake, not something to ignore."""
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


def _asked_scenario(
    gemm: GemmSource, workload_gpus: int, options: dict[str, Any], common: dict[str, Any]
) -> AskedScenario:
    """A scenario of a GEMM, for the number of GPUs that its workload has, 0 = the option has it.

    Raises:
        UserError: no or two numbers of GPUs, an unknown configuration, a plan that is none.
    """
    if bool(workload_gpus) == ("gpus" in options):
        raise StudyError("t3.gpus: give it with a kernel without workload=; a workload has its own")
    gpus = workload_gpus or options["gpus"]
    configurations = options.get("configurations", list(CONFIGURATIONS))
    unknown = [name for name in configurations if name not in CONFIGURATIONS]
    if unknown or not configurations:
        raise StudyError(f"t3.configurations: found {configurations}, allowed are {', '.join(CONFIGURATIONS)}")
    sizes, explicit = options.get("chunks"), options.get("explicit", False)
    scenario = Scenario(
        *(common["preset"], gemm.problem, gemm.kernel, gpus),
        chunks=None if sizes is None else chunks_of(sizes),
        explicit=explicit,
        interval_ps=common["interval_ps"],
        own=load_plan(options["plan"]) if "plan" in options else None,
        policy=common["policy"],
    )
    content = {"gpus": gpus, "configurations": configurations, "chunks": sizes, "explicit": explicit}
    content |= {"interval_ps": scenario.interval_ps} if scenario.interval_ps else {}
    content |= {"plan_sha256": scenario.own.digest} if scenario.own else {}
    content |= {"problem": asdict(gemm.problem), "kernel": asdict(gemm.kernel)}
    content |= {"policy_sha256": policy_digest(scenario.policy)} if scenario.policy else {}
    return AskedScenario(scenario, configurations, content)
