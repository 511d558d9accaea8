"""How long runs will take, and how much memory: before they start, within about a factor of two.

The time is the estimated number of line requests (`Run.cost`) at the rate of a small GEMM, which is simulated first. If
the functions of the machine are not compiled yet, or if it takes much memory, the rate is that of a slow computer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

from sim.gemm_facts import gpu_facts
from sim.machine.engine import run_engine
from sim.machine.memory import machine_bytes
from sim.presets import Preset
from sim.run.run import Run, gemm_run
from sim.run.store import Store
from tracer.compile.process import is_compiled
from tracer.gemm.problem import GemmProblem
from tracer.gemm.source import GemmKernel, GemmSource

SLOW_PER_S = 1_000_000.0
"""Line requests per second on a slow computer (assumed; `validation/tables/bench_run.md` has 5 million)."""
COMPILE_S = 90.0
"""Time to compile the machine on a slow computer (assumed)."""
PROCESS_BYTES = 250_000_000
"""Memory of Python and its libraries (assumed)."""
PROBED_BYTES = 2_000_000_000
"""Memory of the largest machine that is made to measure the rate (assumed); ours take below 0.5 GB."""
LOADED = GemmProblem(64, 64, 32)
PROBE = GemmProblem(1024, 1024, 128)


@dataclass(frozen=True)
class RunEstimate:
    """What is known of a run before it starts.

    Attributes:
        name: of the run.
        line_requests: estimate, all simulated GPUs together.
        time_s: wall time; 0 if its result is in the store.
        memory_bytes: of the process.
        in_store: its result needs no simulation.
    """

    name: str
    line_requests: float
    time_s: float
    memory_bytes: int
    in_store: bool


def estimates(runs: Mapping[str, Run], store: Store) -> list[RunEstimate]:
    """One estimate per run. runs: name -> run, all on one machine."""
    preset = next(iter(runs.values())).preset
    per_s = requests_per_s(preset)
    gpu_bytes = sum(machine_bytes(preset.machine).values())
    found = []
    for name, run in runs.items():
        gpus = run.simulated_gpus()
        kept = store.path(run.key).exists()
        requests = run.cost * gpus
        memory_bytes = PROCESS_BYTES + gpus * gpu_bytes
        found.append(RunEstimate(name, requests, 0.0 if kept else requests / per_s, memory_bytes, kept))
    return found


def requests_per_s(preset: Preset) -> float:
    """Line requests that this computer simulates in a second: of a small GEMM on the machine."""
    if not is_compiled(run_engine) or sum(machine_bytes(preset.machine).values()) > PROBED_BYTES:
        return SLOW_PER_S
    kernel = GemmKernel(lanes=gpu_facts(preset.machine).lanes)
    gemm_run(preset, GemmSource(LOADED, kernel)).execute()  # loads the compiled functions
    began_s = perf_counter()
    result = gemm_run(preset, GemmSource(PROBE, kernel)).execute()
    return result.line_requests / (perf_counter() - began_s)
