"""`t3sim store check`: read every result; damaged ones are removed."""

import click

from sim.run.store import Store
from traces.command.tables import print_json


@click.command("check")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def store_check(as_json: bool) -> None:
    """Read every result of the store and compare its checksums and its key. What is damaged is removed.

    Example: t3sim store check
    """
    store = Store()
    removed = [path.name for path in store.check()]
    whole = sum(entry.finished for entry in store.entries())
    if as_json:
        print_json({"folder": str(store.folder), "whole": whole, "removed": removed})
        return
    click.echo(f"{store.folder}: {whole} results are whole, {len(removed)} were damaged and are removed")
    for name in removed:
        click.echo(name)
