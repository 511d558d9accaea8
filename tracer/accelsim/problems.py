"""What is wrong with a trace: errors with file and line, and the account of what was odd but understood.

A damaged trace raises `TraceError`. Under `lenient` the broken part is skipped instead, and counted. Oddities whose
meaning is plain are counted as warnings either way; each kind is reported once, with its first place and its count.
"""

from dataclasses import dataclass, field

from traces.errors import UserError


class TraceError(UserError):
    """A trace that cannot be read as it stands."""


@dataclass
class Oddity:
    """One kind of warning, or of skipped damage."""

    text: str
    where: str  # first place: file:line
    count: int = 0
    skipped: bool = False

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.where}: {'skipped: ' if self.skipped else ''}{self.text}{times}"


@dataclass
class Problems:
    """Warnings and skipped damage of one trace, by kind."""

    lenient: bool = False
    oddities: dict[str, Oddity] = field(default_factory=dict)

    def warn(self, kind: str, where: str, text: str, count: int = 1) -> None:
        """Count an oddity whose meaning is plain."""
        self.oddities.setdefault(kind, Oddity(text, where)).count += count

    def damage(self, kind: str, where: str, text: str) -> None:
        """Raise for damage, or count it where the reader is lenient."""
        if not self.lenient:
            raise TraceError(f"{where}: {text}")
        self.skip(kind, f"{where}: {text}")

    def skip(self, kind: str, message: str) -> None:
        """Count something left out; `message`: file:line: what was wrong."""
        where, _, text = message.partition(": ")
        self.oddities.setdefault(f"skipped {kind}", Oddity(text, where, skipped=True)).count += 1

    def merge(self, other: "Problems") -> None:
        """Count what another account has; its first places come after those known here."""
        for kind, oddity in other.oddities.items():
            mine = self.oddities.setdefault(kind, Oddity(oddity.text, oddity.where, skipped=oddity.skipped))
            mine.count += oddity.count

    @property
    def skipped(self) -> int:
        """Broken lines, warps or blocks left out."""
        return sum(oddity.count for oddity in self.oddities.values() if oddity.skipped)

    def lines(self) -> list[str]:
        """One line per kind."""
        return [str(oddity) for oddity in self.oddities.values()]
