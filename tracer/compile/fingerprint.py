"""Fingerprint of the source files that determine a compiled function: its module and everything that it imports.

A compiled function contains the code of the functions that it calls and the values of every module global that it reads
(enums, dtypes, constants), also from other files. So its fingerprint is the hash of the source of its module and of all
*project* modules that this module imports, directly or indirectly. The imports are read from the syntax tree.
"""

import hashlib
import os
import sys
import sysconfig
from functools import cache
from pathlib import Path

from tracer.compile.source_facts import source_facts

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = Path(sysconfig.get_path("purelib")).resolve()
ROOMS = ("traces", "tracer", "sim", "validation")
POLICY_SLOT = "sim.hw.policy"
"""Module that loads the user's policy file. Compiled functions that import it also depend on that file."""
POLICY_VARIABLE = "T3SIM_POLICY"
"""Environment variable that names the user's policy file."""


def source_fingerprint(module_name, path):
    """Hash of all sources that determine the compiled functions of one module.

    Args:
        module_name: dotted name as in `__name__`.
        path: source file of that module.

    Returns:
        Hexadecimal SHA-256 over (module name, source) of the import closure, in order of names.
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
    """Project modules that a module imports, directly or indirectly, and the module itself.

    Modules of the four rooms are searched in the folder of this package. For a module outside the rooms (a test, a
    user's script or policy), modules of its own top-level package, of its folder and of Python's path count too.
    Libraries do not count: their versions are in the cache key.

    Returns:
        dict of dotted module name -> Path.
    """
    own_top, *inner = module_name.split(".")
    own_root = path.parents[len(inner) + (path.name == "__init__.py")]
    places = {own_top: (own_root,)} | dict.fromkeys(ROOMS, (ROOT,))
    elsewhere = () if own_root in (ROOT, LIBRARIES) else (*_path_of_users(tuple(sys.path)), own_root)
    closure = {module_name: path}
    pending = [module_name]
    while pending:
        name = pending.pop()
        for imported in source_facts(closure[name], name).imports - closure.keys():
            roots = places.get(imported.partition(".")[0], elsewhere)
            source = next(filter(None, (_find(imported, root) for root in roots)), None)
            if source is not None:
                closure[imported] = source
                pending.append(imported)
    return closure


@cache
def _path_of_users(path):
    """Folders of Python's path that hold neither the project, nor the standard library, nor installed packages."""
    folders = (Path(entry).resolve() for entry in path)
    known = {ROOT, LIBRARIES, *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))}
    return tuple(one for one in folders if one not in known and one.name not in ("site-packages", "dist-packages"))


@cache
def _find(module_name, root):
    """Source file of a module under `root`, or None."""
    place = root.joinpath(*module_name.split("."))
    for candidate in (place.with_suffix(".py"), place / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _resolved(path):
    return Path(path).resolve()


def _content_digest(path):
    stat = os.stat(path)
    return _read_digest(path, stat.st_mtime_ns, stat.st_size)


@cache
def _read_digest(path, _mtime_ns, _file_bytes):
    return hashlib.sha256(path.read_bytes()).digest()
