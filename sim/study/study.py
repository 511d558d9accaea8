"""A study file: base settings, and the points that change some of them. A point is one run or one scenario.

    title = "How deep a DRAM queue does it take?"
    run = "kernel"
    preset = "t3_2024"
    interval_ns = 1000
    kernel = "gemm:m=1024,n=1024,k=512"

    [set]                       # values of the machine, for all points
    l2.mshrs = 256

    [axes]                      # all combinations; the last axis changes fastest, axes of one unit stand together
    hbm.queue_entries = [16, 32, 64]
    kernel.pipeline_depth = [2, 3]

    [[points]]                  # a list; each is combined with every point of the axes
    hbm.queue = "split"

Any field of `sim.study.fields` is allowed in the base, an axis or a listed point. The digest of a study depends on its
content: the machines with their sources, the traces' fingerprints, the policies' text, and the sources of the
simulator. Layout, comments and names of files that are not swept do not change it.
"""

import hashlib
import itertools
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from sim.run.policy_file import check_syntax
from sim.study.fields import DEFAULTS, PATHS, StudyError, checked_field, kernel_of
from sim.study.point import Point
from tracer.compile.fingerprint import source_fingerprint
from traces.checksum import canonical_json
from traces.errors import UserError
from traces.toml_file import read_toml
from traces.version import VERSION

TABLES = ("axes", "points", "set", "t3")
POINTS_MAX = 10_000
"""Limit against typing errors: more points fill the memory."""


@dataclass(frozen=True)
class Study:
    """The points of a study file.

    Attributes:
        name: name of the file, without .toml.
        title: one line for people.
        points: in the order of the file.
    """

    name: str
    title: str
    points: list[Point]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content; part of the archive's name."""
        content = [simulator_digest(), *(point.digest for point in self.points)]
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    @property
    def archive_name(self) -> str:
        """Name of the results file."""
        return f"{self.name}-{self.digest[:12]}.h5"


def load_study(path: str | Path) -> Study:
    """Read a study file.

    Raises:
        StudyError: no such file, not TOML, an unknown field, a value that its field does not allow, a field both in
            axes and in points, an empty axis, too many points; no point can run.
    """
    path = Path(path)
    if not path.is_file():
        raise StudyError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}")
    content = read_toml(path, StudyError)
    title = content.pop("title", path.stem)
    if not isinstance(title, str):
        raise StudyError(f"{path}: title: found {title!r}, allowed is a text")
    tables = {name: content.pop(name, [] if name == "points" else {}) for name in TABLES}
    base = _base(path, content, tables)
    space = _coordinates(path, _axes(path, tables["axes"]), _listed(path, tables["points"]))
    return Study(path.stem, title, _points(path, base, space))


def _points(path: Path, base: dict[str, Any], space: list[dict[str, Any]]) -> list[Point]:
    points = []
    for number, coordinates in enumerate(space):
        _check_files(path, base | coordinates)
        _check_kernel(path, base | coordinates)
        points.append(Point(number, base | coordinates, coordinates, str(path.parent.resolve())))
    contents = [point.content for point in points]  # read now, before the files can change
    if all("failure" in content for content in contents):
        raise StudyError(f"{path}: no point can run: {contents[0]['failure']}")
    return points


@cache
def simulator_digest() -> str:
    """Version, and fingerprint of all sources that results depend on."""
    return f"t3sim {VERSION} {source_fingerprint(__name__, __file__)}"


def _check_files(path: Path, settings: dict[str, Any]) -> None:
    """Refuse a study that names a missing file, or a policy that is not Python. This is an error of the study, not of
    one point."""
    for name in (*PATHS, "preset"):
        file = settings.get(name, "")
        if (name in PATHS or file.endswith(".toml")) and name in settings and not (path.parent / file).is_file():
            raise StudyError(f"{path}: {name}: no file {file}")
    if "policy" in settings:
        try:
            check_syntax(str(path.parent / settings["policy"]))
        except UserError as mistake:
            raise StudyError(f"{path}: policy: {mistake}") from None


def _check_kernel(path: Path, settings: dict[str, Any]) -> None:
    """Refuse a study that names a field that its kernel does not have."""
    if "kernel" in settings:
        try:
            kernel_of(settings)
        except StudyError as mistake:
            raise StudyError(f"{path}: {mistake}") from None


def _base(path: Path, content: dict, tables: dict) -> dict[str, Any]:
    """Settings of all points."""
    for name in ("set", "t3"):
        if not isinstance(tables[name], dict):
            raise StudyError(f"{path}: {name}: found {tables[name]!r}, allowed is a table [{name}]")
    for name, value in content.items():
        if isinstance(value, dict):
            raise StudyError(f"{path}: [{name}]: unknown table; allowed are {', '.join(TABLES)}; values of the machine "
                             'belong in [set], a kernel is a text: kernel = "gemm:m=512,n=512,k=256"')  # fmt: skip
    given = _flat(str(path), content, tables["set"], {"t3": tables["t3"]})
    return DEFAULTS | {name: checked_field(name, value, str(path)) for name, value in given.items()}


def _axes(path: Path, table: Any) -> dict[str, list]:
    if not isinstance(table, dict):
        raise StudyError(f"{path}: axes: found {table!r}, allowed is a table of lists")
    where = f"{path}: axes"
    axes = _flat(where, table)
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise StudyError(f"{where}: {name}: found {values!r}, allowed is a list with a value or more")
        for value in values:
            checked_field(name, value, where)
        # Python finds that 1 is equal to True
        distinct = {(type(value) is bool, tuple(value) if isinstance(value, list) else value) for value in values}
        if len(distinct) < len(values):
            raise StudyError(f"{where}: {name}: found {values!r}, allowed is each value once")
    return axes


def _listed(path: Path, tables: Any) -> list[dict[str, Any]]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise StudyError(f"{path}: points: found {tables!r}, allowed are tables [[points]]")
    places = [f"{path}: points[{number}]" for number in range(len(tables))]
    return [
        {name: checked_field(name, value, where) for name, value in _flat(where, table).items()}
        for where, table in zip(places, tables, strict=True)
    ]


def _coordinates(path: Path, axes: dict[str, list], listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The swept fields of every point."""
    twice = sorted({name for point in listed for name in point if name in axes})
    if twice:
        raise StudyError(f"{path}: {twice[0]}: is in axes and in points, allowed is one of them")
    count = max(1, len(listed))
    for values in axes.values():
        count *= len(values)
    if count > POINTS_MAX:
        raise StudyError(f"{path}: found {count:,} points, allowed are {POINTS_MAX:,}")
    return [
        point | dict(zip(axes, values, strict=True))
        for point in listed or [{}]
        for values in itertools.product(*axes.values())
    ]


def _flat(where: str, *tables: dict) -> dict[str, Any]:
    """Join the names of nested tables by dots. TOML reads a.b = 1 as a nested table.

    Raises:
        StudyError: a field is given twice: TOML reads "a.b" = 1 as another field.
    """
    flat: dict[str, Any] = {}
    left = [item for table in reversed(tables) for item in reversed(table.items())]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{name}.{inner}", each) for inner, each in reversed(value.items())]
        elif name in flat:
            raise StudyError(f"{where}: {name}: found {flat[name]!r} and {value!r}, allowed is one of them")
        else:
            flat[name] = value
    return flat
