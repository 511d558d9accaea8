"""`t3sim model`: time of a whole model on a machine, and what overlap would buy."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from sim.presets import Preset, load_preset
from sim.scenario.asked import asked_configurations, check_overlap
from sim.scenario.model import ModelResult, ModelScenario
from sim.scenario.power import LoadedClock, loaded_clock
from sim.scenario.result import SEQUENTIAL
from sim.verbs.accuracy_option import with_accuracy
from sim.verbs.machine_options import with_machine
from sim.verbs.schedule_run import show_limits, simulate, with_configurations, with_workers
from sim.view.model_figure import draw_model
from sim.view.style import check_figure, save
from tracer.data_type import DataType
from tracer.models.catalogue import load_model, models
from tracer.models.deployment import ContextExchange, Deployment, ModelPhase, Optimizer, Recompute, Software
from tracer.models.schedule import OperatorClass
from traces.command.alone import check_alone
from traces.command.output_format import with_format
from traces.command.tables import Quantity, duration, print_json, print_table, print_text, share, size
from traces.errors import UserError
from traces.output import output_path
from traces.units import PS_PER_NS, time_text

NUMBERS = {
    "tp": "GPUs of tensor parallelism.",
    "cp": "GPUs of context parallelism: they share each sequence.",
    "pp": "Stages of the pipeline.",
    "dp": "GPUs of data parallelism.",
    "ep": "GPUs of expert parallelism; they are GPUs of tensor, context and data parallelism.",
    "zero": "ZeRO stage, 0 to 3.",
    "replicas": "Groups of GPUs that each share out all weights with ZeRO (HSDP).",
    "micro-batch": "Sequences per micro-batch; in generation, sequences that get a token.",
    "micro-batches": "Micro-batches per training step.",
    "sequence": "Tokens of a sequence.",
    "kv-length": "Tokens in the KV cache before a generation step.",
    "predictions": "Tokens of a sequence whose word an encoder's training predicts; 0 = all.",
    "interleave": "Parts of the model on each stage of the pipeline; in training.",
}
"""Options that are whole numbers: fields of `Deployment`."""
CHOICES = {
    "phase": (ModelPhase, "What an iteration is."),
    "dtype": (DataType, "Type of weights and activations."),
    "context": (ContextExchange, "How GPUs that share a sequence exchange keys and values."),
    "recompute": (Recompute, "What the backward pass computes again."),
    "optimizer": (Optimizer, "Optimizer of a training step."),
    "software": (Software, "Which operators are one kernel (docs/models.md)."),
}
SWITCHES = {
    "sequence-parallel": "Divide norms and residuals over the tensor-parallel GPUs.",
    "flash": "Fused attention.",
    "dropout": "Dropout in training.",
}
DEFAULTS = {field.name: field.default for field in fields(Deployment)}


def deployment_options(command: Any) -> Any:
    """Add an option for each field of Deployment."""
    for name, text in reversed(NUMBERS.items()):
        default = DEFAULTS[name.replace("-", "_")]
        command = click.option(f"--{name}", type=int, default=default, show_default=True, help=text)(command)
    for name, (kind, text) in CHOICES.items():
        allowed = click.Choice([member.value for member in kind])
        default = DEFAULTS[name].value
        command = click.option(f"--{name}", type=allowed, default=default, show_default=True, help=text)(command)
    for name, text in SWITCHES.items():
        default = DEFAULTS[name.replace("-", "_")]
        command = click.option(f"--{name}/--no-{name}", default=default, show_default=True, help=text)(command)
    return command


@click.command()
@click.argument("name", required=False, metavar="NAME|CONFIG.JSON")
@with_machine("a100_80g")
@click.option("--gpus", type=int, help="Number of GPUs; checked against tp x cp x pp x dp.  [tp x cp x pp x dp]")
@click.option("--tokens", type=int, help="Tokens of a micro-batch: sets --sequence for the --micro-batch.")
@click.option("--layers", type=click.IntRange(min=1), help="Number of layers, instead of the model's.")
@deployment_options
@with_configurations("those of the T3 paper")
@click.option("--figure", type=click.Path(), help="Draw the classes and the timeline: FILE.svg, .png or .pdf.")
@with_accuracy("1%")
@with_workers
@click.option("--list", "as_list", is_flag=True, help="List the models that have a name.")
@with_format
def model(
    name: str | None,
    preset: str,
    overrides: tuple[str, ...],
    gpus: int | None,
    tokens: int | None,
    layers: int | None,
    overlap: bool,
    chosen: tuple[str, ...],
    figure: str | None,
    accuracy: float,
    workers: int,
    fresh: bool,
    as_list: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Time of a whole model on a machine by class of operator, and the speed-up that overlap would give.

    Example: t3sim model ./config.json --preset t3_2024 --gpus 2 --tp 2 --tokens 128 --phase prompt

    Example: t3sim model --list

    A large model takes minutes: t3sim model llama-3-70b --preset h200 --gpus 8 --tp 8 --tokens 8192

    Each different kernel and collective is simulated once and kept in the store of finished runs, so the same model
    with another link takes seconds. A GEMM beside a collective has the CUs that the collective leaves; bandwidth is not
    shared out.
    """
    if as_list:
        check_alone("--list")
        _list_models(as_json)
        return
    if name is None:
        raise UserError("model: found no name, allowed is NAME, the path of a config.json, or --list")
    check_overlap(chosen, overlap)
    if figure:
        check_figure(output_path(figure))
    shape = load_model(name)
    shape = shape.with_layers(layers) if layers else shape
    how = _deployment(given, gpus, tokens)
    machine = load_preset(preset, overrides)
    scenario = ModelScenario(machine, shape, how, accuracy, overlap, asked_configurations(chosen, machine, gpus=how.tp))
    done = simulate("model", scenario, workers, fresh)
    result = done.result
    if figure:
        save(draw_model(result), Path(figure))
    if as_json:
        loaded = loaded_clock(result)
        print_json(result.as_dict() | ({"power": loaded.as_dict()} if loaded else {}) | done.costs())
        return
    show_model(result)
    click.echo(done.costs_text())


