"""`t3sim run`: simulate a trace or a kernel on a machine; write a results archive."""

from pathlib import Path
from typing import Any

import click

from sim.gemm_facts import gpu_facts
from sim.host.team import use_threads
from sim.presets import Preset
from sim.results import write_results
from sim.run.accuracy import EXACT, accuracy_text
from sim.run.one_gpu import simulate
from sim.run.run import KernelRun, Run
from sim.run.short_kernel import why_whole
from sim.run.store import RunOutcome, Store, run_or_get
from sim.run.together import TogetherRun, check_split
from sim.spec import Machine
from sim.verbs.accuracy_option import check_exact_for, with_accuracy
from sim.verbs.completions import KERNEL, WORKLOAD
from sim.verbs.estimate_option import show_estimates, with_estimate
from sim.verbs.machine_options import machine_of, with_machine
from sim.verbs.show import results_dict, show_results
from sim.verbs.store_options import INTERVAL_NS, report_resuming, with_store
from tracer.compile.process import process_costs
from tracer.kernels import KERNELS, make_kernels
from tracer.sequence import CommandSequence
from tracer.trace_file import open_trace
from traces.command.meter import Meter
from traces.command.numbers import numbers_of
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_warnings
from traces.errors import UserError
from traces.output import output_path
from traces.source import Prefill, TraceSource
from traces.units import PS_PER_NS

SHARED = "shared"
"""Value of --cus: all kernels may use all CUs."""


