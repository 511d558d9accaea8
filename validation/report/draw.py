"""Draw the figures of the experiments that have answers."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sim.scenario.result import SEQUENTIAL
from sim.view import speedups
from traces.command.document import Picture
from validation.claims.claim import Claim
from validation.experiments.collectives import ScatterSizes
from validation.experiments.cu_split import CuSplit
from validation.experiments.layers import Layers
from validation.experiments.model_steps import ModelSteps
from validation.experiments.search import Search
from validation.experiments.space import BLOCK
from validation.experiments.sublayers import Sublayers
from validation.experiments.workbench import scenario_names, scenario_run
from validation.report.answers import Findings
from validation.report.figures import (
    cu_split,
    effects,
    end_to_end,
    model_steps,
    overlap_traffic,
    pareto,
    scatter_sizes,
    time_distribution,
    traffic_by_kind,
)
from validation.report.surface import surface

FOLDER = "figures"
MEASURED_CURVES = 5
"""Largest number of measured machines in the figure of collectives."""


def draw_figures(found: Findings, folder: Path) -> dict[str, list[Picture]]:
    """Draw all figures into `folder`/figures.

    Returns:
        experiment -> its pictures.
    """
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    return {name: list(_draw(name, found, folder)) for name in found.answers}


def _draw(name: str, found: Findings, folder: Path) -> Iterator[Picture]:
    experiment, answers = found.experiments[name], found.answers[name]
    match experiment:
        case Sublayers():
            yield from _draw_sublayers(name, experiment, found, folder)
        case Layers():
            picture, path = _picture(name, "speedups", "End-to-end speed-ups", folder)
            end_to_end.draw(answers, experiment.models, path)
            yield picture
        case ScatterSizes():
            picture, path = _picture(name, "times", "Reduce-scatter time against size", folder)
            measured = measured_curves([row.claim for row in found.rows])
            scatter_sizes.draw([*scatter_sizes.curves_of(answers), *measured], path)
            yield picture
        case CuSplit():
            picture, path = _picture(name, "speedups", "Software overlap on split CUs", folder)
            cus = next(iter(experiment.bench.scenarios(experiment.scenarios).values())).preset.machine.cu.count
            splits = [f"{cus - taken}-{taken}" for taken in experiment.collective_cus]
            cu_split.draw(answers, scenario_names(experiment.scenarios), splits, path)
            yield picture
        case ModelSteps():
            picture, path = _picture(name, "classes", "A training step by class of operator", folder)
            model_steps.draw(answers, [*experiment.cases], experiment.title, path)
            yield picture
        case Search():
            found_machines = surface(experiment, answers)
            if {*found_machines.errors.columns} >= pareto.AXES:  # a search may have targets of its own
                picture, path = _picture(
                    name, "front", "Machines within the bounds and what the paper published", folder
                )
                pareto.draw(found_machines, path)
                yield picture
            if experiment.across is None and found_machines.tried.sum() >= BLOCK:
                picture, path = _picture(name, "effects", "Effect of each factor on each aggregate", folder)
                effects.draw(found_machines, path)
                yield picture


def _draw_sublayers(name: str, experiment: Sublayers, found: Findings, folder: Path) -> Iterator[Picture]:
    answers, sublayers = found.answers[name], scenario_names(experiment.scenarios)
    published = published_speedups(name, [row.claim for row in found.rows])
    drawings = (
        (time_distribution.draw, "time", f"Time distribution of {SEQUENTIAL}: GEMM, reduce-scatter, all-gather"),
        (partial(speedups.draw, published=published), "speedups", "Speed-ups of the configurations over Sequential"),
        (traffic_by_kind.draw, "traffic", "DRAM traffic by kind, Sequential against T3-MCA"),
    )
    for draw, kind, caption in drawings:
        picture, path = _picture(name, kind, caption, folder)
        draw(answers, sublayers, path)
        yield picture
    for scenario_name, scenario in experiment.bench.scenarios(experiment.bench.series).items():
        runs = {run: found.results[scenario_run(scenario, run).key] for run in overlap_traffic.PANELS}
        series = {
            name: {stream: values.tolist() for stream, values in run.series.items()} for name, run in runs.items()
        }
        caption = f"DRAM traffic over time of {scenario_name}: GEMM alone, T3, T3-MCA"
        picture, path = _picture(name, f"over-time-{scenario_name.replace('/', '-')}", caption, folder)
        peak = scenario.preset.peaks().dram_bytes_per_s
        overlap_traffic.draw(series, scenario.interval_ps, peak, f"{scenario_name} on {scenario.preset.name}", path)
        yield picture


def published_speedups(experiment: str, claims: list[Claim]) -> dict[str, dict[str, float]]:
    """Geomean or max -> configuration -> published speed-up, from the claims on an experiment."""
    found: dict[str, dict[str, float]] = {}
    for claim in claims:
        summary, *name = claim.answer.split("/")
        if claim.experiment == experiment and summary in speedups.SUMMARIES and name[1:] == ["speedup"]:
            found.setdefault(summary, {})[name[0]] = claim.published
    return found


def measured_curves(claims: list[Claim]) -> list[scatter_sizes.Curve]:
    """Reduce-scatters of real machines, from the claims on collectives: answer `reduce_scatter/<GPUs>/<bytes>/us`."""
    points_of: dict[str, list[tuple[float, float]]] = {}
    for claim in claims:
        parts = claim.answer.split("/")
        if len(parts) == 4 and parts[0] == "reduce_scatter" and claim.experiment.startswith("collectives_"):
            label = f"measured, {parts[1]} {claim.quantity.rpartition(f' on {parts[1]} ')[2]}"
            points_of.setdefault(label, []).append((int(parts[2]) / 1e6, claim.published))
    curves = [
        scatter_sizes.Curve(label, True, [point for point in sorted(points) if point[0] >= 1])
        for label, points in points_of.items()
    ]
    return [curve for curve in curves if curve.points][:MEASURED_CURVES]


def _picture(experiment: str, kind: str, caption: str, folder: Path) -> tuple[Picture, Path]:
    name = f"{FOLDER}/{experiment}-{kind}.png"
    return Picture(name, caption), folder / name
