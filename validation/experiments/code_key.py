"""What decides a result in the simulator's code: a hash of the syntax of a module and of all that it imports.

Comments, docstrings and layout are left out, so that an edit of words does not throw hours of results away.
"""

import ast
import os
from functools import cache
from hashlib import sha256
from pathlib import Path

from tracer.compile.fingerprint import POLICY_VARIABLE, ROOT, import_closure

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def code_key(module: str) -> str:
    """Hexadecimal SHA-256 for a module of the project, a user's policy file included.

    Args:
        module: dotted name.
    """
    files = import_closure(module, ROOT / f"{module.replace('.', '/')}.py")
    policy = os.environ.get(POLICY_VARIABLE, "")
    if policy:
        files |= import_closure(f"policy:{POLICY_VARIABLE}", Path(policy).resolve())
    digest = sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{syntax(files[name].read_text(encoding='utf-8'))}\0".encode())
    return digest.hexdigest()


def syntax(source: str) -> str:
    """A text that is equal for two sources that do the same, but for words and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, DOCUMENTED) and isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]
    return ast.dump(tree, annotate_fields=False)


def _is_text(line: ast.stmt) -> bool:
    """A docstring, or a text below a constant that says what it is."""
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
