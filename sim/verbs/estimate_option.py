"""The option `--estimate`: time and memory of the runs, and no simulation of them."""

from collections.abc import Mapping
from dataclasses import asdict

import click

from sim.machine.engine import run_engine
from sim.run.estimate import COMPILE_S, estimates
from sim.run.run import Run
from sim.run.store import Store
from tracer.compile.process import is_compiled
from traces.command.tables import print_json, print_table, print_text
from traces.units import MEGA

with_estimate = click.option(
    "--estimate", "only_estimate", is_flag=True, help="Only estimate time and memory, within about a factor of two."
)


def show_estimates(runs: Mapping[str, Run], as_json: bool) -> None:
    """Print an estimate of each run, and of all together. runs: name -> run."""
    found = estimates(runs, Store())
    compile_s = 0.0 if is_compiled(run_engine) else COMPILE_S
    time_s, memory_bytes = sum(each.time_s for each in found) + compile_s, max(each.memory_bytes for each in found)
    if as_json:
        whole = {"time_s": time_s, "compile_s": compile_s, "memory_bytes": memory_bytes}
        print_json(whole | {"runs": [asdict(each) for each in found]})
        return
    rows = [(each.name, round(each.line_requests), each.time_s, "yes" if each.in_store else "no") for each in found]
    print_table("Estimate, within about a factor of two", ("run", "line requests", "seconds", "in the store"), rows)
    compiling = f", {compile_s:,.0f} s of it compiling" if compile_s else ""
    print_text(f"all: about {time_s:,.0f} s{compiling}; about {memory_bytes / MEGA:,.0f} MB of memory")
