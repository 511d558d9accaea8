"""A loaded preset: one machine and the evidence for each of its values."""

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from sim.presets.peaks import Peaks
from sim.spec import Machine

KINDS = ("paper", "standard", "measured", "assumed", "calibrated", "derived")
"""Evidence for a value. paper: the T3 paper. standard: a standard, a data sheet or a named simulator's configuration.
measured: on the real machine. calibrated: chosen to match a named measurement. derived: follows from other values.
assumed: our choice; every run lists these values."""
OVERRIDE = "override"
"""Kind of a value that the user set for one run."""
BORROWED = "borrowed"
"""Kind of a value that the preset does not give: it is that of the machine of the T3 paper (`fabric/t3.toml`)."""


@dataclass(frozen=True)
class Source:
    """Evidence for a value: its kind (one of KINDS, BORROWED or OVERRIDE) and a reference."""

    kind: str
    source: str


@dataclass(frozen=True)
class Preset:
    """A machine with the source of every value.

    Attributes:
        name: name of the preset, or path of the file.
        title: one line for people.
        machine: the values.
        sources: dotted field ("hbm.timing.CL") -> Source, one for each value of the machine.
        replaced: dotted field -> plain value that an override replaced. Archives do not have it.
    """

    name: str
    title: str
    machine: Machine
    sources: dict[str, Source]
    replaced: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def values(self):
        """Dotted field -> plain value (int, float, bool, or the lower-case name of an enum), in field order."""
        return dict(leaves(self.machine))

    def peaks(self):
        """Peak rates that follow from the values (sim.presets.peaks.Peaks)."""
        return Peaks.of(self.machine)

    def as_dict(self):
        """Everything as plain nested dicts for a results archive. `preset_from_dict` reads them."""
        fields = {
            field: {"value": value, "kind": self.sources[field].kind, "source": self.sources[field].source}
            for field, value in self.values().items()
        }
        return {"name": self.name, "title": self.title, "fields": fields}


def assumed(preset):
    """Dotted field -> (value, source), for the values that are only our choice."""
    return _of_kind(preset, "assumed")


def borrowed(preset):
    """Dotted field -> (value, source), for the values that the preset takes from the machine of the T3 paper."""
    return _of_kind(preset, BORROWED)


def _of_kind(preset, kind):
    return {
        field: (value, preset.sources[field].source)
        for field, value in preset.values().items()
        if preset.sources[field].kind == kind
    }


def leaves(unit, prefix=""):
    """(dotted field, plain value) of every value of a spec struct, in field order."""
    for field in unit.__struct_fields__:
        value = getattr(unit, field)
        if isinstance(value, msgspec.Struct):
            yield from leaves(value, f"{prefix}{field}.")
        else:
            yield prefix + field, value.name.lower() if isinstance(value, Enum) else value
