"""`t3sim dram`: run a stream of requests on one HBM channel."""

import click

from sim.run.dram import run_stream, timing_sets
from sim.spec import BankMap
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table


@click.command()
@click.argument("stream", type=click.Path())
@click.option("--set", "timing_set", default="G", show_default=True, help=f"Timing set: {', '.join(timing_sets())}.")
@click.option("--map", "bank_map", default="RO", show_default=True, help=f"Bank map: {', '.join(BankMap.__members__)}.")
@click.option("--nmc-updates", is_flag=True, help="Treat every write as a near-memory update.")
@with_format
def dram(stream: str, timing_set: str, bank_map: str, nmc_updates: bool, as_json: bool) -> None:
    """Run STREAM (lines `R|W|U address [earliest_ns]`, plain, .gz or .xz) on one HBM channel.

    Example: t3sim dram requests.trace.gz --set G --map BG --json
    """
    result = run_stream(stream, timing_set, bank_map, nmc_updates)
    summary = result.summary()
    if as_json:
        print_json(summary)
    else:
        print_table(f"{stream} on set {timing_set}, map {bank_map}", ("figure", "value"), summary.items())
