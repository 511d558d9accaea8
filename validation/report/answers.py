"""Runs experiments and holds the claims against their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from traces.errors import UserError
from validation.claims.claim import OVER_CLAIMS, Claim, load_claims
from validation.experiments.load import load_experiments
from validation.experiments.pool import Progress, run_tasks
from validation.experiments.store import Store
from validation.experiments.task import Experiment, Outcome, Task
from validation.report.compare import Row, compare


@dataclass
class Evaluated:
    """What has been found.

    Attributes:
        experiments: all that there are, by name.
        answers: of those that have run.
        outcomes: of their tasks, by key.
        failed: experiment -> why.
        rows: claims.
    """

    experiments: Mapping[str, Experiment]
    answers: dict[str, dict[str, float]]
    outcomes: dict[str, Outcome]
    failed: dict[str, str]
    rows: list[Row] = field(default_factory=list)


def evaluate_claims(
    store: Store,
    *,
    full: bool,
    only: Sequence[str] = (),
    workers: int = 1,
    progress: Progress | None = None,
    experiments: Mapping[str, Experiment] | None = None,
    claims: Sequence[Claim] | None = None,
) -> Evaluated:
    """Run the quick experiments, with `full` all of them, or those named; what the store has is not run again.

    An experiment that is not asked for is answered where the store holds all that it needs.

    Raises:
        UserError: a name that no experiment has, a claim that nothing can answer.
    """
    experiments = load_experiments() if experiments is None else experiments
    claims = load_claims() if claims is None else claims
    check_names(claims, experiments, only)
    asked = [name for name, each in experiments.items() if (name in only if only else full or not each.full)]
    tasks = {name: each.tasks() for name, each in experiments.items()}
    outcomes, problems = run_tasks((task for name in asked for task in tasks[name]), store, workers, progress)
    found = Evaluated(experiments, {}, outcomes, {})
    for name, each in experiments.items():
        why = [problems[task.key] for task in tasks[name] if task.key in problems]
        if why:
            found.failed[name] = why[0]
        elif _complete(tasks[name], found.outcomes, store):
            found.answers[name] = each.answers(found.outcomes)
    check_answers(claims, found)
    found.rows = compare(claims, found.answers, list(found.failed))
    return found


def check_names(claims: Sequence[Claim], experiments: Mapping[str, Experiment], only: Sequence[str]) -> None:
    """Refuse experiments that do not exist."""
    for name in only:
        if name not in experiments:
            raise UserError(f"--only {name}: no such experiment; there are {', '.join(experiments)}")
    for claim in claims:
        if claim.experiment not in experiments and claim.experiment != OVER_CLAIMS:
            raise UserError(f"claim {claim.id}: no experiment {claim.experiment!r}; there are {', '.join(experiments)}")


def check_answers(claims: Sequence[Claim], found: Evaluated) -> None:
    """Refuse a claim that asks an experiment for what it does not answer.

    A number that is only shown may have no answer.
    """
    for claim in claims:
        given = found.answers.get(claim.experiment)
        if given is None:
            continue
        if claim.answer not in given and (claim.tolerance is not None or claim.group):
            raise UserError(f"claim {claim.id}: experiment {claim.experiment} has no answer {claim.answer!r}")


def _complete(tasks: Sequence[Task], outcomes: dict[str, Outcome], store: Store) -> bool:
    """Is everything there? What is in the store alone joins the outcomes."""
    for task in tasks:
        if task.key not in outcomes:
            outcome = store.get(task.key)
            if outcome is None:
                return False
            outcomes[task.key] = outcome
    return True


def store_in(folder: Path) -> Store:
    """Where the outcomes of an evaluation into `folder` stand."""
    return Store(folder / "parts")
