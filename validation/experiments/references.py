"""Experiments on single units and single kernels, for comparison with other simulators and hardware counters.

The modules of `validation.against` run the same simulations for their tables.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from sim.presets import load_preset
from sim.run.dram import channel_spec
from sim.run.run import KernelRun, Run
from tracer.accelsim.reader import open_accelsim
from traces.units import period_ps
from validation.against import accelsim_cycles, dram_reference, gemm_counters
from validation.experiments.experiment import Experiment, FiguresRun, Results
from validation.experiments.sublayers import PERCENT


@dataclass(frozen=True, kw_only=True)
class ChannelRun(FiguresRun):
    """One HBM channel on a reference stream. It reads no value of the preset.

    row: `setting/map/stream` as in `references/hbm2_channel.csv`.
    """

    row: str

    def input(self) -> dict[str, Any]:
        return {"row": self.row, "channel": msgspec.to_builtins(channel_spec(bank_map=self.row.split("/")[1]))}

    def reads(self, field: str) -> bool:
        return False

    def modules(self) -> tuple[str, ...]:
        return (dram_reference.__name__, __name__)

    def figures(self) -> dict[str, float]:
        config, _, stream = self.row.rpartition("/")
        ours = dram_reference.our_result(config, stream)
        return {
            "bandwidth_GBps": ours.bandwidth_GBps,
            "row_hit_percent": PERCENT * ours.row_hit_rate,
            "avg_read_latency_ns": ours.avg_read_latency_ns,
        }


@dataclass(frozen=True, kw_only=True)
class CountersRun(FiguresRun):
    """Sector counts of a measured GEMM."""

    measured: gemm_counters.Case

    def input(self) -> dict[str, Any]:
        return {"problem": asdict(self.measured.problem), "kernel": asdict(self.measured.kernel)}

    def modules(self) -> tuple[str, ...]:
        return (gemm_counters.__name__, __name__)

    def figures(self) -> dict[str, float]:
        ours = gemm_counters.replay(self.measured)
        return {name: getattr(ours, name) for name in ("l1_read_miss_sectors", "l2_read_miss_sectors")}


class HbmChannel(Experiment, tag="hbm_channel", frozen=True, kw_only=True):
    """One HBM channel on reference streams. rows: `setting/map/stream` as in `references/hbm2_channel.csv`."""

    rows: tuple[str, ...]

    def runs(self) -> list[Run]:
        preset = load_preset(gemm_counters.PRESET)
        return [ChannelRun(preset=preset, name=f"HBM channel, {row}", requests=1e6, row=row) for row in self.rows]

    def answers(self, results: Results) -> dict[str, float]:
        return _prefixed(self.rows, self.runs(), results)


class GemmCounters(Experiment, tag="gemm_counters", frozen=True, kw_only=True):
    """Sector counts of tensor-core GEMMs. kernels: rows of `references/v100_gemm_counters.csv`."""

    kernels: tuple[str, ...]

    def runs(self) -> list[Run]:
        measured = {
            each.name: each for each in reversed(gemm_counters.CASES)
        }  # of several cases with one name the first is kept: the kernel itself
        preset = load_preset(gemm_counters.PRESET)
        return [
            CountersRun(preset=preset, name=f"counters of {name}", requests=1e7, measured=measured[name])
            for name in self.kernels
        ]

    def answers(self, results: Results) -> dict[str, float]:
        return _prefixed(self.kernels, self.runs(), results)


class AccelSimCycles(Experiment, tag="accelsim_cycles", frozen=True, kw_only=True):
    """Cycles on the traces of Accel-Sim runs. traces: rows of `references/accelsim.csv` whose trace is committed."""

    traces: tuple[str, ...]

    def runs(self) -> list[KernelRun]:  # type: ignore[override]
        chosen = {each.name: each for each in accelsim_cycles.cases()}
        return [
            KernelRun(preset=load_preset(chosen[name].preset), source=open_accelsim(chosen[name].trace), flush_l2=False)
            for name in self.traces
        ]

    def answers(self, results: Results) -> dict[str, float]:
        """`<trace>/cycles`: cycles of the core clock, without the launch."""
        answers = {}
        for name, run in zip(self.traces, self.runs(), strict=True):
            time_ps = results[run.key].kernels[0].time_ps
            answers[f"{name}/cycles"] = time_ps / period_ps(run.preset.machine.cu.clock_MHz)
        return answers


def _prefixed(names: Sequence[str], runs: Sequence[Run], results: Results) -> dict[str, float]:
    return {
        f"{name}/{figure}": value
        for name, run in zip(names, runs, strict=True)
        for figure, value in results[run.key].figures.items()
    }
