"""A hash of the simulator's code: the syntax of the modules that decide a result, and of all modules that they import.

Comments, docstrings and layout are left out: a change of words does not make stored results invalid.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path

from sim.hw.policy import MODULE
from tracer.compile.fingerprint import ROOT, import_closure
from tracer.compile.source_facts import source_facts


@cache
def code_key(*modules: str) -> str:
    """Hexadecimal SHA-256 for modules of the project, not for files of the user (`policy_key`, `plan_key`).

    Args:
        modules: dotted names.
    """
    files: dict[str, Path] = {}
    for module in modules:
        files |= import_closure(module, ROOT / f"{module.replace('.', '/')}.py")
    return _key_of(files)


def policy_key(path: str) -> str:
    """Hexadecimal SHA-256 for a user's policy file and its imports (`sim.hw.policy`)."""
    return _key_of(import_closure(MODULE, Path(path).resolve()))


def plan_key(path: str) -> str:
    """Hexadecimal SHA-256 for a user's plan file and its imports (`sim.collective.own_plan`)."""
    return _key_of(import_closure("plan", Path(path).resolve()))


def _key_of(files: dict[str, Path]) -> str:
    digest = sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{source_facts(files[name], name).syntax_hash}\0".encode())
    return digest.hexdigest()
