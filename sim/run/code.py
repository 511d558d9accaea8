"""A hash of the simulator's code: the syntax of the modules that decide a result, and of all modules that they import.

Comments, docstrings and layout are left out: a change of words does not make stored results invalid.
"""

import ast
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from sim.hw.policy import MODULE
from tracer.compile.fingerprint import ROOT, import_closure

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def code_key(*modules: str) -> str:
    """Hexadecimal SHA-256 for modules of the project. A user's policy file has its own key (`policy_key`).

    Args:
        modules: dotted names.
    """
    files: dict[str, Path] = {}
    for module in modules:
        files |= import_closure(module, ROOT / f"{module.replace('.', '/')}.py")
    return _key_of(files)


def policy_key(path: str = "") -> str:
    """Hexadecimal SHA-256 for a user's policy file and its imports.

    Args:
        path: of the file; "" = the file that this process has bound (`sim.hw.policy`). If there is none, the key is "".
    """
    path = path or getattr(sys.modules.get(MODULE), "__file__", None) or ""
    return _key_of(import_closure(MODULE, Path(path).resolve())) if path else ""


def _key_of(files: dict[str, Path]) -> str:
    digest = sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{_source_key(files[name].read_text(encoding='utf-8'))}\0".encode())
    return digest.hexdigest()


@cache
def _source_key(source: str) -> str:
    """Hexadecimal SHA-256 of the syntax of a source. Most modules belong to several keys."""
    return sha256(syntax(source).encode()).hexdigest()


def syntax(source: str) -> str:
    """The syntax tree of a source as text. It is equal for two sources that differ in words and layout only."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, DOCUMENTED) and isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]
    return ast.dump(tree, annotate_fields=False)


def _is_text(line: ast.stmt) -> bool:
    """Is the line a docstring, or the text below a constant that documents it?"""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
