"""Which source files decide what a kernel does: the module it stands in and everything that imports.

A compiled kernel freezes the code of the kernels it calls and the values of every module global it reads (enums,
dtypes, constants), also those of other files. Its fingerprint is therefore the hash of its module's source and of
the sources of all *project* modules in the transitive closure of that module's imports, read from the syntax tree.
"""

import ast
import hashlib
import os
import sysconfig
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = Path(sysconfig.get_path("purelib")).resolve()
ROOMS = ("traces", "tracer", "sim", "validation")
POLICY_SLOT = "sim.hw.policy"
"""Module that binds a user's own policy file; kernels that import it also depend on that file."""
POLICY_VARIABLE = "T3SIM_POLICY"
"""Environment variable that names the user's policy file."""


def source_fingerprint(module_name, path):
    """Hash of everything in source form that decides what the kernels of one module compile to.

    Args:
        module_name: dotted name as in `__name__`.
        path: source file of that module.

    Returns:
        Hexadecimal SHA-256 over (module name, source) of the closure, in name order.
    """
    closure = import_closure(module_name, _resolved(path))
    policy = os.environ.get(POLICY_VARIABLE, "")
    if POLICY_SLOT in closure and os.path.isfile(policy):
        closure |= import_closure(f"policy:{POLICY_VARIABLE}", _resolved(policy))
    digest = hashlib.sha256()
    for name in sorted(closure):
        digest.update(name.encode() + b"\0" + _content_digest(closure[name]))
    return digest.hexdigest()


def import_closure(module_name, path):
    """Project modules that a module imports, transitively, itself included.

    Modules of the four rooms are looked up beside this package; for a module outside the rooms (a test, a user's
    script or policy) also those of its own top-level package or folder count. Libraries do not: their versions
    stand in the cache key.

    Returns:
        dict of dotted module name -> Path.
    """
    own_top, *inner = module_name.split(".")
    own_root = path.parents[len(inner) + (path.name == "__init__.py")]
    places = {own_top: own_root} | dict.fromkeys(ROOMS, ROOT)
    elsewhere = None if own_root in (ROOT, LIBRARIES) else own_root  # beside a script, any module may be its own
    closure = {module_name: path}
    pending = [module_name]
    while pending:
        name = pending.pop()
        for imported in _imports_of(closure[name], name) - closure.keys():
            root = places.get(imported.partition(".")[0], elsewhere)
            found = _find(imported, root) if root else None
            if found is not None:
                closure[imported] = found
                pending.append(imported)
    return closure


@cache
def _find(module_name, root):
    """Source file of a module below `root`, or None."""
    place = root.joinpath(*module_name.split("."))
    for candidate in (place.with_suffix(".py"), place / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _imports_of(path, module_name):
    """Dotted names that a file may import: every `import a.b` and, of `from a import b`, both a and a.b."""
    stat = os.stat(path)
    package = module_name if path.name == "__init__.py" else module_name.rpartition(".")[0]
    return _parsed_imports(path, package, stat.st_mtime_ns, stat.st_size)


@cache
def _parsed_imports(path, package, _mtime_ns, _file_bytes):
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError):
        return frozenset()  # a user's file; sim.hw.policy runs it and says what is wrong
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(node, package)
            names.add(origin)
            names.update(f"{origin}.{alias.name}" for alias in node.names)
    parents = {name[:dot] for name in names for dot in range(len(name)) if name[dot] == "."}
    return frozenset(names | parents)


def _absolute(node, package):
    """Absolute module name of a `from ... import`, whose leading dots count from `package`."""
    if node.level == 0:
        return node.module
    anchor = package.split(".")
    anchor = anchor[: len(anchor) - (node.level - 1)]
    return ".".join(anchor + ([node.module] if node.module else []))


@cache
def _resolved(path):
    return Path(path).resolve()


def _content_digest(path):
    stat = os.stat(path)
    return _read_digest(path, stat.st_mtime_ns, stat.st_size)


@cache
def _read_digest(path, _mtime_ns, _file_bytes):
    return hashlib.sha256(path.read_bytes()).digest()
