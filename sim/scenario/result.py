"""The result of a scenario: figures of a sub-layer in each configuration of the paper, computed from its runs.

    Sequential              GEMM, then ring reduce-scatter (RS) on CUs, then ring all-gather (AG)
    T3                      GEMM fused with RS (Tracker, DMA, near-memory updates), round-robin arbitration, then AG
    T3-MCA                  the same with communication-aware arbitration
    Ideal-GEMM-RS-Overlap   max(GEMM alone, RS alone) + AG
    Ideal-RS+NMC            max(GEMM alone, RS alone with near-memory updates) + AG

and of what software does today. The first is the collective of a library (`sim.collective.library`), the others need a
link between any two GPUs (`sim.collective.software`):

    Library                 GEMM, then an all-reduce of NCCL or RCCL, on the links and with the launch of its row
    Decomposed              a GEMM for each chunk; copy engines send a chunk under the next GEMM; add, then AG
    Copy-engines            one GEMM; its flags start a copy of each chunk; add, then AG by copy engines
    FLUX                    one GEMM that stores to the owners; add, then AG

and of a switch that adds and copies (`sim.collective.nvls`, `link.in_switch`):

    NVLS                    GEMM, then an all-reduce on CUs: the switch adds, and copies the sums as they come
    SP-NVLS                 GEMM, then a reduce-scatter and an all-gather in the switch (sequence parallelism)
    T3-NVLS                 a GEMM whose stores are added in the switch, in place of near memory; then the switch copies

To add is a kernel of the owner, after the GEMM and all arrivals: it reads its sum and N - 1 receive buffers.

A run is one simulation (RUNS). NEEDS lists the runs of each configuration; configurations share runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.hw.request import Stream
from sim.presets import Preset
from sim.run.html_table import html_table
from sim.run.result import RunResult
from tracer.gemm.kernel import GemmKernel
from tracer.gemm.problem import GemmProblem
from traces.errors import UserError
from traces.units import ps_to_ns

SEQUENTIAL, T3, T3_MCA = "Sequential", "T3", "T3-MCA"
IDEAL, IDEAL_NMC = "Ideal-GEMM-RS-Overlap", "Ideal-RS+NMC"
LIBRARY, DECOMPOSED, COPY_ENGINES, FLUX = "Library", "Decomposed", "Copy-engines", "FLUX"
NVLS, SP_NVLS, T3_NVLS = "NVLS", "SP-NVLS", "T3-NVLS"
CONFIGURATIONS = (SEQUENTIAL, T3, T3_MCA, IDEAL, IDEAL_NMC)
"""Those of the paper. They are simulated if nothing else is asked for."""
SOFTWARE = (DECOMPOSED, COPY_ENGINES, FLUX)
SWITCH_CONFIGURATIONS = (NVLS, SP_NVLS, T3_NVLS)
"""Those that need a switch that adds and copies."""
ALL_CONFIGURATIONS = (*CONFIGURATIONS, LIBRARY, *SOFTWARE, *SWITCH_CONFIGURATIONS)
RUNS = (
    *("gemm", "rs", "rs_nmc", "ag", "t3", "t3_mca", "decomposed", "copy_engines", "flux", "add", "ag_copies"),
    *("ar_nvls", "ag_nvls", "t3_nvls", "ar_library", "rs_nvls"),
)
"""Names of the runs from which the configurations are computed."""
FUSED_RUNS = ("t3", "t3_mca")
"""A GEMM with T3."""
NEEDS = {
    SEQUENTIAL: ("gemm", "rs", "ag"),
    T3: ("t3", "ag"),
    T3_MCA: ("t3_mca", "ag"),
    IDEAL: ("gemm", "rs", "ag"),
    IDEAL_NMC: ("gemm", "rs_nmc", "ag"),
    LIBRARY: ("gemm", "ar_library"),
    DECOMPOSED: ("decomposed", "add", "ag"),
    COPY_ENGINES: ("copy_engines", "add", "ag_copies"),
    FLUX: ("flux", "add", "ag"),
    NVLS: ("gemm", "ar_nvls"),
    SP_NVLS: ("gemm", "rs_nvls", "ag_nvls"),
    T3_NVLS: ("t3_nvls", "ag_nvls"),
}
"""Runs of each configuration. The last one is the all-gather, of REDUCE_AT_ONCE the all-reduce."""
BY_COPIES = ("ag_copies",)
"""All-gathers that take no CUs."""
REDUCE_AT_ONCE = (LIBRARY, NVLS)
"""Those with an all-reduce in one kernel."""
COLUMN = "simulation"
"""Key of `point` with the name of a run, in archives."""
WHOLE = "all"
"""Value of `COLUMN` for the row of the configurations."""
TRAFFIC = ("gemm_reads", "gemm_writes", "rs_reads", "rs_writes", "ag_reads", "ag_writes")


@dataclass
class Configuration:
    """Figures of one configuration, per GPU.

    Attributes:
        time_ps: whole time.
        gemm_ps, rs_ps, ag_ps: times of the phases. A fused kernel has gemm_ps = rs_ps = its time. If the owner adds
            afterwards, rs_ps ends with that. REDUCE_AT_ONCE: rs_ps is 0, ag_ps that of the all-reduce.
        dram_bytes: bytes by the names in TRAFFIC.
        link_bytes: bytes sent.
        exactly_once: the ledgers of all its runs agree with their plans.
    """

    time_ps: int
    gemm_ps: int
    rs_ps: int
    ag_ps: int
    dram_bytes: dict[str, int]
    link_bytes: int
    exactly_once: bool


@dataclass
class ScenarioResult:
    """A sub-layer in all configurations.

    Attributes:
        preset: the machine.
        problem, kernel, gpus: the workload.
        runs: RUNS name -> RunResult.
        output_bytes: size of the output of one GPU (D).
        zeroing_bytes: writes that clear the output before a fused GEMM, mean over the GPUs; in no configuration.
        interval_ps: of the time series of the runs, 0 = none.
        plan_sha256: of a user's plan, "" = the plan of the machine's topology.
        input: the workload as plain values: the GEMM, the number of GPUs, the chunks.
        options: the options as plain values: explicit, the digest of a user's policy.
        configurations: name -> its figures.
        from_store: names of the runs that came from the store.
    """

    preset: Preset
    problem: GemmProblem
    kernel: GemmKernel
    gpus: int
    runs: dict[str, RunResult]
    output_bytes: int
    zeroing_bytes: int
    interval_ps: int = 0
    plan_sha256: str = ""
    input: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    configurations: dict[str, Configuration] = field(default_factory=dict)
    from_store: tuple[str, ...] = ()

    def speedup(self, name: str) -> float:
        """Time of Sequential / time of this configuration.

        Raises:
            UserError: the scenario lacks one of the two.
        """
        for needed in (name, SEQUENTIAL):
            if needed not in self.configurations:
                names = ", ".join(self.configurations)
                raise UserError(f"speedup of {name}: the scenario has no {needed}; its configurations are {names}")
        return self.configurations[SEQUENTIAL].time_ps / self.configurations[name].time_ps

    def _repr_html_(self) -> str:
        """Times and speed-ups of the configurations, for a notebook."""
        plain = self.as_dict()["configurations"]
        columns = ("time_ns", "gemm_ns", "rs_ns", "ag_ns", "speedup")
        rows = [(name, *(figures[column] for column in columns)) for name, figures in plain.items()]
        return html_table(self._title(), ("configuration", *columns), rows)

    def __repr__(self) -> str:
        return f"<ScenarioResult: {self._title()}: {', '.join(self.configurations)}>"

    def _title(self) -> str:
        return f"GEMM {self.problem.m} x {self.problem.n} x {self.problem.k} on {self.gpus} GPUs, {self.preset.name}"

    def as_dict(self) -> dict:
        """Plain values for JSON: `configurations` and `workload`."""
        return {
            "workload": {
                **{name: getattr(self.problem, name) for name in ("m", "n", "k")},
                "gpus": self.gpus,
                "output_bytes": self.output_bytes,
                "zeroing_bytes": self.zeroing_bytes,
                **({"plan_sha256": self.plan_sha256} if self.plan_sha256 else {}),
            },
            "preset": self.preset.name,
            "interval_ps": self.interval_ps,
            "configurations": {name: self._configuration_dict(name) for name in self.configurations},
            "runs": {name: run.figures for name, run in self.runs.items() if run.figures},
        }

    def _configuration_dict(self, name: str) -> dict:
        chosen = self.configurations[name]
        return {
            "time_ns": ps_to_ns(chosen.time_ps),
            "gemm_ns": ps_to_ns(chosen.gemm_ps),
            "rs_ns": ps_to_ns(chosen.rs_ps),
            "ag_ns": ps_to_ns(chosen.ag_ps),
            "speedup": self.speedup(name) if SEQUENTIAL in self.configurations else None,
            "dram_bytes": chosen.dram_bytes,
            "link_bytes": chosen.link_bytes,
            "ledger": {"exactly_once": chosen.exactly_once, "wrong": self._wrong(name)},
        }

    def _wrong(self, name: str) -> list[str]:
        return [f"{run}: {fault}" for run in NEEDS[name] for fault in self.runs[run].wrong]


def put_together(name: str, runs: Mapping[str, RunResult]) -> Configuration:
    """Compute a configuration from its runs (NEEDS)."""
    needed = [runs[run] for run in NEEDS[name]]
    *before, gather = needed
    gemm_ps = before[0].time_ps
    if name in (SEQUENTIAL, SP_NVLS, IDEAL, IDEAL_NMC):
        rs_ps = before[1].time_ps
        overlapped_ps = max(gemm_ps, rs_ps) if name in (IDEAL, IDEAL_NMC) else gemm_ps + rs_ps
    elif name in REDUCE_AT_ONCE:
        rs_ps, overlapped_ps = 0, gemm_ps
    else:
        rs_ps = overlapped_ps = sum(run.time_ps for run in before)
    return Configuration(
        time_ps=overlapped_ps + gather.time_ps,
        gemm_ps=gemm_ps,
        rs_ps=rs_ps,
        ag_ps=gather.time_ps,
        dram_bytes=dict(zip(TRAFFIC, _by_phase([run.dram_bytes for run in needed]), strict=True)),
        link_bytes=sum(run.link_bytes for run in needed),
        exactly_once=all(run.exactly_once for run in needed),
    )


def _by_phase(runs: Sequence[np.ndarray]) -> list[int]:
    """Bytes in the order of TRAFFIC. runs: i8 [4] of each, per Stream: GEMM or fused kernel, ..., all-gather."""
    first, *between, gather = runs
    own, others = [Stream.COMPUTE_READ, Stream.COMPUTE_WRITE], [Stream.COMM_READ, Stream.COMM_WRITE]
    # lines of a collective that leave L2 later (`collective.cache` = allocate) are writes of compute
    scattered = sum((run[own] + run[others] for run in between), first[others])
    return [int(count) for count in (*first[own], *scattered, *(gather[own] + gather[others]))]
