"""Energy of a run: counted events times picojoules per event, each figure with its source and its range.

The model has dynamic energy only: no leakage, no clock tree of idle units, no fans (D27). The lowest and highest
published figures of an event differ by factors. So every sum has a low and a high end: all events at their low figures,
or all at their high figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sim.hw.request import SECTOR_BYTES
from sim.presets.load import choices
from traces.errors import UserError
from traces.toml_file import read_toml
from traces.units import KIB

FOLDER = Path(__file__).parent / "presets" / "energy"
DEFAULT = "hbm2_12nm"
KINDS = ("published", "derived", "assumed")
"""published: a figure of a named publication or data sheet. derived: from published figures. assumed: our choice."""
PJ_PER_UJ = 1_000_000


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Energy of one event in pJ: the value used, and the lowest and highest values of the sources."""

    value: float
    low: float
    high: float
    kind: str
    source: str


@dataclass(frozen=True)
class Event:
    """A kind of event that costs energy.

    Attributes:
        counters: "unit.counter" whose sum is the number of events.
        bytes: bytes moved per event, 0 if the event moves none.
        meaning: one line.
    """

    counters: tuple[str, ...]
    bytes: int
    meaning: str


EVENTS = {
    "dram.activate_pJ_per_KiB": Event(("hbm.acts",), 0, "activate and precharge a row, per KiB of the row"),
    "dram.read_pJ": Event(("hbm.read_columns",), SECTOR_BYTES, "read a 32-byte column"),
    "dram.write_pJ": Event(("hbm.write_columns",), SECTOR_BYTES, "write a 32-byte column"),
    "dram.update_pJ": Event(("hbm.update_columns",), SECTOR_BYTES, "near-memory op-and-store of a 32-byte column"),
    "dram.refresh_pJ": Event(("hbm.refreshes",), 0, "refresh all banks of a channel"),
    "l2.sector_pJ": Event(
        (
            *("l2.read_sectors", "l2.write_sectors", "l2.atomic_sectors"),
            *("l2.read_miss_sectors", "l2.atomic_miss_sectors", "l2.writeback_sectors", "l2.flush_sectors"),
            *("copies.copy_miss_sectors", "copies.copy_miss_sectors"),  # read at the home, filled at the copy
        ),
        SECTOR_BYTES,
        "a sector read, written, filled or written back",
    ),
    "l1.sector_pJ": Event(
        ("l1.read_sectors", "l1.write_sectors", "bulk.read_sectors", "bulk.write_sectors", "bulk.sent_sectors"),
        SECTOR_BYTES,
        "a sector to or from registers, or of a bulk copy to or from shared memory",
    ),
    "shared.byte_pJ": Event(("cu.shared_bytes",), 1, "a byte through the shared-memory port"),
    "noc.byte_pJ": Event(
        ("noc.request_bytes", "noc.cu_bytes", "peers.packet_bytes", "peers.answer_bytes"),
        1,
        "a byte from or to a CU through the crossbar",
    ),
    "link.byte_pJ": Event(("link.bytes",), 1, "a byte to another GPU"),
    "dma.byte_pJ": Event(("dma.read_bytes",), 1, "a byte through a DMA engine"),
    "mac.op_pJ": Event(("cu.tensor_macs",), 0, "a multiply-accumulate of the matrix unit"),
}
"""Figure of a preset -> the event that it belongs to."""


@dataclass(frozen=True)
class EnergyPreset:
    """Energies of all events.

    Attributes:
        name, title: of the preset.
        figures: EVENTS key -> Figure.
    """

    name: str
    title: str
    figures: dict[str, Figure]


@dataclass(frozen=True)
class Part:
    """Energy of one kind of event in a run.

    Attributes:
        event: key of EVENTS.
        events: number of events.
        moved_bytes: bytes that they moved.
        pJ, low_pJ, high_pJ: their energy.
    """

    event: str
    events: int
    moved_bytes: int
    pJ: float
    low_pJ: float
    high_pJ: float

    @property
    def unit(self) -> str:
        return self.event.partition(".")[0]


