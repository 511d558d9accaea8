"""Make the simulation of an archive again, on its machine or on a changed one. Results come from or go to the store."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sim.collective.chunks import Chunks
from sim.gemm_facts import gpu_facts
from sim.presets import Preset
from sim.results import RunResult
from sim.run.run import KernelRun
from sim.run.store import Store, run_or_get
from sim.scenario.result import SEQUENTIAL
from sim.scenario.scenario import Scenario, simulate_scenario
from tracer.gemm.source import GemmSource
from tracer.kernels import kernel_text, make_kernel, make_kernels
from tracer.sequence import CommandSequence
from traces.errors import UserError
from traces.source import TraceSource


@dataclass(frozen=True)
class Answer:
    """What is compared. speedup: over Sequential, of a scenario with Sequential."""

    time_ps: int
    speedup: float | None = None


OTHER_KERNELS = ("fused_kernel", "alone_kernel")
"""Fields of a scenario that T3 and Sequential have; its input has them, too."""
Repeat = Callable[[Preset], Answer]
"""Simulate on a machine."""


def repeat_run(run: RunResult, store: Store, trace: TraceSource | None) -> Repeat:
    """Of a run on one GPU. trace: of a run of a trace, which a result knows only by its fingerprint.

    Raises:
        UserError: a run that cannot be made again from the archive alone.
    """
    _check(run)
    if "edges" in run.input:
        raise UserError("explain: one run of a scenario; allowed is the whole archive of t3sim t3, or a run on one GPU")
    if "cus" in run.options:
        raise UserError("explain: kernels that ran at once (--beside); allowed is a run of one kernel after the other")
    source = _source(run, trace)
    kernels = run.options.get("kernels")
    description = KernelRun(
        preset=run.preset,
        source=source,
        kernels=None if kernels is None else tuple(kernels),
        flush_l2=run.options.get("flush_l2", True),
        accuracy=run.options.get("accuracy", 0.0),
    )
    return lambda preset: Answer(run_or_get(replace(description, preset=preset), store).result.time_ps)


def repeat_scenario(row: RunResult, configuration: str, store: Store) -> Repeat:
    """Of a configuration of a scenario. row: `sim.scenario.archive.open_scenario`.

    Raises:
        UserError: a scenario that cannot be made again from the archive alone.
    """
    _check(row)
    source = _gemm(row.input)
    others: dict[str, Any] = {name: _gemm(row.input[name]).kernel for name in OTHER_KERNELS if name in row.input}
    cut = Chunks(row.input["gpus"], tuple(row.input["edges"]))
    case = (row.preset, source.problem, source.kernel, row.input["gpus"], cut)
    scenario = Scenario(*case, explicit=row.options["explicit"], **others)
    wanted = [name for name in (SEQUENTIAL, configuration) if f"{name}.time_ns" in row.figures]

    def answer(preset: Preset) -> Answer:
        found = simulate_scenario(replace(scenario, preset=preset), wanted, store=store)
        speedup = found.speedup(configuration) if SEQUENTIAL in wanted else None
        return Answer(found.configurations[configuration].time_ps, speedup)

    return answer


def _gemm(described: Mapping[str, Any]) -> GemmSource:
    source = make_kernel(kernel_text(described))
    assert isinstance(source, GemmSource)
    return source


def _check(run: RunResult) -> None:
    for given, what in ((run.options.get("policy_sha256"), "policy"), (run.input.get("plan_sha256"), "plan")):
        if given:
            raise UserError(f"explain: this result was made with a {what} of a user, which is not in the archive")


def _source(run: RunResult, trace: TraceSource | None) -> TraceSource:
    text = kernel_text(run.input) or run.input.get("text", "")
    if text and trace is None:
        return CommandSequence(make_kernels(text, gpu_facts(run.preset.machine)), text)
    if trace is None:
        raise UserError("explain: this run replayed a trace, which is not in the archive: name it with --trace")
    if trace.fingerprint() != run.trace_fingerprint:
        raise UserError(
            "--trace: its fingerprint differs from that of the run's trace: name the file that was run (text of "
            "Accel-Sim and the archive imported from it have different fingerprints)"
        )
    return trace