def _deployment(given: dict[str, Any], gpus: int | None, tokens: int | None) -> Deployment:
    """The deployment of the options.

    Raises:
        UserError: GPUs that are not tp x cp x pp x dp, tokens that are no whole sequences, a sequence without effect.
    """
    asked = click.get_current_context().get_parameter_source("sequence") != ParameterSource.DEFAULT
    kinds = {name: kind for name, (kind, _) in CHOICES.items()}
    typed: dict[str, Any] = {name: kinds[name](value) if name in kinds else value for name, value in given.items()}
    how = Deployment(**typed)
    if gpus is not None and gpus != how.gpus:
        raise UserError(f"--gpus: found {gpus}, allowed is tp x cp x pp x dp = {how.gpus}")
    if asked and how.phase == ModelPhase.GENERATE:
        raise UserError(f"--sequence: found {how.sequence}, allowed is none in generation: --kv-length counts")
    if tokens is None:
        return how
    if how.micro_batch < 1:
        raise UserError(f"--micro-batch: found {how.micro_batch}, allowed is 1 or more")
    if how.phase == ModelPhase.GENERATE or tokens < 1 or tokens % how.micro_batch:
        raise UserError(f"--tokens: found {tokens}, allowed is a multiple of --micro-batch, for prompt and train")
    sequence = tokens // how.micro_batch
    if asked and how.sequence != sequence:
        raise UserError(f"--tokens: found {tokens} beside --sequence {how.sequence}: give one of them")
    return Deployment(**vars(how) | {"sequence": sequence})


def show_model(result: ModelResult) -> None:
    """Print the tables of a model."""
    scenario, how = result.scenario, result.scenario.how
    shared = f"cp {how.cp}, " if how.cp > 1 else ""
    print_text(
        f"{scenario.preset.name}: {scenario.preset.title}\n"
        f"{scenario.model.name}, {how.phase}: {how.gpus} GPUs (tp {how.tp}, {shared}pp {how.pp}, dp {how.dp}, "
        f"ep {how.ep}), {how.tokens * how.cp:,} tokens per micro-batch, {how.dtype}\n{scenario.model.text}\n"
    )
    base = result.configurations[SEQUENTIAL]
    compute = {name: value for name, value in base.class_ps.items() if name != OperatorClass.COMMUNICATION}
    hidden_ps = base.class_ps[OperatorClass.COMMUNICATION] - base.exposed_ps
    rows: list[tuple[str, Quantity, Quantity | None]] = [
        (str(name), duration(value), share(value / base.time_ps)) for name, value in compute.items() if value
    ]
    rows.append(("exposed communication", duration(base.exposed_ps), share(base.exposed_ps / base.time_ps)))
    rows.append(("hidden communication", duration(hidden_ps), None))
    if base.bubble_ps:
        rows.append(("other stages of the pipeline", duration(base.bubble_ps), share(base.bubble_ps / base.time_ps)))
    print_table(f"Time of an iteration: {time_text(base.time_ps)}", ("class", "time", "share"), rows)
    speedups = [
        (name, duration(each.time_ps), Quantity(result.speedup(name), f"{result.speedup(name):.3f}"))
        for name, each in result.configurations.items()
    ]
    print_table("Configurations", ("configuration", "time", "speed-up"), speedups)
    if scenario.overlap:
        click.echo(
            f"T3 can overlap {share(result.reach_ps / base.time_ps)} of Sequential: GEMMs whose output is reduced.\n"
            "Assumed: a collective takes CUs from GEMMs beside it, but no bandwidth; all GPUs and stages do the same."
        )
    steps = sorted(result.operators(), key=lambda row: -row["count"] * row["time_ns"])
    largest = [
        (
            *(row["name"], row["count"], duration(row["time_ns"] * PS_PER_NS)),
            *(size(row["dram_bytes"]), row["bound_by"]),
        )
        for row in steps[:12]
    ]
    print_table("Largest steps", ("step", "count", "time", "DRAM", "bound by"), largest)
    errors = [row["time_error"] for row in steps if row["time_error"]]
    if errors:
        print_text(f"EXTRAPOLATED: {len(errors)} of {len(steps)} steps; stated error {max(errors):.2%} at most")
    loaded = loaded_clock(result)
    if loaded:
        print_text(_power_text(scenario.preset, loaded))
    show_limits(scenario)


def _power_text(preset: Preset, loaded: LoadedClock) -> str:
    full = f"POWER: {loaded.full_power_W:,.0f} W in the mean at {preset.machine.cu.clock_MHz:,.0f} MHz"
    limit = f"{full}; the board allows {loaded.power.limit_W:,.0f}"
    if not loaded.falls:
        return f"{limit}, so the clock does not fall"
    again = " ".join(f"--set {value}" for value in loaded.overrides)
    return (
        f"{limit}. Repeated, the iteration runs at about "
        f"{loaded.clock_MHz:,.0f} MHz and takes about {time_text(loaded.time_ps)}. To simulate that: {again}"
    )


def _list_models(as_json: bool) -> None:
    found = models().values()
    if as_json:
        print_json(
            {each.name: {"parameters": each.weights, "layers": each.layers, "hidden": each.hidden} for each in found}
        )
        return
    rows = [(each.name, round(each.weights / 1e9, 1), each.layers, each.hidden) for each in found]
    print_table("Models", ("name", "billion parameters", "layers", "hidden"), rows)
