"""`t3sim trace info`: what a trace archive holds."""

import click

from tracer.verbs.by_line import show_by_line
from traces.archive import describe
from traces.command.tables import print_json, print_table, print_text
from traces.units import bytes_text

COLUMNS = ("kernel", "name", "grid", "block", "registers", "shared_bytes", "workgroups", "warps", "events")


@click.command("info")
@click.argument("archive", type=click.Path())
@click.option("--by-line", is_flag=True, help="Memory traffic per source line of the traced program; reads all events.")
@click.option("--binary", type=click.Path(), help="For --by-line: the traced program, built with line tables.")
@click.option("--architecture", help="For --by-line: which code of the binary, e.g. sm_80; default: the trace's own.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with the provenance of every kernel.")
def trace_info(archive: str, by_line: bool, binary: str | None, architecture: str | None, as_json: bool) -> None:
    """Say what a trace ARCHIVE holds: kernels, their shape and resources, events. Reads no events without --by-line.

    Example: t3sim trace info gemm.h5

    Example: t3sim trace info app.h5 --by-line --binary app
    """
    if by_line != (binary is not None):
        raise click.UsageError("--by-line and --binary FILE go together")
    if binary is not None:
        show_by_line(archive, binary, architecture, as_json)
        return
    found = describe(archive)
    if as_json:
        print_json(found)
        return
    rows = [
        ["x".join(map(str, kernel[name])) if name in ("grid", "block") else kernel[name] for name in COLUMNS]
        for kernel in found["kernels"]
    ]
    print_table(f"{archive} ({bytes_text(found['file_bytes'])}, {found['writer']})", COLUMNS, rows)
    print_text(f"{found['prefills']} host copies, {bytes_text(found['prefill_bytes'])}\nchecksum {found['checksum']}")