@click.command()
@click.argument("trace", required=False, type=click.Path())
@click.option(
    "--kernel",
    metavar="NAME:FIELD=VALUE,...",
    shell_complete=KERNEL,
    help="Instead of a trace; `t3sim trace make --help` lists all.",
)
@click.option("--gemm", metavar="MxNxK", help="Short for --kernel gemm:shape=MxNxK.")
@click.option(
    "--workload",
    metavar="MODEL/LAYER/TPn",
    shell_complete=WORKLOAD,
    help="Short for --kernel gemm:workload=MODEL/LAYER/TPn.",
)
@with_machine("v100")
@click.option("--policy", type=click.Path(), help="A Python file with an arbiter pick(channel, now_ps).")
@click.option("--kernels", metavar="LIST", help="Run only these kernels of the trace, counted from 0, e.g. 3-7.")
@click.option("--flush/--keep-l2", default=True, help="Flush L2 after every kernel, or keep its lines.")
@click.option("--interval-ns", type=INTERVAL_NS, help="Take a time series of traffic, one row per interval.")
@click.option(
    "--line-trace", is_flag=True, help="Print the state of all units per time window on stderr (for small runs)."
)
@click.option(
    "--beside",
    metavar="TEXT",
    shell_complete=KERNEL,
    multiple=True,
    help="A further kernel, as for --kernel, that runs at once (with --cus).",
)
@click.option("--cus", metavar="LIST", help="CUs of the kernels that run at once, e.g. 60,20; or: shared.")
@with_accuracy(EXACT)
@with_store
@with_estimate
@click.option("-o", "--output", type=click.Path(), help="Results archive to write.")
@with_format
def run(
    trace: str | None,
    kernel: str | None,
    gemm: str | None,
    workload: str | None,
    preset: str,
    overrides: tuple[str, ...],
    policy: str | None,
    kernels: str | None,
    flush: bool,
    interval_ns: int | None,
    line_trace: bool,
    beside: tuple[str, ...],
    cus: str | None,
    accuracy: float,
    fresh: bool,
    checkpoint_every_s: float | None,
    only_estimate: bool,
    threads: int | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Simulate TRACE (a trace archive, or an Accel-Sim kernelslist.g or .traceg), or a kernel, on a machine.

    Example: t3sim run gemm.h5 --preset v100 --set l2.mshrs=256 -o result.h5

    Example: t3sim run --gemm 1024x1024x512 --preset t3_2024 --interval-ns 1000 -o result.h5

    Example: t3sim run --kernel layernorm:rows=512,cols=1024 --preset v100

    Example: t3sim run --gemm 1024x1024x512 --beside stream:flow=copy,buffer_bytes=1048576 --cus 60,20

    If this computer has simulated the same run before, the result comes from the store of finished runs (t3sim store);
    --fresh simulates it again. With --checkpoint, an interrupted run continues when the same command is started again;
    the results are the same bytes.

    With --accuracy 1% a kernel of many waves of workgroups is simulated until its waves predict the rest within 1 %,
    and again at its end. The results state the error and how many waves were simulated. A kernel whose waves do not
    predict the rest is simulated whole; the command says why.
    """
    shorthands = {"--kernel": ("", kernel), "--gemm": ("gemm:shape=", gemm), "--workload": ("gemm:workload=", workload)}
    machine = machine_of(preset, overrides, policy)
    source = _source(trace, shorthands, machine.machine)
    if output is not None:
        own_machine = preset if preset.endswith(".toml") else None
        output_path(output, trace, own_machine, policy)  # refuse what cannot be written before the simulation
    check_exact_for({"--checkpoint": checkpoint_every_s, "--line-trace": line_trace or None}, accuracy)
    if line_trace and checkpoint_every_s is not None:
        raise UserError("--line-trace: not with --checkpoint: a run with a line trace is not kept in the store")
    settings: dict[str, Any] = {"flush_l2": flush, "interval_ps": (interval_ns or 0) * PS_PER_NS}
    description: KernelRun | TogetherRun
    if beside or cus is not None:
        check_exact_for({"--beside": True}, accuracy)
        alone = {"TRACE": trace, "--kernels": kernels, "--checkpoint": checkpoint_every_s}
        _check_together(alone | {"--line-trace": line_trace or None})
        description = _together(machine, source, beside, cus or "", settings)
    else:
        chosen = None if kernels is None else tuple(numbers_of(kernels, "--kernels"))
        description = KernelRun(preset=machine, source=source, kernels=chosen, accuracy=accuracy, **settings)
    if only_estimate:
        show_estimates({description.title: description}, as_json)
        return
    whole = why_whole(source, machine.machine) if accuracy else ""
    if whole:
        click.echo(f"t3sim: run whole: {whole}", err=True)
    with use_threads(threads):
        if line_trace and isinstance(description, KernelRun):
            outcome = _line_traced(description)
        else:
            outcome = _run(description, fresh, checkpoint_every_s)
    results = outcome.result
    print_warnings(results.warnings)
    if accuracy and not whole and not results.extrapolation:
        click.echo(f"t3sim: run whole: its waves do not predict the rest within {accuracy_text(accuracy)}", err=True)
    if output is not None:
        write_results(output, results)
    costs = process_costs()
    if as_json:
        print_json(results_dict(results) | costs | {"from_store": outcome.from_store})
        return
    show_results(results)
    click.echo(_costs_text(costs) + (", from the store" if outcome.from_store else ""))
    if output is not None:
        click.echo(f"wrote {output}")


def _together(
    machine: Preset, first: TraceSource, beside: tuple[str, ...], cus: str, settings: dict[str, Any]
) -> TogetherRun:
    """The run of the kernel of `first` and of the kernels that texts name, on numbers of CUs or on shared CUs."""
    further = [_source(None, {"--beside": ("", text)}, machine.machine) for text in beside]
    sources = [command for one in (first, *further) for command in one.commands() if not isinstance(command, Prefill)]
    if len(sources) != 1 + len(beside):
        raise UserError(f"--beside: found {len(sources)} kernels, allowed is one for each of {1 + len(beside)} texts")
    try:
        numbers = () if cus == SHARED else tuple(int(number) for number in cus.split(","))
    except ValueError:
        allowed = f"{SHARED}, or whole numbers, one for each kernel, e.g. 60,20"
        raise UserError(f"--cus: found {cus!r}, allowed is {allowed}") from None
    check_split(sources, numbers, machine.machine.cu.count)
    return TogetherRun(preset=machine, sources=tuple(sources), cus=numbers, **settings)


def _run(description: Run, fresh: bool, checkpoint_every_s: float | None) -> RunOutcome:
    with Meter("workgroups") as meter:
        return run_or_get(
            description,
            Store(),
            fresh=fresh,
            progress=meter.update,
            checkpoint_every_s=checkpoint_every_s,
            resuming=report_resuming,
        )


def _line_traced(description: KernelRun) -> RunOutcome:
    """Simulate with a line trace. The store is neither read nor written."""
    result = simulate(
        description.source,
        description.preset,
        kernels=description.kernels,
        flush_l2=description.flush_l2,
        interval_ps=description.interval_ps,
        line_trace=_to_stderr,
    )
    return RunOutcome(description.signed(result), False)


def _check_together(given: dict[str, Any]) -> None:
    """Refuse options that cannot be combined with --beside."""
    for name, value in given.items():
        if value is not None:
            raise UserError(f"--beside: found {name}, allowed is --kernel or --gemm, and --cus")


def _to_stderr(line: str) -> None:
    click.echo(line, err=True)


def _source(trace: str | None, kernels: dict[str, tuple[str, str | None]], machine: Machine) -> TraceSource:
    """The trace, or the kernel that an option names.

    Args:
        kernels: option -> (begin of the kernel's text, value of the option; None = not given).
    """
    given = {option: (begin, value) for option, (begin, value) in kernels.items() if value is not None}
    if len(given) + (trace is not None) != 1:
        raise UserError("run: give exactly one of TRACE, --kernel, --gemm and --workload")
    if trace is not None:
        if trace.partition(":")[0] in KERNELS and not Path(trace).exists():
            raise UserError(f"{trace}: no such file; for the kernel: --kernel {trace}")
        return open_trace(trace)
    ((option, (begin, value)),) = given.items()
    try:
        return CommandSequence(make_kernels(f"{begin}{value}", gpu_facts(machine)), f"{begin}{value}")
    except UserError as mistake:
        raise UserError(f"{option} {value}: {mistake}") from None


def _costs_text(costs: dict) -> str:
    peak = f", peak memory {costs['peak_rss_bytes'] / 1e6:,.0f} MB" if costs["peak_rss_bytes"] else ""
    return f"{costs['wall_s']:.1f} s, {costs['compile_s']:.1f} s of it compiling{peak}"
