"""`t3sim t3`: simulate a GEMM and its all-reduce in the five configurations of the paper."""

import click

from sim.collective.chunks import Chunks, chunks_of
from sim.collective.own_plan import load_plan
from sim.energy import DEFAULT, energy_presets, load_energy
from sim.host.team import use_threads
from sim.presets import Preset, load_preset
from sim.run.policy_file import check_bound
from sim.run.store import Store
from sim.scenario.archive import write_scenario
from sim.scenario.result import CONFIGURATIONS, TRAFFIC, ScenarioResult
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.verbs.presets import assumed_text
from sim.verbs.store_options import report_resuming, with_store
from sim.view.energy_tables import configuration_energies, show_energies
from tracer.compile.process import process_costs
from tracer.gemm.source import GemmSource
from tracer.kernels import make_gemm
from tracer.workloads import LAYERS, MODELS
from traces.command.meter import Meter
from traces.command.tables import print_json, print_table
from traces.errors import UserError
from traces.units import PS_PER_NS, time_text
from traces.write import output_path


@click.command()
@click.option("--model", help=f"One of {', '.join(MODELS)}.")
@click.option("--layer", help=f"One of {', '.join(LAYERS)}.")
@click.option("--tp", type=int, help="Number of GPUs that share the model (tensor parallelism).")
@click.option("--kernel", metavar="gemm:FIELD=VALUE,...", help="Instead of a model: the GEMM of one GPU.")
@click.option("--gpus", type=int, help="With --kernel: number of GPUs, unless it has workload=MODEL/LAYER/TPn.")
@click.option("--preset", default="t3_2024", show_default=True, help="Machine: a preset's name or a .toml file.")
@click.option("--set", "overrides", multiple=True, metavar="UNIT.FIELD=VALUE", help="Change one value of the machine.")
@click.option("--policy", type=click.Path(), help="A Python file with an arbiter, instead of MCA in T3-MCA.")
@click.option(
    "--configuration",
    "chosen",
    multiple=True,
    type=click.Choice(CONFIGURATIONS),
    help="Only this configuration; can be repeated.",
)
@click.option("--chunks", metavar="LIST", help="Number of tiles in the chunk of each GPU, e.g. 10,12,10.  [even]")
@click.option("--plan", "plan_file", type=click.Path(), help="A Python file with the user's topology and plan.")
@click.option("--explicit", is_flag=True, help="Simulate every GPU; else one represents all.")
@click.option(
    "--interval-ns", type=click.IntRange(min=1), default=1000, show_default=True, help="Interval of the time series."
)
@with_store
@click.option("--energy", metavar="NAME", help=f"Show energy by unit: {', '.join(energy_presets())}, or a .toml file.")
@click.option("-o", "--output", type=click.Path(), help="Results archive to write, with the time series.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
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
    interval_ns: int,
    fresh: bool,
    checkpoint_every_s: float | None,
    threads: int | None,
    energy: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Simulate a tensor-parallel GEMM and its all-reduce: sequential, fused (T3), fused with MCA, and two ideals.

    A whole sub-layer (--model t-nlg --layer fc2 --tp 8) takes one or two minutes. This example takes seconds:

    Example: t3sim t3 --kernel gemm:m=1024,n=1024,k=256 --gpus 4 -o small.h5

    Example: t3sim t3 --kernel gemm:m=512,n=1024,k=128 --gpus 4 --set hbm.queue_entries=32 --json

    If this computer has simulated a run before, its result comes from the store of finished runs (t3sim store); --fresh
    simulates it again. With --checkpoint, an interrupted run continues when the same command is started again; the
    results are the same bytes.
    """
    source, count = _gemm(model, layer, tp, kernel, gpus)
    if policy is not None:
        check_bound(policy)
        overrides = ("hbm.arbiter=user", *overrides)
    machine = load_preset(preset, overrides)
    if output is not None:
        output_path(output)
    interval_ps = interval_ns * PS_PER_NS if output else 0
    cut = None if chunks is None else _chunks(chunks, count)
    own = None if plan_file is None else load_plan(plan_file)
    scenario = Scenario(machine, source.problem, source.kernel, count, cut, explicit, interval_ps, own)
    energies = load_energy(energy or DEFAULT)
    with Meter("workgroups") as meter, use_threads(threads):
        result = simulate_scenario(
            scenario,
            chosen or CONFIGURATIONS,
            store=Store(),
            fresh=fresh,
            progress=meter.update,
            checkpoint_every_s=checkpoint_every_s,
            resuming=report_resuming,
        )
    if output is not None:
        write_scenario(output, result)
    costs = process_costs()
    totals = {name: run.totals for name, run in result.runs.items()}
    spent = configuration_energies(totals, machine.machine.hbm.row_bytes, energies)
    spent = {name: spent[name] for name in result.configurations}
    if as_json:
        energy_dicts = {name: values.as_dict() for name, values in spent.items()}
        print_json(result.as_dict() | {"energy": energy_dicts, "from_store": list(result.from_store)} | costs)
        return
    show_scenario(result)
    if energy is not None:
        show_energies(spent)
    click.echo(f"{costs['wall_s']:.1f} s, {costs['compile_s']:.1f} s of it compiling")
    if result.from_store:
        click.echo(f"from the store: {', '.join(result.from_store)}")
    if output is not None:
        click.echo(f"wrote {output}")


def _gemm(
    model: str | None, layer: str | None, tp: int | None, kernel: str | None, gpus: int | None
) -> tuple[GemmSource, int]:
    """The GEMM of one GPU and the number of GPUs."""
    named = (model, layer, tp)
    if (kernel is None) == (named == (None, None, None)) or (kernel is None and None in named):
        raise UserError("t3: give --kernel gemm:... and --gpus, or --model, --layer and --tp")
    source, count = make_gemm(kernel or f"gemm:workload={model}/{layer}/tp{tp}")
    if bool(count) == (gpus is not None):
        raise UserError("t3: --gpus: give it with a --kernel without workload= only; a workload has its own")
    if count == 1:
        raise UserError("t3: found one GPU (--tp 1), allowed are 2 and more: a collective needs two")
    return source, count or int(gpus or 0)


def _chunks(text: str, gpus: int) -> Chunks:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--chunks: found {text!r}, allowed are whole numbers separated by commas") from None
    if len(sizes) != gpus:
        raise UserError(f"--chunks: found {len(sizes)} sizes, allowed is one for each of {gpus} GPUs")
    return chunks_of(sizes)


def show_scenario(result: ScenarioResult) -> None:
    """Print the tables of a scenario."""
    preset: Preset = result.preset
    problem = result.problem
    click.echo(
        f"{preset.name}: {preset.title}\n"
        f"GEMM {problem.m} x {problem.n} x {problem.k} fp16 on each of {result.gpus} GPUs, "
        f"output {result.output_bytes / 1e6:,.1f} MB\n"
    )
    rows = [
        (
            name,
            *(time_text(ps) for ps in (chosen.time_ps, chosen.gemm_ps, chosen.rs_ps, chosen.ag_ps)),
            f"{result.speedup(name):.3f}" if "Sequential" in result.configurations else "-",
            "yes" if chosen.exactly_once else "NO",
        )
        for name, chosen in result.configurations.items()
    ]
    print_table("Time", ("configuration", "all", "GEMM", "RS", "AG", "speed-up", "exactly once"), rows)
    traffic = [
        (
            name,
            *(f"{chosen.dram_bytes[kind] / 1e6:,.1f}" for kind in TRAFFIC),
            f"{sum(chosen.dram_bytes.values()) / 1e6:,.1f}",
            f"{chosen.link_bytes / 1e6:,.1f}",
        )
        for name, chosen in result.configurations.items()
    ]
    print_table("DRAM and link traffic per GPU, MB", ("configuration", *TRAFFIC, "all", "link"), traffic)
    click.echo(
        f"A fused kernel has one time for GEMM and RS, which overlap. The writes that clear the output before it "
        f"({result.zeroing_bytes / 1e6:,.1f} MB) are not included."
    )
    for name, run in result.runs.items():
        if run.figures.get("tracker_triggers"):
            click.echo(_tracker_text(name, run.figures))
        for fault in run.wrong:
            click.echo(f"{name}: ledger: {fault}")
    click.echo(f"\n{assumed_text(preset)}")


def _tracker_text(name: str, figures: dict) -> str:
    threshold = "no limit" if figures["mca_threshold"] is None else f"{figures['mca_threshold']} entries"
    return (
        f"{name}: Tracker {figures['tracker_triggers']:,} triggers of {figures['tracker_wavefronts']:,} wavefronts, "
        f"{figures['dma_descriptors']:,} DMA descriptors, at most {figures['tracker_live_max']:,} tiles live, "
        f"{figures['tracker_stalls']:,} stores stalled, {figures['tracker_spilled']:,} counts spilled, "
        f"{figures['tracker_bytes']:,} bytes (paper: 19 KB); first stage: {figures['mca_occupancy']:.1f} entries "
        f"queued on average -> MCA threshold {threshold}"
    )
