"""Spaces of machines: named factors with levels, a design that picks machines from them, and what they should meet.

The design is a sequence of Latin hypercubes. Each block of BLOCK machines has every level of a factor equally often (or
once more or less), in an order of its own. So all factors change at once and interactions can be seen. The order comes
from SHA-256 of the seed, the factor's name and the block. So machine k is the same for ever: on every computer, for any
number of machines, and whatever other factors the space has.
"""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from itertools import combinations
from pathlib import Path

import msgspec

from traces.errors import UserError
from traces.toml_file import read_toml

FOLDER = Path(__file__).parent / "spaces"
BLOCK = 12
"""Machines of a hypercube."""


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One choice of a factor.

    Attributes:
        value: in words; unique within the factor.
        overrides, kernel: as in Workbench, added to those of the experiment.
    """

    value: str
    overrides: tuple[str, ...] = ()
    kernel: dict[str, int | str] = {}

    @property
    def fields(self) -> set[str]:
        """Names of the fields that it sets."""
        return {text.partition("=")[0] for text in self.overrides} | {f"kernel.{name}" for name in self.kernel}


class Factor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One property of the machine or of the GEMM kernel.

    Attributes:
        name: unique within the space.
        reason: why the levels are possible, and why none is beyond the first and the last.
        level: the levels. The first one is the experiment's base and sets no field.
    """

    name: str
    reason: str
    level: tuple[Level, ...]

    @property
    def fields(self) -> set[str]:
        return {field for level in self.level for field in level.fields}


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published aggregate that a machine should meet.

    Attributes:
        claim: its id (`validation/claims`).
        tolerance: None = that of the claim.
        fit: False = left out of the distance, to check the machines that are near.
    """

    claim: str
    tolerance: float | None = None
    fit: bool = True


class Proposed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine that the design has not drawn.

    Attributes:
        name: unique within the space; no number.
        of: name of the machine that it is made of, which must be above it in the file; "" = the base.
        reason: why it was put together.
        level: factor -> level in words; factors that are not named are as in `of`.
    """

    name: str
    of: str = ""
    reason: str
    level: dict[str, str]


class Space(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The bounds within which machines are looked for.

    Attributes:
        title: one line for people.
        left_out: what could vary and does not, in words, with the reason.
        seed: of the design.
        gemm_of_peak: least share of the matrix peak that the GEMM alone must reach in each sub-layer. Machines with a
            slower one are simulated, but do not count: no library has such a kernel.
        factor: the factors. No two set the same field.
        target: the published aggregates.
        proposed: machines beside those of the design.
    """

    title: str
    left_out: tuple[str, ...] = ()
    seed: int
    gemm_of_peak: float = 0.0
    factor: tuple[Factor, ...]
    target: tuple[Target, ...]
    proposed: tuple[Proposed, ...] = ()

    def machine(self, which: int | str) -> dict[str, Level]:
        """Factor -> level of a machine.

        Args:
            which: number in the design, from 0 on; or name in `proposed`.

        Raises:
            UserError: no such machine, factor or level.
        """
        if isinstance(which, str):
            return self._proposed(which)
        block, place = divmod(which, BLOCK)
        machine = {}
        for factor in self.factor:
            order = _order(self.seed, factor.name, block)
            machine[factor.name] = factor.level[order[place] * len(factor.level) // BLOCK]
        return machine

    def _proposed(self, name: str) -> dict[str, Level]:
        given = {each.name: each for each in self.proposed}
        if name not in given:
            raise UserError(f"machine {name!r}: the space proposes {', '.join(given) or 'none'}")
        of, level = given[name].of, given[name].level
        return (self._proposed(of) if of else self.base()) | self.levels(level, f"machine {name}")

    def levels(self, words: Mapping[str, str], where: str) -> dict[str, Level]:
        """Factor -> level, of factor -> level in words.

        Raises:
            UserError: no such factor or level; begins with `where`.
        """
        levels = {factor.name: {level.value: level for level in factor.level} for factor in self.factor}
        for factor, value in words.items():
            if value not in levels.get(factor, {}):
                allowed = levels.get(factor, levels)
                raise UserError(f"{where}: found {factor} = {value!r}, allowed are {', '.join(allowed)}")
        return {factor: levels[factor][value] for factor, value in words.items()}

    def base(self) -> dict[str, Level]:
        """Factor -> level of the experiment's base."""
        return {factor.name: factor.level[0] for factor in self.factor}


@cache
def load_space(name: str, folder: Path = FOLDER) -> Space:
    """Read a file of `spaces` (`name` without .toml).

    Raises:
        UserError: no such file, an invalid file, a first level that sets a field, two levels of one name, two factors
            that set one field, two machines of one name, or one made of a machine that is not above it.
    """
    path = folder / f"{name}.toml"
    if not path.exists():
        there = ", ".join(sorted(each.stem for each in folder.glob("*.toml")))
        raise UserError(f"space {name!r}: no such file in {folder.name}; there are {there}")
    try:
        space = msgspec.convert(read_toml(path), Space)
    except msgspec.ValidationError as problem:
        raise UserError(f"{path.name}: {problem}") from None
    for factor in space.factor:
        check_factor(factor, path.name)
    for first, second in combinations(space.factor, 2):
        if shared := first.fields & second.fields:
            raise UserError(f"{path.name}: {first.name} and {second.name} both set {', '.join(sorted(shared))}")
    _check_proposed(space.proposed, path.name)
    return space


def _check_proposed(machines: tuple[Proposed, ...], where: str) -> None:
    """Refuse a second machine of one name, and one that is not made of a machine above it."""
    above = [""]
    for each in machines:
        if each.name in above:
            raise UserError(f"{where}: machine {each.name!r}: found twice or empty, allowed is a name of its own")
        if each.of not in above:
            raise UserError(f"{where}: machine {each.name!r}: found of = {each.of!r}, allowed are machines above it")
        above.append(each.name)


def check_factor(factor: Factor, where: str) -> None:
    """Refuse a factor whose levels cannot be told apart, or whose first level is not the base.

    Raises:
        UserError: names the factor; the message begins with `where`.
    """
    names = [level.value for level in factor.level]
    if not 2 <= len(names) <= BLOCK or len(set(names)) < len(names):
        raise UserError(f"{where}: {factor.name}: found {names}, allowed are 2 to {BLOCK} levels of different names")
    if factor.level[0].fields:
        raise UserError(f"{where}: {factor.name}: the first level, {names[0]!r}, is the base: it may set no field")


@cache
def _order(seed: int, factor: str, block: int) -> tuple[int, ...]:
    """A permutation of range(BLOCK)."""
    return tuple(sorted(range(BLOCK), key=lambda place: sha256(f"{seed}/{factor}/{block}/{place}".encode()).digest()))
