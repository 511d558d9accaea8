"""Experiment: software overlap: a GEMM and a reduce-scatter at once, each on compute units (CUs) of its own.

Three times are compared: one after the other on all CUs; each alone on its share of the CUs (what the split costs); and
both at once (what their contention in L2 and DRAM adds).
"""

from dataclasses import dataclass, replace
from functools import partial

from sim.presets import load_preset
from sim.run.run import SideBySideRun
from sim.scenario.scenario import Scenario
from traces.units import PS_PER_US
from validation.experiments.cases import Workbench
from validation.experiments.parts import TIMED_PARTS, part_task
from validation.experiments.sublayers import PERCENT, geomean
from validation.experiments.task import Experiment, Outcome, Outcomes, Task


@dataclass(frozen=True)
class _Split:
    """Tasks of one case and split."""

    both: Task
    gemm_share: Task
    rs_share: Task


class CuSplit(Experiment, tag="cu_split", frozen=True, kw_only=True):
    """Cases in several splits.

    Attributes:
        cases: `model/layer/tpN`.
        collective_cus: CUs that the reduce-scatter takes from the GEMM, one split each.
        bench: the machine.
    """

    cases: tuple[str, ...]
    collective_cus: tuple[int, ...]
    bench: Workbench = Workbench()

    def tasks(self) -> list[Task]:
        tasks = []
        for case in self.bench.cases(self.cases).values():
            tasks += [part_task(case, part) for part in ("gemm", "rs", "ag")]
            for cus in self.collective_cus:
                split = self._split(case, cus)
                tasks += [split.both, split.gemm_share, split.rs_share]
        return tasks

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        """Slow-downs in percent, and speed-ups over Sequential with the all-gather counted."""
        answers: dict[str, float] = {}
        speedups: dict[str, list[float]] = {}
        for name, case in self.bench.cases(self.cases).items():
            gemm, scatter, gather = (outcomes[part_task(case, part).key]["time_ps"] for part in ("gemm", "rs", "ag"))
            sequential = gemm + scatter + gather
            answers[f"{name}/ideal/speedup"] = sequential / (max(gemm, scatter) + gather)
            speedups.setdefault("ideal", []).append(answers[f"{name}/ideal/speedup"])
            for cus in self.collective_cus:
                split = self._split(case, cus)
                both = outcomes[split.both.key]
                alone = [outcomes[task.key]["time_ps"] for task in (split.gemm_share, split.rs_share)]
                at = f"{case.preset.machine.cu.count - cus}-{cus}"
                answers |= {
                    f"{name}/{at}/gemm_share_slowdown": PERCENT * (alone[0] / gemm - 1),
                    f"{name}/{at}/rs_share_slowdown": PERCENT * (alone[1] / scatter - 1),
                    f"{name}/{at}/gemm_slowdown": PERCENT * (both["gemm_end_ps"] / gemm - 1),
                    f"{name}/{at}/rs_slowdown": PERCENT * (both["rs_end_ps"] / scatter - 1),
                    f"{name}/{at}/time_us": (both["time_ps"] + gather) / PS_PER_US,
                    f"{name}/{at}/share_speedup": sequential / (max(alone) + gather),
                    f"{name}/{at}/speedup": sequential / (both["time_ps"] + gather),
                }
                speedups.setdefault(at, []).append(answers[f"{name}/{at}/speedup"])
        return answers | {f"geomean/{at}/speedup": geomean(each) for at, each in speedups.items()}

    def _split(self, case: Scenario, cus: int) -> _Split:
        gemm_cus = case.preset.machine.cu.count - cus
        fewer = load_preset(self.bench.preset, (*self.bench.overrides, f"cu.count={gemm_cus}"))
        few = load_preset(self.bench.preset, (*self.bench.overrides, f"collective.cus={cus}"))
        title = f"GEMM on {gemm_cus} CUs beside a reduce-scatter on {cus}"
        gemm = part_task(case, TIMED_PARTS[0])
        return _Split(
            Task(_both_run(case, cus).key, title, gemm.cost, partial(_both, case, cus)),
            part_task(replace(case, preset=fewer), "gemm"),
            part_task(replace(case, preset=few), "rs"),
        )


def _both_run(case: Scenario, cus: int) -> SideBySideRun:
    return SideBySideRun(
        preset=case.preset, source=case.source(), chunks=case.cut(), kind="reduce_scatter", collective_cus=cus
    )


def _both(case: Scenario, cus: int) -> Outcome:
    found = _both_run(case, cus).execute()
    ends = {"gemm_end_ps": found.figures["gemm_end_ps"], "rs_end_ps": found.figures["collective_end_ps"]}
    return {"time_ps": found.time_ps, **ends}
