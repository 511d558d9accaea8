"""`t3sim show`: what a results archive holds."""

import click

from sim.counters import unit_of_measure
from sim.results import Results, open_results
from sim.units import ps_to_ns, time_text
from validation.report import print_json, print_table
from validation.verbs.presets import assumed_text


@click.command()
@click.argument("result", type=click.Path())
@click.option("--unit", help="All counters of one unit (cu, lsu, l1, noc, l2, hbm), summed, per kernel.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def show(result: str, unit: str | None, as_json: bool) -> None:
    """Show what the results archive RESULT holds: time, traffic, hit rates, kernels.

    Example: t3sim show result.h5 --unit hbm
    """
    found = open_results(result)
    if as_json:
        print_json(results_dict(found))
    elif unit:
        _show_unit(found, unit)
    else:
        show_results(found)
        click.echo(f"trace {found.trace_fingerprint}\nwritten by {found.writer}")


def results_dict(results: Results) -> dict:
    """A run as plain values: the headline, ratios, and the same per kernel."""
    return {
        **results.headline(),
        "ratios": results.ratios(),
        "preset": results.preset.name,
        "trace_fingerprint": results.trace_fingerprint,
        "options": results.options,
        "kernels": [
            {"name": kernel.name, "start_ns": ps_to_ns(kernel.start_ps), "end_ns": ps_to_ns(kernel.end_ps)}
            | kernel.headline()
            for kernel in results.kernels
        ],
    }


def show_results(results: Results) -> None:
    """The tables of a run on stdout."""
    click.echo(f"{results.preset.name}: {results.preset.title}\n{results.preset.peaks().text()}\n")
    print_table("The whole run", ("figure", "value"), [*results.headline().items(), *results.ratios().items()])
    if len(results.kernels) > 1:
        columns = ("kernel", "time", "warp_instructions", "l2_read_sectors", "dram_read_sectors", "dram_write_sectors")
        rows = [
            (kernel.name, time_text(kernel.time_ps), *(kernel.headline()[name] for name in columns[2:]))
            for kernel in results.kernels
        ]
        print_table("Kernels", columns, rows)
    click.echo(f"\n{assumed_text(results.preset)}")


def _show_unit(results: Results, unit: str) -> None:
    frame = results.frame(unit)
    rows = [
        (name, *(kernel.totals[f"{unit}.{name}"] for kernel in results.kernels), unit_of_measure(name))
        for name in results.kernels[0].units[unit].dtype.names or ()
    ]
    instances = len(frame) // len(results.kernels)
    title = f"{unit}: {instances} instances, sums (maxima where the name says max)"
    print_table(title, ("counter", *(kernel.name for kernel in results.kernels), "unit"), rows)
