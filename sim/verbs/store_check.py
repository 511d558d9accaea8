"""`t3sim store check`: read every result and remove damaged ones."""

import click

from sim.run.store import Store
from traces.command.tables import print_json


@click.command("check")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def store_check(as_json: bool) -> None:
    """Read every result of the store and check its seal and its key. Damaged results are removed.

    Example: t3sim store check
    """
    store = Store()
    removed = [path.name for path in store.check()]
    whole = sum(entry.finished for entry in store.entries())
    if as_json:
        print_json({"folder": str(store.folder), "whole": whole, "removed": removed})
        return
    click.echo(f"{store.folder}: {whole} results are whole, {len(removed)} were damaged and have been removed")
    for name in removed:
        click.echo(name)
