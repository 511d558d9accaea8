"""Base of kernel sources that are dataclasses. Their fields determine every event."""

import json
from dataclasses import asdict, dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, ClassVar

from traces.bounds import Bound, check_whole_numbers
from traces.errors import UserError
from traces.source import KernelInfo

SIZES = {
    **dict.fromkeys(("rows", "tokens"), Bound(1, 1 << 31, "far more than the tokens of a model")),
    **dict.fromkeys(("cols", "hidden", "vocab"), Bound(1, 1 << 31, "far more than the width of a model")),
    **dict.fromkeys(("batch", "seq"), Bound(1, 1 << 24, "far more than a model takes at once")),
    **dict.fromkeys(("heads", "kv_heads"), Bound(1, 1 << 16, "far more than a model has")),
    **dict.fromkeys(("experts", "top_k"), Bound(1, 1 << 16, "far more than a model has")),
    "head_dim": Bound(1, 1 << 12, "far more than a model has"),
    "parameters": Bound(1, 1 << 42, "far more than a model has"),
    "element_bytes": Bound(1, 8, "the types of elements"),
    "warps": Bound(1, 32, "a workgroup has at most 1024 threads"),
    **dict.fromkeys(("unroll", "passes", "turns"), Bound(1, 64, "an access in flight has a slot of the scoreboard")),
}
"""Ranges of the sizes of operators, by the name of the field."""
ACCESSES_MAX = 100_000_000_000
"""Warp accesses of a kernel."""


def field_text(value: Any) -> str:
    """A value of a field as it is written in the text of a kernel."""
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return (value.name if isinstance(value, Enum) else str(value)).lower()


@dataclass(frozen=True)
class ParameterKernel:
    """Base of a `traces.source.KernelSource` whose fields are numbers, enums and switches.

    A subclass sets NAME (used in messages) and VERSION. VERSION is raised when the same fields give other events.
    BOUNDS has the range of every number.
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[int]
    BOUNDS: ClassVar[dict[str, Bound]]

    def fingerprint(self) -> str:
        """SHA-256 of class, version and fields."""
        content = {"version": self.VERSION, "kind": type(self).__name__, "parameters": asdict(self)}
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def make_info(
        self,
        name: str,
        *,
        workgroups: int,
        warps: int,
        lanes: int,
        registers: int,
        shared_bytes: int = 0,
        cluster: int = 1,
    ) -> KernelInfo:
        """The KernelInfo of a one-dimensional grid in stream 0."""
        return KernelInfo(
            name=name,
            grid=(workgroups, 1, 1),
            block=(warps * lanes, 1, 1),
            lanes_per_warp=lanes,
            registers=registers,
            shared_bytes=shared_bytes,
            stream=0,
            warps_per_workgroup=warps,
            workgroups=workgroups,
            attributes={"source": type(self).__module__, "version": self.VERSION, "parameters": asdict(self)},
            cluster=cluster,
        )

    def check_fields(self) -> None:
        """Refuse numbers outside BOUNDS."""
        check_whole_numbers(self.NAME, self, self.BOUNDS)

    def check_sizes(self, *fields: str) -> None:
        """Refuse numbers outside SIZES."""
        check_whole_numbers(self.NAME, self, {field: SIZES[field] for field in fields})

    def check_accesses(self, accesses: int) -> None:
        """Refuse a kernel whose warps make so many accesses that its simulation would take days."""
        if accesses > ACCESSES_MAX:
            raise UserError(
                f"{self.NAME} of {accesses:,} warp accesses: allowed are {ACCESSES_MAX:,}, which are a few days of "
                "simulation"
            )

    def check_lanes(self, lanes: int) -> None:
        """Refuse a number of lanes that no machine has."""
        if lanes not in (32, 64):
            raise UserError(f"{self.NAME} lanes = {lanes!r}: must be 32 or 64")
