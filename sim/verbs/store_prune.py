"""`t3sim store prune`: remove the least recently used entries."""

import click

from sim.run.store import BYTES_VARIABLE, Store
from traces.command.tables import print_json


@click.command("prune")
@click.option(
    "--bytes", "max_bytes", type=click.IntRange(min=0), help=f"Size limit of the store.  [{BYTES_VARIABLE}, 2 GiB]"
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def store_prune(max_bytes: int | None, as_json: bool) -> None:
    """Make the store smaller: remove the least recently used entries first. --bytes 0 empties it.

    Example: t3sim store prune --bytes 100000000
    """
    store = Store()
    removed = store.prune(store.max_bytes if max_bytes is None else max_bytes)
    entries = store.entries()
    size_bytes = sum(entry.size_bytes for entry in entries)
    if as_json:
        print_json({"folder": str(store.folder), "removed": len(removed), "entries": len(entries), "bytes": size_bytes})
        return
    click.echo(f"{store.folder}: {len(removed)} entries removed, {len(entries)} are left, {size_bytes / 1e6:,.1f} MB")
