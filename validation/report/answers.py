"""Run experiments, and compare their answers with the claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sim.run.result import RunResult
from sim.run.run import Run
from sim.run.runner import Outcomes, Progress, reserved, run_all
from sim.run.store import Store
from traces.errors import UserError
from validation.claims.claim import OVER_CLAIMS, Claim, load_claims
from validation.experiments.experiment import Experiment
from validation.experiments.load import load_experiments
from validation.report.compare import Row, compare


@dataclass
class Findings:
    """Answers of experiments, and their comparison with the claims.

    Attributes:
        experiments: name -> experiment, all that exist.
        answers: name of an experiment -> its answers, if all its runs have results.
        results: key of a run -> its result, for the runs of these experiments.
        failed: name of an experiment -> why it failed.
        rows: one comparison per claim.
    """

    experiments: Mapping[str, Experiment]
    answers: dict[str, dict[str, float]] = field(default_factory=dict)
    results: dict[str, RunResult] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)


def answer_claims(
    store: Store,
    *,
    full: bool,
    only: Sequence[str] = (),
    workers: int = 1,
    fresh: bool = False,
    progress: Progress | None = None,
    experiments: Mapping[str, Experiment] | None = None,
    claims: Sequence[Claim] | None = None,
) -> Findings:
    """Run the quick experiments, or with `full` all, or the experiments named in `only`; then compare the claims.

    Runs whose results are in the store are not simulated again. Other experiments have answers too if the store has all
    results of their runs; chosen ones also if some are enough (`Experiment.partial`).

    Args:
        store: finished runs.
        full, only: choice of experiments.
        workers, fresh, progress: see `sim.run.runner.run_all`.
        experiments, claims: None = those of t3sim.

    Raises:
        UserError: an unknown experiment, or a claim without an answer.
    """
    experiments = load_experiments() if experiments is None else experiments
    claims = all_claims(experiments) if claims is None else claims
    check_names(claims, experiments, only)
    runs = {name: each.runs() for name, each in experiments.items()}
    chosen = [name for name, each in experiments.items() if (name in only if only else _unnamed(each, full))]
    wanted = [run for name in chosen for run in runs[name]]
    in_order = any(experiments[name].partial for name in chosen)
    findings = Findings(experiments)
    with reserved(store, wanted) as writable:
        outcomes = run_all(wanted, writable, workers=workers, fresh=fresh, in_order=in_order, progress=progress)
        for name, each in experiments.items():
            why = [reason for run in runs[name] if (reason := _trouble(run, outcomes))]
            complete = _complete(runs[name], findings.results, writable, partial=each.partial)
            if complete or (each.partial and name in chosen):
                findings.answers |= {name: found} if (found := each.answers(findings.results)) else {}
            if why and name not in findings.answers:
                findings.failed[name] = why[0]
    check_answers(claims, findings)
    findings.rows = compare(claims, findings.answers, list(findings.failed))
    return findings


def all_claims(experiments: Mapping[str, Experiment]) -> list[Claim]:
    """Those of `validation/claims`, then those of the references of experiments."""
    return [*load_claims(), *(claim for name, each in experiments.items() for claim in each.claims(name))]


def check_names(claims: Sequence[Claim], experiments: Mapping[str, Experiment], only: Sequence[str]) -> None:
    """Refuse names of experiments that do not exist."""
    for name in only:
        if name not in experiments:
            raise UserError(f"--only {name}: no such experiment; there are {', '.join(experiments)}")
    for claim in claims:
        if claim.experiment not in experiments and claim.experiment != OVER_CLAIMS:
            raise UserError(f"claim {claim.id}: no experiment {claim.experiment!r}; there are {', '.join(experiments)}")


def check_answers(claims: Sequence[Claim], found: Findings) -> None:
    """Refuse a claim whose experiment ran and has no such answer.

    A claim without tolerance and group may have no answer.
    """
    for claim in claims:
        given = found.answers.get(claim.experiment)
        if given is None:
            continue
        if claim.answer not in given and (claim.tolerance is not None or claim.group):
            raise UserError(f"claim {claim.id}: experiment {claim.experiment} has no answer {claim.answer!r}")


def _trouble(run: Run, outcomes: Outcomes) -> str:
    """Why a run has no result; "" = it has one, or it was not requested."""
    return outcomes.failed.get(run.key) or outcomes.lost.get(run.key, "")


def _unnamed(experiment: Experiment, full: bool) -> bool:
    """Is the experiment run where none is named?"""
    return not experiment.named and (full or not experiment.full)


def _complete(runs: Sequence[Run], results: dict[str, RunResult], store: Store, *, partial: bool) -> bool:
    """True if all runs have results. Adds the results in the store to `results`: all with `partial`."""
    complete = True
    for run in runs:
        if run.key not in results:
            kept = store.get(run.key)
            if kept is not None:
                results[run.key] = run.signed(kept)
            elif partial:
                complete = False
            else:
                return False
    return complete
