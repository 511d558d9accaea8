"""A run: the complete description of one simulation, and the key of its result.

    KernelRun       the kernels of a trace, or a GEMM, on one GPU
    TogetherRun     kernels at the same time on one GPU, on disjoint sets of CUs (sim.run.together)
    GpusRun         several GPUs: a collective, T3, a GEMM beside a collective (sim.run.gpus_run)

The key is a hash of everything that decides the result. Values of the machine that this kind of run does not read are
not in it, nor are names, titles and sources of values. `sim.run.store` stores results under this key.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from sim.host.gpu import Progress
from sim.host.state import SavePoints
from sim.presets import Preset
from sim.run.code import code_key, policy_key
from sim.run.inputs import chosen_kernels, gemm_input, sequence_input
from sim.run.one_gpu import simulate
from sim.run.policy_file import bound_file, is_bound, policy_digest
from sim.run.result import RunResult
from sim.spec import Arbiter
from tracer.compile.fingerprint import ROOMS
from tracer.gemm.source import GemmSource
from tracer.sequence import CommandSequence
from traces.checksum import canonical_json
from traces.schema import LINE_BYTES
from traces.source import KernelSource, TraceSource, stored_warnings, warnings_of

OF_SEVERAL_GPUS = ("link.", "network.", "tracker.", "dma.", "mca.", "collective.")
"""Units that a single GPU does not have, or that only communication uses."""
OF_PROGRAMS = ("power.",)
"""What only programs of many runs read (`sim.scenario.power`)."""


@dataclass(frozen=True, kw_only=True)
class Run(ABC):
    """One simulation.

    Attributes:
        preset: the machine.
        interval_ps: of the time series, 0 = none.
        policy: path of the user's arbiter, "" = the arbiter that this process has bound, if any.
    """

    preset: Preset
    interval_ps: int = 0
    policy: str = ""

    def __getstate__(self) -> dict[str, Any]:
        """The fields only. Another process computes key and code from its own files."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    @abstractmethod
    def title(self) -> str:
        """One line that describes the run."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """Estimate of the line requests. Runs with a high cost start first."""

    def simulated_gpus(self) -> int:
        """Number of GPUs that are simulated, if one represents all where the user did not ask for every GPU."""
        return 1

    @abstractmethod
    def input(self) -> dict[str, Any]:
        """The workload as plain values."""

    def deciding_input(self) -> dict[str, Any]:
        """The part of `input()` that decides the result."""
        return self.input()

    @abstractmethod
    def own_options(self) -> dict[str, Any]:
        """The options of this kind of run as plain values."""

    @abstractmethod
    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        """Simulate the run and return the bare result; `execute` adds the description."""

    def arbiter(self) -> Arbiter:
        """The arbiter of the DRAM queues in this run."""
        return self.preset.machine.hbm.arbiter

    def modules(self) -> tuple[str, ...]:
        """Modules whose code decides the result, together with all their imports."""
        return (type(self).__module__,)

    def reads(self, field: str) -> bool:
        """Can this value of the machine decide the result?"""
        return not field.startswith(OF_PROGRAMS)

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options as plain values, with the digest of the user's policy if the run uses one."""
        return self.own_options() | ({"policy_sha256": policy_digest(self._arbiter_file)} if self._arbiter_file else {})

    @property
    def _arbiter_file(self) -> str:
        """Path of the user's arbiter if the run uses one; "" = it does not, or this process has bound none."""
        return (self.policy or bound_file()) if self.arbiter() == Arbiter.USER else ""

    @property
    def foreign_policy(self) -> str:
        """Path of the arbiter that this run needs and this process has not bound; "" = none."""
        needed = self.policy if self.arbiter() == Arbiter.USER else ""
        return needed if needed and not is_bound(needed) else ""

    def identity(self) -> dict[str, Any]:
        """Everything except code that decides the result, as plain values."""
        machine = self.preset.values() | {"hbm.arbiter": self.arbiter().name.lower()}
        return {
            "kind": type(self).__name__,
            "input": self.deciding_input(),
            "options": self.own_options(),
            "machine": {field: value for field, value in machine.items() if self.reads(field)},
            "interval_ps": self.interval_ps,
            "policy": policy_key(self._arbiter_file) if self._arbiter_file else "",
        }

    @cached_property
    def code(self) -> str:
        """Hash of the code that decides the result."""
        return code_key(*self.modules())

    @cached_property
    def key(self) -> str:
        """SHA-256 of everything that decides the result: code and identity."""
        return sha256(canonical_json([self.code, self.identity()]).encode()).hexdigest()

    def execute(self, progress: Progress | None = None, save_points: SavePoints | None = None) -> RunResult:
        """Simulate the run.

        Args:
            progress: called with (kernel, workgroups done, workgroups).
            save_points: where the state can be saved.

        Raises:
            UserError: a workload that this machine cannot run, a deadlock.
        """
        return self.signed(self.simulated(progress, save_points))

    def signed(self, result: RunResult) -> RunResult:
        """The result with the description of this run: machine with sources of values, input, options, code."""
        return replace(
            result,
            preset=self.preset,
            input=self.input(),
            options=self.options,
            interval_ps=self.interval_ps,
            code=self.code,
            point={},
        )


