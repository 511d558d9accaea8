"""The machine of a collective of a library: links and software are those of its row (`sim/collective/library.toml`)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sim.collective.library import LINE_BYTES, Choice, Row, row_of, topology_of
from sim.presets import Preset
from sim.presets.check import check_machine
from sim.presets.preset import OVERRIDE, Source
from sim.run.many_gpus import replace_unit
from traces.errors import UserError

CREDITS = 16_384
"""2 MB of lines: more than rate x round trip of every link of the library (NVLink 5: 722 KB)."""


def library_preset(preset: Preset, choice: Choice) -> Preset:
    """The machine with the links and the software of a choice. Values that the user has set stay.

    Raises:
        UserError: more channels than CUs.
    """
    if not 1 <= choice.channels <= preset.machine.cu.count:
        found, most = choice.channels, preset.machine.cu.count
        raise UserError(f"channels: found {found}, allowed are 1 to {most}: a channel keeps one CU of {preset.name}")
    row, protocol = row_of(choice.row), choice.figures
    source = f"sim/collective/library.toml, row {choice.row}, {choice.algorithm} {choice.protocol}"
    values: dict[str, tuple[Any, str]] = {
        "link.topology": (topology_of(row), "standard"),
        "link.GB_per_s": (row.GB_per_s * row.links_share(choice.together), "standard"),
        "link.efficiency": (choice.software.efficiency or row.efficiency, "calibrated"),
        "link.header_bytes": (protocol.wire_bytes - LINE_BYTES, "standard"),
        "link.credits": (CREDITS, "assumed"),
        "network.header_bytes": (protocol.wire_bytes - LINE_BYTES, "standard"),
        "network.credits": (CREDITS, "assumed"),
        "collective.cus": (choice.channels, "assumed"),
        "collective.workgroups": (1, "standard"),
        "collective.warps": (choice.warps, "standard"),
        "collective.unroll": (row.loads, "assumed"),
        "collective.shared_bytes": (choice.warps * row.scratch_bytes, "standard"),
        "collective.launch_ps": (choice.launch_ps, "calibrated"),
        "collective.step_ps": (protocol.step_ps, "standard"),
        "collective.pulls": (choice.pulls, "standard"),
    }
    node_gpus = choice.together or preset.machine.network.node_gpus or row.gpus
    kept = {field: value for field, value in values.items() if preset.sources[field].kind != OVERRIDE}
    if choice.nodes > 1:
        own = preset.sources["network.GB_per_s"].kind == OVERRIDE
        kept["network.GB_per_s"] = (cards_GB_per_s(preset, row, node_gpus), OVERRIDE if own else "standard")
    if choice.nodes > 1 and not preset.machine.network.node_gpus:
        kept["network.node_gpus"] = (node_gpus, "standard")
    return with_values(preset, kept, source)


def cards_GB_per_s(preset: Preset, row: Row, gpus: int) -> float:
    """Rate of the network cards of so many GPUs of a node. A card is as the user says, or as in the row."""
    own = preset.sources["network.GB_per_s"].kind == OVERRIDE
    return gpus * (preset.machine.network.GB_per_s if own else row.card_GB_per_s)


def with_values(preset: Preset, values: Mapping[str, tuple[Any, str]], source: str) -> Preset:
    """The machine with other values. values: field -> (value, kind of evidence)."""
    units: dict[str, dict[str, Any]] = {}
    for field, (value, _) in values.items():
        unit, _, name = field.partition(".")
        units.setdefault(unit, {})[name] = value
    machine = replace_unit(preset.machine, **units)
    check_machine(machine, preset.name)
    sources = preset.sources | {field: Source(kind, source) for field, (_, kind) in values.items()}
    return replace(preset, machine=machine, sources=sources)
