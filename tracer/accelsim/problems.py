"""Problems of a trace: errors with file and line, and warnings about unusual things that are understood.

A damaged trace raises `TraceError`. With `lenient` the broken part is skipped and counted instead. Unusual things that
have a clear meaning are always counted as warnings. Each kind is reported once, with its first place and its count.
"""

from dataclasses import dataclass, field
from pathlib import Path

from traces.errors import UserError


class TraceError(UserError):
    """A trace that cannot be read."""


class BadData(TraceError):
    """Compressed data that end early or are damaged. The text before the damage has been read.

    Attributes:
        kind: of the damage, for `Problems`.
        reason: what is wrong.
    """

    def __init__(self, path: Path, container: str, reason: str) -> None:
        """container: xz or tracez."""
        self.kind, self.reason = f"BAD_{container.upper()}", f"bad {container} data: {reason}"
        super().__init__(f"{path}:1: {self.reason}")


@dataclass
class Oddity:
    """One kind of warning or of skipped damage."""

    text: str
    where: str  # first place: file:line
    count: int = 0
    skipped: bool = False

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.where}: {'skipped: ' if self.skipped else ''}{self.text}{times}"


@dataclass
class Problems:
    """Warnings and skipped damage of one trace, by kind.

    Attributes:
        lenient: count damage instead of raising.
        folder: of the trace, with the separator at its end. `lines` leaves it out: a result has these lines, and must
            not depend on where the trace lies.
    """

    lenient: bool = False
    folder: str = ""
    oddities: dict[str, Oddity] = field(default_factory=dict)

    def warn(self, kind: str, where: str, text: str, count: int = 1) -> None:
        """Count an unusual thing with a clear meaning."""
        self.oddities.setdefault(kind, Oddity(text, where)).count += count

    def damage(self, kind: str, where: str, text: str, count: int = 1) -> None:
        """Raise a TraceError for damage, or count it if the reader is lenient."""
        if not self.lenient:
            raise TraceError(f"{where}: {text}")
        self.skip(kind, f"{where}: {text}", count)

    def skip(self, kind: str, message: str, count: int = 1) -> None:
        """Count a skipped part. `message` is `file:line: problem`."""
        where, _, text = message.partition(": ")
        self.oddities.setdefault(f"skipped {kind}", Oddity(text, where, skipped=True)).count += count

    def merge(self, other: "Problems") -> None:
        """Add the counts of `other`. The first places known here are kept."""
        for kind, oddity in other.oddities.items():
            mine = self.oddities.setdefault(kind, Oddity(oddity.text, oddity.where, skipped=oddity.skipped))
            mine.count += oddity.count

    @property
    def skipped(self) -> int:
        """Number of broken lines, warps or blocks that were skipped."""
        return sum(oddity.count for oddity in self.oddities.values() if oddity.skipped)

    def lines(self) -> list[str]:
        """One line per kind. Files are named from the folder of the trace."""
        return [str(oddity).removeprefix(self.folder) for oddity in self.oddities.values()]
