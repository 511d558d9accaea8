"""The table of `t3sim trace info --by-line`: memory traffic of a trace per source line of the program."""

from collections.abc import Collection, Iterator
from dataclasses import asdict
from typing import Any

from tracer.elf.by_line import COUNTS, LineTraffic, attribute
from tracer.elf.line_table import line_table
from tracer.workgroup_check import checked_workgroups
from traces.archive import open_archive
from traces.command.meter import Meter
from traces.command.tables import print_json, print_table, print_text
from traces.errors import UserError
from traces.source import KernelSource, Prefill, TraceSource, Workgroup


def show_by_line(archive: str, binary: str, architecture: str | None, as_json: bool) -> None:
    """Print the traffic of every kernel of a trace archive for which the binary has a line table.

    Raises:
        UserError: no kernel has one; the message gives the first reason.
    """
    with open_archive(archive) as trace:
        listed = traffic_by_line(trace, binary, architecture)
    if not listed:
        raise UserError(f"{archive}: no kernels")
    if as_json:
        print_json({"archive": archive, "binary": binary, "kernels": listed})
        return
    print_by_line(listed)


def traffic_by_line(
    trace: TraceSource, binary: str, architecture: str | None = None, numbers: Collection[int] | None = None
) -> list[dict[str, Any]]:
    """The traffic of each kernel by line, or the reason why it has no line table, as plain values.

    Args:
        trace: an archive, or the text of Accel-Sim.
        numbers: of the kernels, counted from 0; None = all.

    Raises:
        UserError: no kernel has a line table; the message gives the first reason.
    """
    listed: list[dict[str, Any]] = []
    with Meter("workgroups") as meter:
        kernels = (command for command in trace.commands() if not isinstance(command, Prefill))
        for number, kernel in enumerate(kernels):
            if numbers is not None and number not in numbers:
                continue
            entry: dict[str, Any] = {"kernel": number, "name": kernel.info.name, "lines": []}
            try:
                entry["lines"] = [asdict(line) for line in _traffic(kernel, binary, architecture, meter)]
            except UserError as reason:
                entry["reason"] = str(reason)
            listed.append(entry)
    if listed and all("reason" in entry for entry in listed):
        raise UserError(listed[0]["reason"])
    return listed


def print_by_line(listed: list[dict[str, Any]]) -> None:
    """Print what `traffic_by_line` gives."""
    for entry in listed:
        if "reason" in entry:
            print_text(f"kernel {entry['kernel']}: {entry['name']}: {entry['reason']}")
        else:
            rows = [(_place(line), *(line[name] for name in COUNTS)) for line in entry["lines"]]
            print_table(f"kernel {entry['kernel']}: {entry['name']}", ("line", *COUNTS), rows)


def _traffic(kernel: KernelSource, binary: str, architecture: str | None, meter: Meter) -> list[LineTraffic]:
    """Totals of one kernel. The default architecture is the one named in the trace."""
    table = line_table(binary, kernel.info.name, architecture or kernel.info.attributes.get("architecture"))
    return attribute(_watched(kernel, meter), table)


def _watched(kernel: KernelSource, meter: Meter) -> Iterator[Workgroup]:
    """The workgroups of a kernel. Each is reported to the meter."""
    for done, workgroup in enumerate(checked_workgroups(kernel), 1):
        yield workgroup
        meter.update(kernel.info.name, done, kernel.info.workgroups)


def _place(line: dict[str, Any]) -> str:
    return f"{line['file']}:{line['line']}" if line["file"] else "(program counter not in the line table)"
