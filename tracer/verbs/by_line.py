"""The table of `t3sim trace info --by-line`: memory traffic of a trace per source line of the program."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tracer.elf.by_line import COUNTS, LineTraffic, attribute
from tracer.elf.line_table import line_table
from tracer.workgroup_check import checked_workgroups
from traces.archive import open_archive
from traces.command.meter import Meter
from traces.command.tables import print_json, print_table, print_text
from traces.errors import UserError
from traces.source import KernelSource, Prefill, Workgroup


def show_by_line(archive: str, binary: str, architecture: str | None, as_json: bool) -> None:
    """Print the traffic of every kernel for which the binary has a line table.

    Raises:
        UserError: no kernel has one; the message gives the first reason.
    """
    listed: list[dict[str, Any]] = []
    with open_archive(archive) as trace, Meter("workgroups") as meter:
        kernels = (command for command in trace.commands() if not isinstance(command, Prefill))
        for number, kernel in enumerate(kernels):
            entry: dict[str, Any] = {"kernel": number, "name": kernel.info.name}
            try:
                entry["lines"] = _traffic(kernel, binary, architecture, meter)
            except UserError as reason:
                entry["reason"] = str(reason)
            listed.append(entry)
    if not any("lines" in entry for entry in listed):
        raise UserError(listed[0]["reason"] if listed else f"{archive}: no kernels")
    if as_json:
        lines = [entry | {"lines": [asdict(line) for line in entry.get("lines", ())]} for entry in listed]
        print_json({"archive": archive, "binary": binary, "kernels": lines})
        return
    for entry in listed:
        if "lines" in entry:
            rows = [(_place(line), *(getattr(line, name) for name in COUNTS)) for line in entry["lines"]]
            print_table(f"kernel {entry['kernel']}: {entry['name']}", ("line", *COUNTS), rows)
        else:
            print_text(f"kernel {entry['kernel']}: {entry['name']}: {entry['reason']}")


def _traffic(kernel: KernelSource, binary: str, architecture: str | None, meter: Meter) -> list[LineTraffic]:
    """Totals of one kernel. The default architecture is the one named in the trace."""
    table = line_table(binary, kernel.info.name, architecture or kernel.info.attributes.get("architecture"))
    return attribute(_watched(kernel, meter), table)


def _watched(kernel: KernelSource, meter: Meter) -> Iterator[Workgroup]:
    """The workgroups of a kernel. Each is reported to the meter."""
    for done, workgroup in enumerate(checked_workgroups(kernel), 1):
        yield workgroup
        meter.update(kernel.info.name, done, kernel.info.workgroups)


def _place(line: LineTraffic) -> str:
    return f"{line.file}:{line.line}" if line.file else "(program counter not in the line table)"
