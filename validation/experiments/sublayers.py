"""Experiment: sub-layers in the five configurations, their speed-ups, their DRAM traffic, and the means over all."""

from statistics import geometric_mean

from sim.run.run import Run
from sim.scenario.result import CONFIGURATIONS, IDEAL, IDEAL_NMC, SEQUENTIAL, T3, T3_MCA, ScenarioResult
from sim.scenario.scenario import Scenario, assemble, runs_of
from traces.units import GIGA, MEGA, PS_PER_S, PS_PER_US
from validation.experiments.experiment import Experiment, Results
from validation.experiments.workbench import Workbench, layer_of, scenario_run

MCA_RUN = "t3_mca"
GROUPS: dict[str, tuple[str, ...]] = {"": ("op", "fc2", "fc1", "ip"), "op/": ("op",), "fc/": ("fc2", "fc1")}
"""Prefix of an answer -> layers whose mean it is."""
PERCENT = 100.0


class Sublayers(Experiment, tag="sublayers", frozen=True, kw_only=True):
    """Sub-layers in several configurations.

    Attributes:
        scenarios: `model/layer/tpN`, or `paper` for the 16 sub-layers of the paper.
        configurations: must include Sequential and the ideal overlap.
        bench: machine, kernel, time series.
        mca: what `bench` is in the run of T3-MCA; None = the same.
    """

    scenarios: tuple[str, ...]
    configurations: tuple[str, ...] = CONFIGURATIONS
    bench: Workbench = Workbench()
    mca: Workbench | None = None

    def runs(self) -> list[Run]:
        return [run for _, runs in self._cases().values() for run in runs.values()]

    def answers(self, results: Results) -> dict[str, float]:
        assembly = {
            name: assemble(scenario, {each: results[run.key] for each, run in runs.items()}, self.configurations)
            for name, (scenario, runs) in self._cases().items()
        }
        answers: dict[str, float] = {}
        for name, result in assembly.items():
            answers |= {f"{name}/{key}": value for key, value in scenario_answers(result).items()}
        for prefix, layers in GROUPS.items():
            chosen = [result for name, result in assembly.items() if layer_of(name) in layers]
            if chosen:
                answers |= {f"{prefix}{key}": value for key, value in means(chosen).items()}
        return answers

    def _cases(self) -> dict[str, tuple[Scenario, dict[str, Run]]]:
        """Name -> the scenario, and its runs by name."""
        scenarios = self.bench.scenarios(self.scenarios)
        arbitrated = scenarios if self.mca is None else self.mca.scenarios(self.scenarios)
        of_run = {each: arbitrated if each == MCA_RUN else scenarios for each in runs_of(self.configurations)}
        return {
            name: (scenario, {each: scenario_run(chosen[name], each) for each, chosen in of_run.items()})
            for name, scenario in scenarios.items()
        }


def scenario_answers(result: ScenarioResult) -> dict[str, float]:
    """Times, speed-ups and traffic of one scenario, by configuration."""
    answers: dict[str, float] = {}
    for name, outcome in result.configurations.items():
        answers |= {
            f"{name}/speedup": result.speedup(name),
            f"{name}/loss": loss(result, name),
            f"{name}/time_us": outcome.time_ps / PS_PER_US,
            f"{name}/gemm_us": outcome.gemm_ps / PS_PER_US,
            f"{name}/rs_us": outcome.rs_ps / PS_PER_US,
            f"{name}/ag_us": outcome.ag_ps / PS_PER_US,
            f"{name}/dram_MB": sum(outcome.dram_bytes.values()) / MEGA,
            f"{name}/dram_change": dram_change(result, name, with_ag=True),
            f"{name}/dram_change_without_ag": dram_change(result, name, with_ag=False),
            f"{name}/link_MB": outcome.link_bytes / MEGA,
            f"{name}/exactly_once": float(outcome.exactly_once),
        }
        answers |= {f"{name}/{stream}_MB": moved / MEGA for stream, moved in outcome.dram_bytes.items()}
    answers["output_MB"] = result.output_bytes / MEGA
    answers["zeroing_MB"] = result.zeroing_bytes / MEGA
    for name, run in result.runs.items():
        answers |= {f"{name}/{key}": float(value) for key, value in run.figures.items() if value is not None}
    return answers


