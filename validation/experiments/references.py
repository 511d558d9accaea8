"""Experiments on single units and single kernels, for comparison with other simulators and hardware counters.

The modules of `validation.against` run the same simulations for their tables.
"""

import msgspec

from sim.presets import load_preset
from sim.run.dram import channel_spec
from sim.run.run import KernelRun, Run
from tracer.accelsim.reader import open_accelsim
from traces.units import period_ps
from validation.against import accelsim_cycles, dram_reference, gemm_counters
from validation.experiments.experiment import Experiment, MeasuredRun, Results, figures_of


class HbmChannel(Experiment, tag="hbm_channel", frozen=True, kw_only=True):
    """One HBM channel on reference streams. rows: `setting/map/stream` as in `references/hbm2_channel.csv`."""

    rows: tuple[str, ...]

    def runs(self) -> list[Run]:
        preset = load_preset(gemm_counters.PRESET)
        return [
            MeasuredRun(
                preset=preset,
                name=f"HBM channel, {row}",
                requests=1e6,
                measure=dram_reference.figures,
                given=(row,),
                instead={"channel": msgspec.to_builtins(channel_spec(bank_map=row.split("/")[1]))},
            )
            for row in self.rows
        ]

    def answers(self, results: Results) -> dict[str, float]:
        return figures_of(self.runs(), results)


class GemmCounters(Experiment, tag="gemm_counters", frozen=True, kw_only=True):
    """Sector counts of tensor-core GEMMs. kernels: rows of `references/v100_gemm_counters.csv`."""

    kernels: tuple[str, ...]

    def runs(self) -> list[Run]:
        measured = {
            each.name: each for each in reversed(gemm_counters.CASES)
        }  # of several cases with one name the first is kept: the kernel itself
        preset = load_preset(gemm_counters.PRESET)
        return [
            MeasuredRun(
                preset=preset,
                name=f"counters of {name}",
                requests=1e7,
                measure=gemm_counters.figures,
                given=(measured[name],),
            )
            for name in self.kernels
        ]

    def answers(self, results: Results) -> dict[str, float]:
        return figures_of(self.runs(), results)


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
