"""`t3sim trace info`: show the content of a trace archive."""

from typing import Any

import click

from tracer.elf.names import short_name
from tracer.verbs.by_line import show_by_line
from traces.archive import describe
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table, print_text, print_warnings
from traces.units import bytes_text

COLUMNS = ("kernel", "name", "grid", "block", "registers", "shared_bytes", "workgroups", "warps", "events")


@click.command("info")
@click.argument("archive", type=click.Path())
@click.option("--by-line", is_flag=True, help="Memory traffic per source line of the traced program; reads all events.")
@click.option("--binary", type=click.Path(), help="For --by-line: the traced program, built with line tables.")
@click.option(
    "--architecture",
    help="For --by-line: architecture of the code in the binary, e.g. sm_80; default: the one named in the trace.",
)
@with_format
def trace_info(archive: str, by_line: bool, binary: str | None, architecture: str | None, as_json: bool) -> None:
    """Show the content of a trace ARCHIVE: kernels, their shape and resources, events.

    Without --by-line the command reads no events. --json has the provenance of every kernel. Warnings of the import are
    on stderr.

    Example: t3sim trace info gemm.h5

    Example: t3sim trace info app.h5 --by-line --binary app
    """
    if by_line != (binary is not None):
        raise click.UsageError("--by-line and --binary FILE go together")
    if architecture is not None and not by_line:
        raise click.UsageError("--architecture is for --by-line")
    if binary is not None:
        show_by_line(archive, binary, architecture, as_json)
        return
    content = describe(archive)
    if as_json:
        print_json(content)
        return
    print_warnings(content["warnings"])
    clustered = any(kernel["cluster"] > 1 for kernel in content["kernels"])
    columns = (*COLUMNS, "cluster") if clustered else COLUMNS
    rows = [[_cell(name, kernel[name]) for name in columns] for kernel in content["kernels"]]
    print_table(f"{archive} ({bytes_text(content['file_bytes'])}, {content['writer']})", columns, rows)
    print_text(
        f"{content['prefills']} host copies, {bytes_text(content['prefill_bytes'])}\nchecksum {content['checksum']}"
    )


def _cell(column: str, value: Any) -> Any:
    if column == "name":
        return short_name(value)
    return "x".join(map(str, value)) if column in ("grid", "block") else value