def means(results: list[ScenarioResult]) -> dict[str, float]:
    """Geometric means and extremes over scenarios. All need the same configurations."""
    answers: dict[str, float] = {}
    names = list(results[0].configurations)
    for name in names:
        speedups = [result.speedup(name) for result in results]
        losses = [loss(result, name) for result in results]
        answers |= {
            f"geomean/{name}/speedup": geometric_mean(speedups),
            f"max/{name}/speedup": max(speedups),
            f"most/{name}/loss": max(losses),
            f"least/{name}/of_ideal": min(1 / (1 + percent / PERCENT) for percent in losses),
        }
        for key, with_ag in (("dram_change", True), ("dram_change_without_ag", False)):
            changes = [dram_change(result, name, with_ag=with_ag) for result in results]
            answers[f"most/{name}/{key}"] = min(changes)
            answers[f"geomean/{name}/{key}"] = _geomean_of_changes(changes)
    answers["exactly_once"] = float(all(result.configurations[n].exactly_once for result in results for n in names))
    return answers | (comparisons(results) if set(CONFIGURATIONS) <= set(names) else {})


def comparisons(results: list[ScenarioResult]) -> dict[str, float]:
    """How T3-MCA compares with T3, T3 with Sequential, and near-memory updates with none, over scenarios.

    of_T3: time of T3 / time of T3-MCA. gemm_reads_saved, rs_reads_saved: DRAM reads of Sequential / those of T3.
    nmc_gain: saved time of the reduce-scatter in percent of its time with near-memory updates, by N. rs_of_link: time
    of the reduce-scatter / time of its bytes on the link. gemm_of_peak: rate of the GEMM alone / peak of the matrix
    units.
    """
    of_t3 = [_time(result, T3) / _time(result, T3_MCA) for result in results]
    answers = {
        f"geomean/{T3_MCA}/of_T3": geometric_mean(of_t3),
        f"max/{T3_MCA}/of_T3": max(of_t3),
        f"geomean/{T3}/gemm_reads_saved": geometric_mean([_saved(result, "gemm_reads") for result in results]),
        f"max/{IDEAL_NMC}/of_ideal": max(_time(result, IDEAL) / _time(result, IDEAL_NMC) for result in results),
        "mean/rs_of_link": sum(map(_rs_of_link, results)) / len(results),
        "least/gemm_of_peak": min(map(_gemm_of_peak, results)),
    }
    for gpus in sorted({result.gpus for result in results if result.gpus > 2}):
        alike = [result for result in results if result.gpus == gpus]
        gains = [_rs_ps(result, IDEAL) / _rs_ps(result, IDEAL_NMC) for result in alike]
        answers[f"mean/tp{gpus}/nmc_gain"] = PERCENT * (sum(gains) / len(gains) - 1)
        answers[f"geomean/tp{gpus}/rs_reads_saved"] = geometric_mean([_saved(result, "rs_reads") for result in alike])
    return answers


def _time(result: ScenarioResult, name: str) -> int:
    return result.configurations[name].time_ps


def _rs_ps(result: ScenarioResult, name: str) -> int:
    return result.configurations[name].rs_ps


def _saved(result: ScenarioResult, stream: str) -> float:
    """DRAM bytes of a stream in Sequential / those in T3."""
    sequential, fused = (result.configurations[name].dram_bytes[stream] for name in (SEQUENTIAL, T3))
    return sequential / fused


def _rs_of_link(result: ScenarioResult) -> float:
    link = result.preset.machine.link
    sent_bytes = result.output_bytes * (result.gpus - 1) / result.gpus
    return _rs_ps(result, IDEAL) * link.GB_per_s * link.efficiency * GIGA / (sent_bytes * PS_PER_S)


def _gemm_of_peak(result: ScenarioResult) -> float:
    cu = result.preset.machine.cu
    peak_macs_per_s = cu.count * cu.tensor_macs_per_clk * cu.clock_MHz * MEGA
    return result.problem.macs * PS_PER_S / (result.configurations[IDEAL].gemm_ps * peak_macs_per_s)


def loss(result: ScenarioResult, name: str) -> float:
    """Time above that of the ideal overlap, in percent of the latter."""
    return PERCENT * (result.configurations[name].time_ps / result.configurations[IDEAL].time_ps - 1)


def dram_change(result: ScenarioResult, name: str, *, with_ag: bool) -> float:
    """Change of DRAM traffic in percent of Sequential, with or without the traffic of the all-gather."""

    def counted(configuration: str) -> int:
        moved = result.configurations[configuration].dram_bytes
        return sum(moved[stream] for stream in moved if with_ag or not stream.startswith("ag_"))

    return PERCENT * (counted(name) / counted(SEQUENTIAL) - 1)


def _geomean_of_changes(changes: list[float]) -> float:
    return PERCENT * (geometric_mean([1 + change / PERCENT for change in changes]) - 1)
