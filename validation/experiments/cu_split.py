"""Experiment: software overlap. A GEMM and a reduce-scatter run at once, each on its own compute units (CUs).

The answers compare three times: both kernels one after the other on all CUs; each kernel alone on its share of the CUs
(the cost of the split); and both kernels at once (adds the cost of contention in L2 and DRAM).
"""

from dataclasses import replace
from statistics import geometric_mean

from sim.presets import load_preset
from sim.run.gpus_run import SideBySideRun
from sim.run.run import Run
from sim.scenario.scenario import Scenario
from traces.units import PS_PER_US
from validation.experiments.experiment import Experiment, Results
from validation.experiments.sublayers import PERCENT
from validation.experiments.workbench import Workbench, scenario_run

WHOLE = ("gemm", "rs", "ag")


class CuSplit(Experiment, tag="cu_split", frozen=True, kw_only=True):
    """Sub-layers with several splits of the CUs.

    Attributes:
        scenarios: `model/layer/tpN`.
        collective_cus: for each split, the number of CUs of the reduce-scatter; the GEMM has the others.
        bench: the machine.
    """

    scenarios: tuple[str, ...]
    collective_cus: tuple[int, ...]
    bench: Workbench = Workbench()

    def runs(self) -> list[Run]:
        runs = []
        for scenario in self.bench.scenarios(self.scenarios).values():
            runs += [scenario_run(scenario, name) for name in WHOLE]
            for cus in self.collective_cus:
                runs += self._split(scenario, cus)
        return runs

    def answers(self, results: Results) -> dict[str, float]:
        """Slow-downs in percent, and speed-ups over Sequential. The speed-ups include the all-gather."""
        answers: dict[str, float] = {}
        speedups: dict[str, list[float]] = {}
        for name, scenario in self.bench.scenarios(self.scenarios).items():
            gemm, scatter, gather = (results[scenario_run(scenario, run).key].time_ps for run in WHOLE)
            sequential = gemm + scatter + gather
            answers[f"{name}/ideal/speedup"] = sequential / (max(gemm, scatter) + gather)
            speedups.setdefault("ideal", []).append(answers[f"{name}/ideal/speedup"])
            for cus in self.collective_cus:
                both, *shares = (results[run.key] for run in self._split(scenario, cus))
                alone = [share.time_ps for share in shares]
                at = f"{scenario.preset.machine.cu.count - cus}-{cus}"
                answers |= {
                    f"{name}/{at}/gemm_share_slowdown": PERCENT * (alone[0] / gemm - 1),
                    f"{name}/{at}/rs_share_slowdown": PERCENT * (alone[1] / scatter - 1),
                    f"{name}/{at}/gemm_slowdown": PERCENT * (both.figures["gemm_end_ps"] / gemm - 1),
                    f"{name}/{at}/rs_slowdown": PERCENT * (both.figures["collective_end_ps"] / scatter - 1),
                    f"{name}/{at}/time_us": (both.time_ps + gather) / PS_PER_US,
                    f"{name}/{at}/share_speedup": sequential / (max(alone) + gather),
                    f"{name}/{at}/speedup": sequential / (both.time_ps + gather),
                }
                speedups.setdefault(at, []).append(answers[f"{name}/{at}/speedup"])
        return answers | {f"geomean/{at}/speedup": geometric_mean(values) for at, values in speedups.items()}

    def _split(self, scenario: Scenario, cus: int) -> tuple[Run, Run, Run]:
        """Runs of one sub-layer with one split: both kernels at once, the GEMM and the reduce-scatter alone."""
        gemm_cus = scenario.preset.machine.cu.count - cus
        fewer = load_preset(self.bench.preset, (*self.bench.overrides, f"cu.count={gemm_cus}"))
        few = load_preset(self.bench.preset, (*self.bench.overrides, f"collective.cus={cus}"))
        both = SideBySideRun(
            preset=scenario.preset,
            source=scenario.source(),
            chunks=scenario.cut(),
            kind="reduce_scatter",
            collective_cus=cus,
        )
        alone = scenario_run(replace(scenario, preset=fewer), "gemm"), scenario_run(replace(scenario, preset=few), "rs")
        return both, *alone
