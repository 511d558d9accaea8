"""Base of kernel sources that are dataclasses. Their fields determine every event."""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import ClassVar

from traces.errors import UserError
from traces.source import KernelInfo


@dataclass(frozen=True)
class ParameterKernel:
    """Base of a `traces.source.KernelSource` whose fields are numbers, enums and switches.

    A subclass sets NAME (used in messages) and VERSION. VERSION is raised when the same fields give other events.
    """

    NAME: ClassVar[str]
    VERSION: ClassVar[int]

    def fingerprint(self) -> str:
        """SHA-256 of class, version and fields."""
        content = {"version": self.VERSION, "kind": type(self).__name__, "parameters": asdict(self)}
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def make_info(
        self, name: str, *, workgroups: int, warps: int, lanes: int, registers: int, shared_bytes: int = 0
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
        )

    def check_at_least_one(self, *fields: str) -> None:
        """Refuse a field that is not a whole number of at least 1."""
        for field in fields:
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                raise UserError(f"{self.NAME} {field} = {value!r}: must be a whole number >= 1")

    def check_lanes(self, lanes: int) -> None:
        """Refuse a number of lanes that no machine has."""
        if lanes not in (32, 64):
            raise UserError(f"{self.NAME} lanes = {lanes!r}: must be 32 or 64")
