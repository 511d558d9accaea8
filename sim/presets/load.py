"""Read a preset: a TOML file, the file that it extends, and overrides. Errors name file, field and what is allowed."""

import tomllib
from dataclasses import replace
from enum import Enum
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from sim.presets.bounds import BOUNDS
from sim.presets.check import check_machine
from sim.presets.preset import BORROWED, KINDS, OVERRIDE, Preset, Source
from sim.spec import Machine
from traces.bounds import Bound
from traces.choices import allowed_names
from traces.errors import UserError
from traces.toml_file import toml_of, toml_of_text

FOLDER = Path(__file__).parent
FABRIC = FOLDER / "fabric" / "t3.toml"
"""Links, Tracker, DMA engines and collectives of the machine of the T3 paper. Other machines borrow them."""
HEADER = ("title", "note", "extends")
LEAF = ("value", "kind", "source")
REMOVED = ("hbm.stream_fifo",)
"""Fields that earlier versions stored and no unit read."""
choices = partial(allowed_names, listing="t3sim presets NAME")
"""The allowed names, or the nearest of them, for a message."""


class PresetError(UserError):
    """A mistake in a preset file or an override."""


def presets():
    """Names of the presets that come with t3sim, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_preset(name_or_path, overrides=()):
    """Read a preset.

    Args:
        name_or_path: a name of `presets()`, or the path of a TOML file.
        overrides: strings "unit.field=value" that replace single values, e.g. "hbm.queue_entries=32"; or a dict
            {"hbm.queue_entries": 32}.

    Returns:
        Preset.

    Raises:
        PresetError: an unknown name, field or enum member, a wrong type or range, a missing value, kind or source, or
            values that do not fit each other.
    """
    title, given = _read(*_opened(name_or_path), ())
    own = _borrowed() | given
    changed = {
        field: (value, Source(OVERRIDE, "set for this run"), where) for field, value, where in _overrides(overrides)
    }
    loaded = _assemble(str(name_or_path), title, own | changed)
    return replace(loaded, replaced={field: own[field][0] for field in changed if field in own})


def preset_from_dict(stored):
    """The Preset whose `as_dict()` was stored, for example in a results archive, perhaps by an earlier version.

    Raises:
        PresetError: a name, title, kind or source that is no text, or an impossible value.
    """
    texts = {name: stored[name] for name in ("name", "title")}
    texts |= {f"{field}: {name}": leaf[name] for field, leaf in stored["fields"].items() for name in ("kind", "source")}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise PresetError(f"machine: {name}: found {text!r}, allowed is a text")
    given = {
        field: (leaf["value"], Source(leaf["kind"], leaf["source"]), stored["name"])
        for field, leaf in stored["fields"].items()
        if field not in REMOVED
    }
    return _assemble(stored["name"], stored["title"], _borrowed() | given)


@cache
def _borrowed():
    """Leaves of the machine of the T3 paper, for a machine that does not give them."""
    leaves = _read(*_opened(FABRIC), ())[1].items()
    return {
        field: (value, Source(BORROWED, f"as the machine of the T3 paper ({given.kind}: {given.source})"), where)
        for field, (value, given, where) in leaves
    }


def _opened(name_or_path):
    """Path and content of the file of a preset."""
    path = Path(name_or_path)
    if path.suffix != ".toml" and len(path.parts) <= 1:
        if str(name_or_path) not in presets():
            raise PresetError(f"no preset {name_or_path!r}; {choices(str(name_or_path), presets())}, or a .toml file")
        path = FOLDER / f"{name_or_path}.toml"
    try:
        if not path.is_file():
            raise PresetError(f"{path}: no such preset file")
        return path, path.read_bytes()
    except OSError as problem:
        raise PresetError(f"{path}: {problem.strerror}") from None


def _read(path, content, children):
    """Title and leaves (dotted field -> (value, Source, where)) of a file and of the file that it extends.

    Args:
        content: bytes of the file.
        children: resolved paths of the files that extend it.
    """
    resolved = path.resolve()
    if resolved in children:
        raise PresetError(f"{path}: extends: a circle of {', '.join(child.name for child in children)}")
    header, own = _parsed(path, content)
    given = {}
    if header["extends"]:
        base = path.parent / header["extends"] if header["extends"].endswith(".toml") else header["extends"]
        try:
            opened = _opened(base)
        except PresetError as problem:
            raise PresetError(f"{path}: extends: {problem}") from None
        _, given = _read(*opened, (*children, resolved))
    return header["title"] or path.stem, given | own


@lru_cache(maxsize=64)
def _parsed(path, bytes_read):
    """Header and own leaves of a file with these bytes. A search makes hundreds of machines from one file."""
    content = toml_of(path, bytes_read, PresetError)
    header = {name: content.pop(name, "") for name in HEADER}
    for name, value in header.items():
        if not isinstance(value, str):
            raise PresetError(f"{path}: {name}: found {value!r}, allowed is a text")
    own = {}
    _collect(content, Machine, "", path, own)
    return header, own


def _collect(table, unit, prefix, path, given):
    """Add the leaves of a TOML table to `given`. The table describes the struct `unit`."""
    types = _field_types(unit)
    for name, content in table.items():
        field = prefix + name
        if name not in types:
            raise PresetError(f"{path}: {field}: unknown field; {choices(name, types)}")
        if not isinstance(content, dict):
            allowed = f"a table [{field}] of its fields" if _is_unit(types[name]) else "{ value, kind, source }"
            raise PresetError(f"{path}: {field}: found {content!r}, allowed is {allowed}")
        if _is_unit(types[name]):
            _collect(content, types[name], f"{field}.", path, given)
        else:
            given[field] = (*_leaf(content, f"{path}: {field}"), f"{path}")


def _leaf(content, where):
    """(value, Source) of a TOML leaf."""
    for key in content:
        if key not in LEAF:
            raise PresetError(f"{where}: unknown key {key!r}; {choices(key, LEAF)}")
    for key in LEAF:
        if key not in content:
            raise PresetError(f"{where}: no {key}; every value has {', '.join(LEAF)}")
    if content["kind"] not in KINDS:
        raise PresetError(f"{where}: kind: found {content['kind']!r}; {choices(str(content['kind']), KINDS)}")
    if not isinstance(content["source"], str) or not content["source"].strip():
        raise PresetError(f"{where}: source: found {content['source']!r}, allowed is a text that names the source")
    return content["value"], Source(content["kind"], content["source"])


def _overrides(overrides):
    """(field, value, place for messages) of each override, from a list of texts or a dict."""
    if isinstance(overrides, dict):
        return [(field, value, f"{field}={value}") for field, value in overrides.items()]
    return [(*_parse_override(text), f"--set {text}") for text in overrides]


def _parse_override(text):
    """(dotted field, value) of "field=value"."""
    field, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not field or not value:
        raise PresetError(f"--set {text}: allowed is unit.field=value, e.g. hbm.queue_entries=32")
    try:
        return field, toml_of_text(f"value = {value}", f"--set {field}", PresetError)["value"]
    except tomllib.TOMLDecodeError:
        return field, value  # the bare name of an enum member


def _assemble(name: str, title: str, given: dict) -> Preset:
    """Make a Preset from leaves. Checks that all fields are known and given, and that their values fit."""
    fields = _fields_of(Machine)
    for field, (_, _, where) in given.items():
        if field not in fields:
            raise PresetError(f"{where}: {field}: unknown field; {choices(field, fields)}")
    values: dict[str, Any] = {}
    for field, kind in fields.items():
        if field not in given:
            raise PresetError(f"{name}: {field}: missing; give value, kind and source")
        value, _, where = given[field]
        *units, last = field.split(".")
        table = values
        for unit in units:
            table = table.setdefault(unit, {})
        table[last] = checked_value(value, kind, f"{where}: {field}", BOUNDS.get(field))
    machine = msgspec.convert(values, Machine)
    check_machine(machine, name, PresetError)
    return Preset(name, title, machine, {field: given[field][1] for field in fields})


def machine_fields():
    """Dotted field -> type, for a machine."""
    return dict(_fields_of(Machine))


@cache
def _fields_of(unit, prefix=""):
    """Dotted field -> type, for a struct and the structs in it."""
    fields = {}
    for name, kind in _field_types(unit).items():
        if _is_unit(kind):
            fields.update(_fields_of(kind, f"{prefix}{name}."))
        else:
            fields[prefix + name] = kind
    return fields


def checked_value(value: Any, kind: Any, where: str, bound: Bound | None = None) -> Any:
    """A plain value in the type and the range of its field. An enum member is given by its lower-case name.

    Raises:
        PresetError: names `where`, the value and what is allowed.
    """
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = {member.name.lower(): member for member in kind}
        if not isinstance(value, str) or value not in members:
            raise PresetError(f"{where}: found {value!r}; {choices(str(value), members)}")
        return members[value]
    try:
        typed = msgspec.convert(value, kind)
    except UnicodeEncodeError:  # a byte of the command line that is no text
        raise PresetError(f"{where}: found {value!r}, allowed is text in UTF-8") from None
    except msgspec.ValidationError as problem:
        allowed = str(problem).partition("Expected ")[2].partition(",")[0].replace("`", "")
        raise PresetError(f"{where}: found {value!r}, allowed is {allowed}") from None
    if bound and not bound.holds(typed):
        raise PresetError(f"{where}: found {value!r}, allowed is {bound.allowed}")
    return typed


@cache
def _field_types(unit):
    return {field.name: field.type for field in msgspec.structs.fields(unit)}


def _is_unit(kind):
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
