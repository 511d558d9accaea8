"""`t3sim store list`: list the runs of the store with machine and code, last used first."""

from datetime import UTC, datetime
from typing import Any

import click

from sim.results import ResultsError
from sim.results import open as open_results
from sim.run.store import Entry, Store
from tracer.elf.names import CUT, short_name
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table
from traces.units import ps_to_ns

LAST = 20
SHOWN = 12
"""Number of characters of a key or of a hash of code in the table."""
SHOWN_KERNELS = 3
"""Number of kernels of a run in the table."""


@click.command("list")
@click.option("--last", type=click.IntRange(min=1), default=LAST, show_default=True, help="Number of entries to list.")
@with_format
def store_list(last: int, as_json: bool) -> None:
    """List the runs of the store.

    "a state" marks the checkpoint of a run in progress. KEY.h5 in the folder of the store is a results archive, which
    t3sim show prints.

    Example: t3sim store list --last 5
    """
    store = Store()
    entries = store.entries()
    rows = [_described(entry, as_json) for entry in entries[:last]]
    size_bytes = sum(entry.size_bytes for entry in entries)
    if as_json:
        whole = {"folder": str(store.folder), "entries": len(entries), "bytes": size_bytes}
        print_json({**whole, "max_bytes": store.max_bytes, "last": rows})
        return
    title = f"{store.folder}: {len(entries)} entries, {size_bytes / 1e6:,.1f} of {store.max_bytes / 1e6:,.0f} MB"
    columns = ("key", "run", "machine", "time_ns", "code", "kB", "used, UTC")
    print_table(title, columns, map(_row, rows))


def _described(entry: Entry, whole: bool) -> dict[str, Any]:
    """An entry as plain values. whole: with the full names of all its kernels; else with short ones of the first."""
    plain: dict[str, Any] = {"key": entry.key, "bytes": entry.size_bytes, "used": _utc_text(entry.used_s)}
    if not entry.finished:
        return plain | {"run": "a state", "machine": "", "time_ns": None, "code": ""}
    try:
        run = open_results(entry.path).run()
    except ResultsError:
        return plain | {"run": "damaged", "machine": "", "time_ns": None, "code": ""}
    names = [kernel.name for kernel in run.kernels]
    if not whole:
        names = [short_name(name) for name in names[:SHOWN_KERNELS]] + [CUT] * (len(names) > SHOWN_KERNELS)
    plain |= {"run": ", ".join(names), "machine": run.preset.name}
    return plain | {"time_ns": ps_to_ns(run.time_ps), "code": run.code}


def _utc_text(time_s: float) -> str:
    """A time of a file; "" if no calendar has it, because the clock was wrong."""
    try:
        return datetime.fromtimestamp(time_s, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    except (ValueError, OverflowError, OSError):
        return ""


def _row(entry: dict[str, Any]) -> tuple[object, ...]:
    size_kB = round(entry["bytes"] / 1000)
    names = (entry["run"], entry["machine"], entry["time_ns"])
    return (entry["key"][:SHOWN], *names, entry["code"][:SHOWN], size_kB, entry["used"])
