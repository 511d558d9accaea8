"""Run experiments and compare the claims with their answers."""

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
    """Results of a validation.

    Attributes:
        experiments: all experiments, by name.
        answers: experiment -> answers, for experiments that have run.
        outcomes: outcomes of their tasks, by key.
        failed: experiment -> reason.
        rows: one row per claim.
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
    """Run the quick experiments, or all with `full`, or the ones named in `only`. Stored outcomes are not run again.

    Other experiments are answered too if the store has all their outcomes.

    Raises:
        UserError: an unknown experiment, or a claim that no experiment answers.
    """
    experiments = load_experiments() if experiments is None else experiments
    claims = load_claims() if claims is None else claims
    check_names(claims, experiments, only)
    requested = [name for name, item in experiments.items() if (name in only if only else full or not item.full)]
    tasks = {name: experiment.tasks() for name, experiment in experiments.items()}
    outcomes, problems = run_tasks((task for name in requested for task in tasks[name]), store, workers, progress)
    found = Evaluated(experiments, {}, outcomes, {})
    for name, experiment in experiments.items():
        reasons = [problems[task.key] for task in tasks[name] if task.key in problems]
        if reasons:
            found.failed[name] = reasons[0]
        elif _complete(tasks[name], found.outcomes, store):
            found.answers[name] = experiment.answers(found.outcomes)
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


def check_answers(claims: Sequence[Claim], found: Evaluated) -> None:
    """Refuse a claim on an answer that its experiment does not give.

    A claim that is only shown may have no answer.
    """
    for claim in claims:
        given = found.answers.get(claim.experiment)
        if given is None:
            continue
        if claim.answer not in given and (claim.tolerance is not None or claim.group):
            raise UserError(f"claim {claim.id}: experiment {claim.experiment} has no answer {claim.answer!r}")


def _complete(tasks: Sequence[Task], outcomes: dict[str, Outcome], store: Store) -> bool:
    """True if every task has an outcome. Adds outcomes that are only in the store."""
    for task in tasks:
        if task.key not in outcomes:
            outcome = store.get(task.key)
            if outcome is None:
                return False
            outcomes[task.key] = outcome
    return True


def store_in(folder: Path) -> Store:
    """The store of the outcomes of a validation into `folder`."""
    return Store(folder / "parts")
