"""Run experiments and compare the claims with their answers."""

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
    """What has been found.

    Attributes:
        experiments: all that there are, by name.
        answers: of those whose runs have ended.
        results: of their runs, by key.
        failed: experiment -> why.
        rows: claims.
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
    """Run the quick experiments, with `full` all of them, or those named; what the store has is not run again.

    Other experiments are answered too if the store has all their outcomes.

    Args:
        store: of finished runs.
        full, only: which experiments.
        workers, fresh, progress: see `sim.run.runner.run_all`.
        experiments, claims: None = those that come with t3sim.

    Raises:
        UserError: an unknown experiment, or a claim that no experiment answers.
    """
    experiments = load_experiments() if experiments is None else experiments
    claims = load_claims() if claims is None else claims
    check_names(claims, experiments, only)
    runs = {name: each.runs() for name, each in experiments.items()}
    asked = [name for name, each in experiments.items() if (name in only if only else full or not each.full)]
    wanted = [run for name in asked for run in runs[name]]
    found = Findings(experiments)
    with reserved(store, wanted) as keeping:
        outcomes = run_all(wanted, keeping, workers=workers, fresh=fresh, progress=progress)
        for name, each in experiments.items():
            why = [reason for run in runs[name] if (reason := _trouble(run, outcomes))]
            if why:
                found.failed[name] = why[0]
            elif _complete(runs[name], found.results, keeping):
                found.answers[name] = each.answers(found.results)
    check_answers(claims, found)
    found.rows = compare(claims, found.answers, list(found.failed))
    return found


def check_names(claims: Sequence[Claim], experiments: Mapping[str, Experiment], only: Sequence[str]) -> None:
    """Refuse names of experiments that do not exist."""
    for name in only:
        if name not in experiments:
            raise UserError(f"--only {name}: no such experiment; there are {', '.join(experiments)}")
    for claim in claims:
        if claim.experiment not in experiments and claim.experiment != OVER_CLAIMS:
            raise UserError(f"claim {claim.id}: no experiment {claim.experiment!r}; there are {', '.join(experiments)}")


def check_answers(claims: Sequence[Claim], found: Findings) -> None:
    """Refuse a claim that asks an experiment for what it does not answer.

    A claim that is only shown may have no answer.
    """
    for claim in claims:
        given = found.answers.get(claim.experiment)
        if given is None:
            continue
        if claim.answer not in given and (claim.tolerance is not None or claim.group):
            raise UserError(f"claim {claim.id}: experiment {claim.experiment} has no answer {claim.answer!r}")


def _trouble(run: Run, outcomes: Outcomes) -> str:
    """Why a run has no result, "" where it has one or was not asked for."""
    return outcomes.failed.get(run.key) or outcomes.lost.get(run.key, "")


def _complete(runs: Sequence[Run], results: dict[str, RunResult], store: Store) -> bool:
    """Is everything there? What the store has joins the results."""
    for run in runs:
        if run.key not in results:
            kept = store.get(run.key)
            if kept is None:
                return False
            results[run.key] = run.signed(kept)
    return True