@dataclass(frozen=True, kw_only=True)
class OneGpuRun(Run):
    """Base of the runs on one GPU.

    Attributes:
        flush_l2: write back and empty L2 after every kernel, or after kernels at once.
    """

    flush_l2: bool = True

    @abstractmethod
    def makers(self) -> Iterable[object]:
        """The trace and its kernels. The modules of their classes decide the result too."""

    def modules(self) -> tuple[str, ...]:
        modules = {type(maker).__module__ for maker in self.makers()}
        return (*super().modules(), *sorted(module for module in modules if module.partition(".")[0] in ROOMS))

    def reads(self, field: str) -> bool:
        return super().reads(field) and (self.arbiter() == Arbiter.USER or not field.startswith(OF_SEVERAL_GPUS))


@dataclass(frozen=True, kw_only=True)
class KernelRun(OneGpuRun):
    """Kernels of a trace on one GPU, one after the other.

    Attributes:
        source: the trace.
        kernels: numbers of the kernels to run, counted from 0, each once; None = all.
        accuracy: largest relative error of time that the run may state; 0 = all is simulated. With an accuracy, long
            kernels are simulated in part (`sim.run.extrapolation`).
    """

    source: TraceSource
    kernels: tuple[int, ...] | None = None
    accuracy: float = 0.0

    @cached_property
    def _gemm(self) -> GemmSource | None:
        """The GEMM, if the trace consists of one GEMM only."""
        commands = list(self.source.commands()) if isinstance(self.source, CommandSequence) else []
        return commands[0] if len(commands) == 1 and isinstance(commands[0], GemmSource) else None

    @property
    def title(self) -> str:
        workload = self._gemm.info.name if self._gemm else "trace"
        return f"{workload} on {self.preset.name}"

    @property
    def cost(self) -> float:
        if self._gemm:
            return gemm_cost(self._gemm)
        return kernels_cost(chosen_kernels(self.source, self.kernels))

    @cached_property
    def _input(self) -> dict[str, Any]:
        described: dict[str, Any] = {"trace": self.source.fingerprint()}
        if self._gemm:
            return described | gemm_input(self._gemm)
        if isinstance(self.source, CommandSequence):
            return described | sequence_input(self.source, self.kernels)
        return described

    def input(self) -> dict[str, Any]:
        return self._input

    def deciding_input(self) -> dict[str, Any]:
        if self._gemm:
            return gemm_input(self._gemm)  # the fingerprint differs between lda = None and lda = k
        stored = stored_warnings(self.source)  # the fingerprint of an archive is that of its events
        warned = {"warnings": stored} if stored else {}
        return {name: value for name, value in self._input.items() if name != "text"} | warned

    def own_options(self) -> dict[str, Any]:
        kernels = None if self.kernels is None else sorted(self.kernels)
        return {"kernels": kernels, "flush_l2": self.flush_l2} | ({"accuracy": self.accuracy} if self.accuracy else {})

    def makers(self) -> Iterable[object]:
        return [self.source, *(self.source.commands() if isinstance(self.source, CommandSequence) else ())]

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        settings: dict[str, Any] = {"flush_l2": self.flush_l2, "interval_ps": self.interval_ps, "progress": progress}
        settings |= {"kernels": self.kernels, "save_points": save_points, "accuracy": self.accuracy}
        result = simulate(self.source, self.preset, **settings)
        result.warnings = tuple(warnings_of(self.source))
        return result


def gemm_run(preset: Preset, source: GemmSource, interval_ps: int = 0, policy: str = "") -> KernelRun:
    """A GEMM on one GPU. Its dirty lines are flushed at the end; the flush is in the traffic, not in the time (D13)."""
    return KernelRun(preset=preset, source=CommandSequence([source]), interval_ps=interval_ps, policy=policy)


def kernels_cost(kernels: Iterable[KernelSource]) -> float:
    """Estimate of the line requests of any kernels."""
    infos = [kernel.info for kernel in kernels]
    return float(sum(LINE_BYTES * info.workgroups * info.warps_per_workgroup for info in infos))


def gemm_cost(source: GemmSource) -> float:
    """Estimate of the line requests."""
    problem, kernel = source.problem, source.kernel
    operands = problem.m * problem.n * problem.k * problem.a_bytes * (1 / kernel.tile_m + 1 / kernel.tile_n)
    return operands / LINE_BYTES + 2 * problem.output_bytes / LINE_BYTES
