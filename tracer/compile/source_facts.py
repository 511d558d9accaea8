"""What the text of a source file says: which modules it may import, and a hash of its syntax.

To parse all sources of the simulator takes a second. So the facts of a file are kept in the cache folder:
`<root>/sources-<version>/<hash of package and content>.facts` has the SHA-256 of the rest, the syntax hash and the
imports, one in a line. The version is a hash of this file and of Python's version. An entry is written once,
atomically. Facts decide which machine code and which stored result belong to a source, so an entry that another user
may have written is not used.
"""

import ast
import hashlib
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tracer.compile.folder import cache_root, foreign_file, refused
from traces.errors import UserError
from traces.output import replacing
from traces.ownership import OWN_FILE, OWN_FOLDER

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class SourceFacts(NamedTuple):
    """Facts of one file.

    Attributes:
        imports: dotted names that the file may import. `from a import b` gives both a and a.b.
        syntax_hash: SHA-256 of the syntax without comments, docstrings and layout, in hexadecimal; of the content if it
            is no Python (a user's file; `sim.hw.policy` runs it and reports the error).
    """

    imports: frozenset[str]
    syntax_hash: str


def source_facts(path, module_name):
    """The facts of a source file as it is now.

    Args:
        path: of the file, resolved.
        module_name: dotted name. Relative imports begin at its package.
    """
    stat = os.stat(path)
    package = module_name if path.name == "__init__.py" else module_name.rpartition(".")[0]
    return _facts_of(path, package, stat.st_mtime_ns, stat.st_size)


@cache
def _facts_of(path, package, _mtime_ns, _file_bytes):
    content = path.read_bytes()
    name = hashlib.sha256(package.encode() + b"\0" + content).hexdigest()
    kept = _folder() / f"{name}.facts"
    facts = _kept(kept)
    if facts is None:
        facts = parsed_facts(content, package)
        _keep(kept, facts)
    return facts


def parsed_facts(content, package):
    """The facts of a source.

    Args:
        content: bytes of the file.
        package: dotted name; "" for a module of its own.
    """
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return SourceFacts(frozenset(), hashlib.sha256(content).hexdigest())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, package)
            names.add(origin)
            names.update(f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, DOCUMENTED):
            node.body = [line for line in node.body if not _is_text(line)]
    parents = {name[:dot] for name in names for dot in range(len(name)) if name[dot] == "."}
    syntax = ast.dump(tree, annotate_fields=False)
    return SourceFacts(frozenset(names | parents), hashlib.sha256(syntax.encode()).hexdigest())


def _absolute(node, package):
    """Absolute module name of a `from ... import`. Leading dots are relative to `package`."""
    if node.level == 0:
        return node.module
    anchor = package.split(".")
    anchor = anchor[: len(anchor) - (node.level - 1)]
    return ".".join(anchor + ([node.module] if node.module else []))


def _is_text(line):
    """Is the line a docstring, or the text below a constant that documents it?"""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _folder():
    return cache_root() / f"sources-{_version()}"


@cache
def _version():
    return hashlib.sha256(sys.version.encode() + Path(__file__).read_bytes()).hexdigest()[:20]


def _kept(path):
    """The facts that a file keeps; None if it is missing or damaged, or if another user may have written it."""
    try:
        with open(path, encoding="utf-8") as file:
            if refused(path.parent) or foreign_file(os.fstat(file.fileno())):
                return None
            checksum, _, text = file.read().partition("\n")
    except (OSError, UnicodeError):
        return None
    syntax_hash, *imports = text.split("\n")
    return SourceFacts(frozenset(imports), syntax_hash) if checksum == _checksum(text) else None


def _keep(path, facts):
    """Write the facts. A folder that cannot be written costs time only; `tracer.compile.cache` warns of it."""
    with suppress(OSError, UserError):
        path.parent.parent.mkdir(OWN_FOLDER, parents=True, exist_ok=True)
        path.parent.mkdir(OWN_FOLDER, exist_ok=True)
        text = "\n".join([facts.syntax_hash, *sorted(facts.imports)])
        with replacing(path, OWN_FILE) as temporary:
            temporary.write_text(f"{_checksum(text)}\n{text}", encoding="utf-8")


def _checksum(text):
    return hashlib.sha256(text.encode()).hexdigest()
