"""A schedule for a verb: its options, and its runs, each different one once, from the store if it has it."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple

import click

from sim.collective.library import PLAIN
from sim.hw.space import MAX_GPUS
from sim.run.runner import reserved, run_all
from sim.run.store import Store
from sim.scenario.asked import ALL
from sim.scenario.exchange import together
from sim.scenario.result import ALL_CONFIGURATIONS
from sim.scenario.scheduled import S, Scheduled, ScheduleResult, assemble_schedule
from sim.view.heading import evidence_text
from tracer.compile.process import process_costs
from tracer.models.schedule import Exchange
from traces.command.meter import Meter
from traces.command.near_choice import NearChoice
from traces.command.tables import print_text
from traces.errors import UserError


def with_configurations(default: str) -> Callable[[Any], Any]:
    """Options that say which configurations a verb simulates. default: what it does without them, for the help."""

    def decorate(command: Any) -> Any:
        text = f"Only this one beside Sequential; can be repeated. all = also those of software.  [{default}]"
        allowed = NearChoice((*ALL_CONFIGURATIONS, ALL))
        command = click.option("--configuration", "chosen", multiple=True, type=allowed, help=text)(command)
        overlap = "Simulate other configurations too."
        return click.option("--overlap/--no-overlap", default=True, show_default=True, help=overlap)(command)

    return decorate


def with_workers(command: Any) -> Any:
    """Options that say how the runs of a schedule are simulated."""
    fresh, workers = "Simulate even what the store of finished runs has.", "Processes that simulate."
    command = click.option("--fresh", is_flag=True, help=fresh)(command)
    return click.option("--workers", type=click.IntRange(min=0), default=1, show_default=True, help=workers)(command)


class Simulated(NamedTuple, Generic[S]):
    """A schedule that has run.

    Attributes:
        runs: number of different runs. now: those that were not in the store.
    """

    result: ScheduleResult[S]
    runs: int
    now: int

    def costs(self) -> dict[str, Any]:
        """For JSON."""
        return {"runs": self.runs, "simulated": self.now, **process_costs()}

    def costs_text(self) -> str:
        """For people."""
        return f"\n{self.runs} runs, {self.now} simulated now; {process_costs()['wall_s']:.1f} s"


def simulate(verb: str, scenario: S, workers: int, fresh: bool) -> Simulated[S]:
    """Run a schedule. fresh: also what the store has.

    Raises:
        UserError: runs failed; names the first.
    """
    runs = scenario.runs()
    with reserved(Store(), runs) as store, Meter("runs") as meter:
        outcomes = run_all(
            *(runs, store),
            workers=workers,
            fresh=fresh,
            progress=lambda done, whole: meter.update(verb, done, whole),
        )
        wrong = {**outcomes.failed, **outcomes.lost}
        if wrong:
            title = next(run.title for run in runs if run.key in wrong)
            raise UserError(f"{verb}: {len(wrong)} of {len(runs)} runs failed; {title}: {next(iter(wrong.values()))}")
        result = assemble_schedule(scenario, {run.key: outcomes.result(run) for run in runs})
    return Simulated(result, len(runs), len(runs) - len(outcomes.from_store))


def show_limits(scenario: Scheduled) -> None:
    """Print which exchanges are plain, what is not fused, and how many values of the machine are assumed."""
    if text := _collectives_text(scenario):
        print_text(text)
    not_fused = scenario.not_fused
    for reason in dict.fromkeys(reason for reasons in not_fused.values() for reason in reasons):
        names = ", ".join(name for name, reasons in not_fused.items() if reason in reasons)
        print_text(f"GEMMs with the time of Sequential in {names}: {reason}")
    print_text(f"\n{evidence_text(scenario.preset)}")


def _collectives_text(scenario: Scheduled) -> str:
    """Which exchanges are not those of the machine's library in one node; "" if all are."""
    library = scenario.preset.machine.collective.library
    lines = []
    if scenario.pairs and library != PLAIN:
        lines += [
            "In Sequential and T3, reductions of GEMMs are plain and have no launch, as in the T3 paper.",
            f"In Library, and with --no-overlap, they are those of {library}.",
        ]
    exchanges = {step.work for _, step in scenario.steps() if isinstance(step.work, Exchange)}
    far = [exchange for exchange in exchanges if together(scenario.preset, exchange) < exchange.gpus]
    if far and library != PLAIN:
        lines.append("Exchanges between nodes: all links of a group are alike (D62).")
    if any(exchange.gpus > MAX_GPUS for exchange in exchanges):
        lines.append(f"Groups of more than {MAX_GPUS} GPUs: a smaller one is simulated, and its time multiplied (D63).")
    return "\n".join(lines)
