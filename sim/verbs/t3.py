"""`t3sim t3`: simulate a GEMM and its all-reduce in the configurations of the paper, and in those of software."""

from collections.abc import Sequence
from contextlib import nullcontext
from shlex import quote

import click

from sim.collective.chunks import Chunks, chunks_of
from sim.collective.own_plan import load_plan
from sim.energy import DEFAULT, energy_presets, load_energy
from sim.gemm_facts import gpu_facts
from sim.host.team import use_threads
from sim.presets import Preset
from sim.run.run import Run
from sim.run.runner import reserved, run_all
from sim.run.store import Store
from sim.scenario.archive import scenario_row, write_scenario
from sim.scenario.asked import ALL, asked_configurations
from sim.scenario.bounds import bounds
from sim.scenario.result import ALL_CONFIGURATIONS
from sim.scenario.scenario import Scenario, check_scenario, simulate_scenario
from sim.verbs.completions import KERNEL, LAYER, MODEL
from sim.verbs.estimate_option import show_estimates, with_estimate
from sim.verbs.explain import RUN_OF
from sim.verbs.machine_options import machine_of, with_machine
from sim.verbs.store_options import INTERVAL_NS, report_resuming, with_store
from sim.view.command_text import command_of
from sim.view.energy_tables import configuration_energies, show_energies
from sim.view.scenario_tables import show_scenario
from tracer.compile.process import process_costs
from tracer.kernels import NamedGemm, make_gemm
from tracer.workloads import LAYERS, MODELS
from traces.command.meter import Meter
from traces.command.near_choice import NearChoice
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_text
from traces.errors import UserError
from traces.output import output_path
from traces.units import PS_PER_NS

SERIES_NS = 1000
"""Interval of the time series of an archive."""