@dataclass(frozen=True)
class Energy:
    """Energy of a run, by kind of event.

    Attributes:
        preset: name of the energies used.
        parts: in the order of EVENTS.
        dram_bytes: bytes moved at the DRAM, the divisor in `as_dict`.
    """

    preset: str
    parts: tuple[Part, ...]
    dram_bytes: int

    def as_dict(self) -> dict:
        """Plain values for JSON: totals in uJ with low and high, energy per DRAM byte in pJ, and the same by unit."""
        return {
            "preset": self.preset,
            **_sums(self.parts),
            "pJ_per_dram_byte": _ratio(sum(part.pJ for part in self.parts), self.dram_bytes),
            "units": {unit: self._unit_dict(unit) for unit in dict.fromkeys(part.unit for part in self.parts)},
        }

    def _unit_dict(self, unit: str) -> dict:
        parts = [part for part in self.parts if part.unit == unit]
        moved = sum(part.moved_bytes for part in parts)
        return {
            **_sums(parts),
            "share": _ratio(sum(part.pJ for part in parts), sum(part.pJ for part in self.parts)),
            "bytes": moved,
            "pJ_per_byte": _ratio(sum(part.pJ for part in parts), moved),
        }


def _sums(parts) -> dict[str, float]:
    return {
        "uJ": sum(part.pJ for part in parts) / PJ_PER_UJ,
        "low_uJ": sum(part.low_pJ for part in parts) / PJ_PER_UJ,
        "high_uJ": sum(part.high_pJ for part in parts) / PJ_PER_UJ,
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def energy_presets() -> list[str]:
    """Names of the energy presets of t3sim, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_energy(name_or_path: str | Path = DEFAULT) -> EnergyPreset:
    """Read an energy preset.

    Args:
        name_or_path: a name of `energy_presets()`, or the path of a TOML file.

    Raises:
        UserError: unknown name, unknown or missing field, wrong kind, low > value or value > high.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        if str(name_or_path) not in energy_presets():
            raise UserError(f"no energies {str(name_or_path)!r}; {choices(str(name_or_path), energy_presets())}")
        path = FOLDER / f"{name_or_path}.toml"
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    content = read_toml(path)
    title = str(content.pop("title", path.stem))
    content.pop("note", None)
    return EnergyPreset(path.stem, title, _figures(content, path))


def _figures(content: dict, path: Path) -> dict[str, Figure]:
    found: dict[str, object] = {}
    for unit, table in content.items():
        found |= {f"{unit}.{name}": leaf for name, leaf in table.items()} if isinstance(table, dict) else {unit: table}
    unknown = [field for field in found if field not in EVENTS]
    if unknown:
        raise UserError(f"{path}: {unknown[0]}: unknown field; {choices(unknown[0], EVENTS)}")
    missing = [field for field in EVENTS if field not in found]
    if missing:
        raise UserError(f"{path}: {missing[0]}: missing; give value, low, high, kind and source")
    return {field: _figure(found[field], f"{path}: {field}") for field in EVENTS}


def _figure(leaf: object, where: str) -> Figure:
    try:
        figure = msgspec.convert(leaf, Figure)
    except msgspec.ValidationError as problem:
        raise UserError(f"{where}: {problem}; allowed are value, low, high, kind and source") from None
    if not 0 <= figure.low <= figure.value <= figure.high:
        raise UserError(
            f"{where}: found low {figure.low}, value {figure.value}, high {figure.high}; "
            "allowed are rising numbers from 0"
        )
    if figure.kind not in KINDS:
        raise UserError(f"{where}: kind: found {figure.kind!r}; {choices(figure.kind, KINDS)}")
    if not figure.source.strip():
        raise UserError(f"{where}: source: found nothing, allowed is a text that names the source")
    return figure


def energy_of(totals: Mapping[str, int], row_bytes: int, preset: EnergyPreset) -> Energy:
    """Energy of counted events.

    Args:
        totals: "unit.counter" -> sum over the instances (`RunResult.totals`); of one GPU.
            Units that the machine does not have are missing.
        row_bytes: row size of the machine's DRAM (`hbm.row_bytes`).
        preset: energies of all events.
    """
    parts, units = [], {counter.partition(".")[0] for counter in totals}
    for name, event in EVENTS.items():
        figure = preset.figures[name]
        count = sum(totals[counter] for counter in event.counters if counter.partition(".")[0] in units)
        scale = row_bytes / KIB if name == "dram.activate_pJ_per_KiB" else 1
        energies = (count * scale * pJ for pJ in (figure.value, figure.low, figure.high))
        parts.append(Part(name, count, count * event.bytes, *energies))
    dram_bytes = sum(part.moved_bytes for part in parts if part.unit == "dram")
    return Energy(preset.name, tuple(parts), dram_bytes)
