"""`t3sim kernel`: time, traffic and bound of one operator on a machine."""

import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import click

from sim.gemm_facts import gpu_facts
from sim.host.team import use_threads
from sim.presets import load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from sim.run.store import Store, run_or_get
from sim.verbs.accuracy_option import check_exact_for, with_accuracy
from sim.verbs.machine_options import with_machine
from sim.verbs.store_options import with_store
from sim.view.heading import measured_text
from tracer.compile.process import process_costs
from tracer.kernels import KERNELS, DescribedField, describe_kernels, described_fields, make_kernels
from traces.command.alone import check_alone
from traces.command.meter import Meter
from traces.command.output_format import TABLE, table_format, with_format
from traces.command.tables import print_json, print_table, print_text, print_warnings
from traces.errors import UserError


@click.command()
@click.argument("name", required=False, metavar="NAME:FIELD=VALUE,...")
@with_machine("a100_80g")
@click.option(
    "--l2",
    type=click.Choice([state.value for state in L2State]),
    default=L2State.EMPTY.value,
    show_default=True,
    help="Content of L2 at the launch: nothing, what another kernel wrote or copied, or what this operator left.",
)
@with_accuracy("1%")
@click.option("--list", "as_list", is_flag=True, help="List all kernels with their fields and defaults.")
@with_format
@with_store
def kernel(
    name: str | None,
    preset: str,
    overrides: tuple[str, ...],
    l2: str,
    accuracy: float,
    as_list: bool,
    as_json: bool,
    fresh: bool,
    checkpoint_every_s: float | None,
    threads: int | None,
) -> None:
    """Time, launch overhead, DRAM traffic, operations and bound of one kernel or operator on a machine.

    Example: t3sim kernel layernorm:rows=512,cols=4096 --preset a100_80g --json

    Example: t3sim kernel flash_attention:batch=1,heads=8,kv_heads=2,seq=256 --preset a100_80g

    Example: t3sim kernel adam:parameters=100000 --preset v100 --l2 dirty

    A long kernel in an empty or used L2 is simulated in part, within --accuracy; the result says so, with its error. A
    result of the store of finished runs is used if there is one; --fresh simulates again.
    """
    if as_list:
        check_alone("--list")
        _list(as_json)
        return
    if name is None:
        raise UserError("kernel: found no name, allowed is NAME:field=value,... or --list")
    check_exact_for({"--checkpoint": checkpoint_every_s}, accuracy)
    machine = load_preset(preset, overrides)
    kernels = make_kernels(name, gpu_facts(machine.machine))
    run = kernel_run(machine, kernels, L2State(l2), accuracy)
    with Meter("workgroups") as meter, use_threads(threads):
        outcome = run_or_get(run, Store(), fresh=fresh, progress=meter.update, checkpoint_every_s=checkpoint_every_s)
    print_warnings(outcome.result.warnings)
    found = {"kernel": name, "preset": machine.name, "l2": l2} | asdict(figures_of(outcome.result, machine, kernels))
    found["extrapolation"] = outcome.result.extrapolation
    if as_json:
        print_json(found | process_costs() | {"from_store": outcome.from_store})
        return
    print_table(f"{name} on {machine.name}", ("figure", "value"), _rows(found))
    if table_format()[0] == TABLE:
        print_text(f"\n{measured_text(machine)}")


def _list(as_json: bool) -> None:
    """All kernels with their fields. In JSON a default is a number if it is one; null = needed or derived."""
    if as_json:
        print_json({name: {each.name: _default(each) for each in described_fields(name)} for name in KERNELS})
    elif table_format()[0] == TABLE:
        print_text(describe_kernels())
    else:
        columns = ("kernel", "field", "allowed", "default", "needed")
        print_table("Kernels", columns, [(name, *each) for name in KERNELS for each in described_fields(name)])


def _default(field: DescribedField) -> Any:
    with suppress(ValueError):  # a number or a switch
        return json.loads(field.default)
    return field.default or None


def _rows(found: dict[str, Any]) -> list[tuple[str, Any]]:
    """Rows of the table; a dict has one row per item."""
    rows: list[tuple[str, Any]] = []
    for field, value in found.items():
        if isinstance(value, dict):
            rows += [(f"{field} {name}", one) for name, one in value.items()]
        else:
            rows.append((field, value))
    return rows
