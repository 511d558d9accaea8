"""Turn the settings of a point into a run, or into a scenario in several configurations.

A new kind needs a member of `Kind`, its fields in `sim.study.fields`, and a branch in `asked_of`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from sim.collective.chunks import chunks_of
from sim.collective.own_plan import load_plan
from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.accuracy import EXACT, accuracy_of
from sim.run.inputs import chosen_kernels
from sim.run.one_gpu import check_numbers
from sim.run.policy_file import bound_file, policy_digest
from sim.run.result import RunResult
from sim.run.run import KernelRun, Run
from sim.scenario.archive import scenario_row, scenario_runs
from sim.scenario.asked import asked_configurations
from sim.scenario.result import COLUMN, CONFIGURATIONS
from sim.scenario.scenario import Scenario, assemble
from sim.spec import Arbiter
from sim.study.fields import KERNEL_PREFIX, PATHS, Kind, StudyError, kernel_of, part_of
from tracer.gemm.kernel import kernel_fields
from tracer.kernels import NamedGemm, make_gemm, make_kernels
from tracer.sequence import CommandSequence
from traces.archive import Archive, open_archive
from traces.units import PS_PER_NS

ONLY_FOR = {
    Kind.REPLAY: ("trace", "kernels", "flush_l2", "interval_ns"),
    Kind.KERNEL: ("kernel", KERNEL_PREFIX, "flush_l2", "accuracy", "interval_ns"),
    Kind.T3: ("kernel", KERNEL_PREFIX, "t3.", "interval_ns"),
}
"""Kind -> its fields beyond run, preset, policy and the machine. A name with a dot at the end is a prefix."""
TAKEN = {name for names in ONLY_FOR.values() for name in names}
OPEN_TRACES = 4


@dataclass(frozen=True)
class Asked:
    """A point that is one run.

    Attributes:
        runs: name -> run.
        content: all inputs that determine the rows in the archive, as plain data.
    """

    runs: dict[str, Run]
    content: dict[str, Any]

    def rows(self, results: Mapping[str, RunResult]) -> list[RunResult]:
        """Rows of the archive. `results`: name of a run -> its result."""
        return list(results.values())


@dataclass(frozen=True)
class AskedScenario:
    """A point that is a scenario. One row has its figures; with a time series each of its runs has one more row.

    Attributes:
        scenario: the sub-layer or layer to simulate.
        configurations: names of the configurations to compute.
        options: all inputs other than the machine, as plain data.
    """

    scenario: Scenario
    configurations: Sequence[str]
    options: dict[str, Any]

    @cached_property
    def runs(self) -> dict[str, Run]:
        return _with_arbiter(self.scenario.runs(self.configurations))

    @property
    def content(self) -> dict[str, Any]:
        return self.options | {
            "preset": self.scenario.preset.as_dict(),
            "runs": [run.key for run in self.runs.values()],
        }

    def rows(self, results: Mapping[str, RunResult]) -> list[RunResult]:
        result = assemble(self.scenario, results, self.configurations)
        row = scenario_row(result)
        if result.interval_ps:
            return [row, *scenario_runs(result)]
        del row.point[COLUMN]  # the only row of its point
        return [row]


def asked_of(settings: dict[str, Any], folder: str) -> Asked | AskedScenario:
    """Load and check everything that the settings of a point name.

    Args:
        settings: field -> value (`sim.study.fields`).
        folder: paths in the settings are relative to it.

    Raises:
        UserError: values that do not fit each other, a missing file.
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
        gemm = make_gemm(text, gpu_facts(common["preset"].machine), **changes)
        return _asked_scenario(gemm, part_of(settings, "t3."), common)
    if kind == Kind.KERNEL:
        text, changes = kernel_of(settings)
        source: CommandSequence | Archive = CommandSequence(
            make_kernels(text, gpu_facts(common["preset"].machine), **changes)
        )
    elif "trace" in settings:
        source = _trace(settings["trace"], os.stat(settings["trace"]).st_mtime_ns)
        if "kernels" in settings:
            check_numbers(settings["kernels"], len(chosen_kernels(source, None)))
    else:
        raise StudyError('trace: missing; run = "replay" replays a trace archive')
    kernels = tuple(settings["kernels"]) if "kernels" in settings else None
    accuracy = accuracy_of(settings.get("accuracy", EXACT))
    flush_l2 = settings.get("flush_l2", True)
    run = KernelRun(source=source, kernels=kernels, flush_l2=flush_l2, accuracy=accuracy, **common)
    content = {"preset": run.preset.as_dict(), "runs": [run.key], "options": run.options}
    return Asked(_with_arbiter({"": run}), content)


@lru_cache(OPEN_TRACES)
def _trace(path: str, _mtime_ns: int) -> Archive:
    return open_archive(path)


def _check_taken(kind: Kind, settings: dict[str, Any]) -> None:
    """Refuse fields of another kind."""
    for name in settings:
        names = {name, name.partition(".")[0] + "."}
        if names & TAKEN and not names & set(ONLY_FOR[kind]):
            raise StudyError(f'{name}: not with run = "{kind}"; allowed are {", ".join(ONLY_FOR[kind])}')


def _preset(settings: dict[str, Any], folder: str) -> Preset:
    """The machine. With a policy its arbiter is `user`."""
    machine = {
        name: value for name, value in settings.items() if "." in name and not name.startswith((KERNEL_PREFIX, "t3."))
    }
    if "policy" in settings:
        if not os.path.isfile(settings["policy"]):
            raise StudyError(f"policy: no file {settings['policy']}")
        machine.setdefault("hbm.arbiter", "user")
    name = settings["preset"]
    loaded = load_preset(os.path.join(folder, name) if name.endswith(".toml") else name, machine)
    return replace(loaded, name=name)


def _with_arbiter(runs: dict[str, Run]) -> dict[str, Run]:
    """The runs. Refuses the arbiter `user` without a policy."""
    if any(run.arbiter() == Arbiter.USER and not (run.policy or bound_file()) for run in runs.values()):
        raise StudyError('hbm.arbiter: found user without a policy, allowed is user with policy = "FILE.py"')
    return runs


def _asked_scenario(gemm: NamedGemm, options: dict[str, Any], common: dict[str, Any]) -> AskedScenario:
    """A scenario of a GEMM. Without a workload, which has its number of GPUs, the option `gpus` gives it.

    Raises:
        UserError: no number of GPUs or two of them, an invalid plan.
    """
    gpus = gemm.gpus_or(options.get("gpus"), "t3.gpus")
    names = options.get("configurations", list(CONFIGURATIONS))
    own = load_plan(options["plan"]) if "plan" in options else None
    configurations = list(asked_configurations(names, common["preset"], own, gpus))
    sizes, explicit = options.get("chunks"), options.get("explicit", False)
    scenario = Scenario.of_gemm(
        *(common["preset"], gemm, gpus),
        chunks=None if sizes is None else chunks_of(sizes),
        explicit=explicit,
        interval_ps=common["interval_ps"],
        own=own,
        policy=common["policy"],
    )
    content = {"gpus": gpus, "configurations": configurations, "chunks": sizes, "explicit": explicit}
    content |= {"interval_ps": scenario.interval_ps} if scenario.interval_ps else {}
    content |= {"plan_sha256": scenario.own.digest} if scenario.own else {}
    content |= {"problem": asdict(scenario.problem), "kernel": kernel_fields(scenario.kernel)}
    content |= {"policy_sha256": policy_digest(scenario.policy)} if scenario.policy else {}
    return AskedScenario(scenario, configurations, content)