@click.command()
@click.option("--model", shell_complete=MODEL, help=f"One of {', '.join(MODELS)}.")
@click.option("--layer", shell_complete=LAYER, help=f"One of {', '.join(LAYERS)}.")
@click.option("--tp", type=int, help="Number of GPUs that share the model (tensor parallelism).")
@click.option(
    "--kernel",
    metavar="gemm:FIELD=VALUE,...",
    shell_complete=KERNEL,
    help="Instead of a model: the GEMM of one GPU.",
)
@click.option("--gpus", type=int, help="With --kernel: number of GPUs, unless it has workload=MODEL/LAYER/TPn.")
@with_machine("t3_2024")
@click.option("--policy", type=click.Path(), help="A Python file with an arbiter, instead of MCA in T3-MCA.")
@click.option(
    "--configuration",
    "chosen",
    multiple=True,
    type=NearChoice((*ALL_CONFIGURATIONS, ALL)),
    help="Only this configuration; can be repeated. all = also those of software.  [those of the T3 paper]",
)
@click.option("--chunks", metavar="LIST", help="Number of tiles in the chunk of each GPU, e.g. 10,12,10.  [even]")
@click.option("--plan", "plan_file", type=click.Path(), help="A Python file with the user's topology and plan.")
@click.option("--explicit", is_flag=True, help="Simulate every GPU; else one represents all.")
@click.option("--interval-ns", type=INTERVAL_NS, help=f"Interval of the time series of --output.  [{SERIES_NS}]")
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes; 2 and more need Dask."
)
@with_store
@with_estimate
@click.option("--energy", metavar="NAME", help=f"Show energy by unit: {', '.join(energy_presets())}, or a .toml file.")
@click.option("-o", "--output", type=click.Path(), help="Results archive to write, with the time series.")
@with_format
def t3(
    model: str | None,
    layer: str | None,
    tp: int | None,
    kernel: str | None,
    gpus: int | None,
    preset: str,
    overrides: tuple[str, ...],
    policy: str | None,
    chosen: tuple[str, ...],
    chunks: str | None,
    plan_file: str | None,
    explicit: bool,
    interval_ns: int | None,
    workers: int,
    fresh: bool,
    checkpoint_every_s: float | None,
    threads: int | None,
    only_estimate: bool,
    energy: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Simulate a tensor-parallel GEMM and its all-reduce: sequential, fused (T3), fused with MCA, and two ideals.

    What software does today is simulated if --configuration names it: Library (NCCL or RCCL, on machines that have
    one), Decomposed, Copy-engines, FLUX. The last three need --set link.topology=switch or fully_connected. NVLS,
    SP-NVLS and T3-NVLS need a switch that adds and copies: --preset h100_sxm, h200, b200 or b300, or --set
    link.in_switch=true with a switch.

    A whole sub-layer (--model t-nlg --layer fc2 --tp 8) takes one or two minutes. This example takes seconds:

    Example: t3sim t3 --kernel gemm:m=1024,n=1024,k=256 --gpus 4 -o small.h5

    Example: t3sim t3 --kernel gemm:m=512,n=1024,k=128 --gpus 4 --set hbm.queue_entries=32 --json

    If this computer has simulated a run before, its result comes from the store of finished runs (t3sim store); --fresh
    simulates it again. With --checkpoint, an interrupted run continues when the same command is started again; the
    results are the same bytes.
    """
    machine = machine_of(preset, overrides, policy)
    gemm, count = _gemm(machine, model, layer, tp, kernel, gpus)
    if output is not None:
        output_path(output, preset if preset.endswith(".toml") else None, policy, plan_file)
    elif interval_ns is not None:
        raise UserError("--interval-ns: is for the time series of --output: give both")
    interval_ps = (interval_ns or SERIES_NS) * PS_PER_NS if output else 0
    cut = None if chunks is None else _chunks(chunks, count)
    own = None if plan_file is None else load_plan(plan_file)
    settings = {"chunks": cut, "explicit": explicit, "interval_ps": interval_ps, "own": own}
    scenario = Scenario.of_gemm(machine, gemm, count, **settings)
    scenario.cut()
    configurations = asked_configurations(chosen, machine, own, count)
    if only_estimate:
        show_estimates(scenario.runs(configurations), as_json)
        return
    energies = load_energy(energy or DEFAULT)
    check_scenario(scenario, configurations)
    if not as_json:
        print_text(bounds(scenario).text(), err=True)
    if workers > 1 and checkpoint_every_s is not None:
        raise UserError("--workers: not with --checkpoint, which saves one run at a time")
    ahead = [*scenario.runs(configurations).values()] if workers > 1 else []
    with reserved(Store(), ahead) if ahead else nullcontext(Store()) as store, use_threads(threads):
        if ahead:
            _simulate_ahead(ahead, store, workers, threads, fresh)
        with Meter("workgroups") as meter:
            result = simulate_scenario(
                scenario,
                configurations,
                store=store,
                fresh=fresh and not ahead,
                progress=meter.update,
                checkpoint_every_s=checkpoint_every_s,
                resuming=report_resuming,
            )
    if output is not None:
        write_scenario(output, result)
    costs = process_costs()
    spent = configuration_energies(result.runs, energies)
    spent = {name: spent[name] for name in result.configurations}
    if as_json:
        more = {
            "energy": {name: values.as_dict() for name, values in spent.items()},
            "from_store": list(result.from_store),
            "input": result.input,
            "command": command_of(scenario_row(result)),
        }
        print_json(result.as_dict() | more | costs)
        return
    show_scenario(scenario_row(result), result.runs)
    if energy is not None:
        show_energies(spent, result.runs.values())
    click.echo(f"{costs['wall_s']:.1f} s, {costs['compile_s']:.1f} s of it compiling")
    if result.from_store:
        click.echo(f"from the store: {', '.join(result.from_store)}")
    if output is not None:
        explain = f", t3sim explain {quote(output)}" if {*RUN_OF} & {*result.configurations} else ""
        click.echo(f"wrote {output}\nnext: t3sim timeline {quote(output)} -o timeline.html{explain}")


def _simulate_ahead(runs: Sequence[Run], store: Store, workers: int, threads: int | None, fresh: bool) -> None:
    """Simulate the runs in several processes; their results go into the store."""
    with Meter("runs") as meter:
        outcomes = run_all(
            *(runs, store),
            workers=workers,
            threads=threads,
            fresh=fresh,
            progress=lambda done, whole: meter.update("t3", done, whole),
        )
    for reason in (*outcomes.failed.values(), *outcomes.lost.values()):
        raise UserError(f"t3: {reason}")


def _gemm(
    machine: Preset, model: str | None, layer: str | None, tp: int | None, kernel: str | None, gpus: int | None
) -> tuple[NamedGemm, int]:
    """The GEMM of one GPU and the number of GPUs."""
    named = (model, layer, tp)
    if (kernel is None) == (named == (None, None, None)) or (kernel is None and None in named):
        raise UserError("t3: give --kernel gemm:... and --gpus, or --model, --layer and --tp")
    try:
        gemm = make_gemm(kernel or f"gemm:workload={model}/{layer}/tp{tp}", gpu_facts(machine.machine))
    except UserError as mistake:
        if kernel:
            raise UserError(f"--kernel {kernel}: {mistake}") from None
        own = "for another shape give --kernel gemm:m=M,n=N,k=K --gpus N"
        raise UserError(f"--model {model} --layer {layer} --tp {tp}: {mistake}; {own}") from None
    number = gemm.gpus_or(gpus, "t3: --gpus")
    if gemm.gpus == 1:
        raise UserError("t3: found one GPU (--tp 1), allowed are 2 and more: a collective needs two")
    return gemm, number


def _chunks(text: str, gpus: int) -> Chunks:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--chunks: found {text!r}, allowed are whole numbers separated by commas") from None
    if len(sizes) != gpus:
        raise UserError(f"--chunks: found {len(sizes)} sizes, allowed is one for each of {gpus} GPUs")
    return chunks_of(sizes)
