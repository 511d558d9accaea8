"""The file of a user's arbiter: whether this process has bound it, and its digest for the archive.

`sim.hw.policy` binds the file and describes its content.
"""

import hashlib
import os
import sys
from pathlib import Path

from sim.hw.policy import MODULE, VARIABLE
from sim.spec import Arbiter, Machine
from traces.errors import UserError, error_in_file


def bound_file() -> str:
    """Path of the policy file that this process has bound; "" if there is none."""
    return getattr(sys.modules.get(MODULE), "__file__", None) or ""


def is_bound(path: str) -> bool:
    """Has this process bound the file at `path` as its arbiter?"""
    bound = bound_file()
    return bool(bound) and os.path.exists(path) and os.path.samefile(bound, path)


def check_bound(path: str) -> None:
    """Refuse a policy file that this process has not bound.

    Raises:
        UserError: this process has bound another file, or none. The policy needs a new process.
    """
    if not is_bound(path):
        raise UserError(f"{path}: this process has bound its arbiter before; start another one, with {VARIABLE} set")


def check_syntax(path: str) -> None:
    """Refuse a policy file that is not Python. It is not run.

    Raises:
        UserError: another ending than .py; or names the line.
    """
    if not path.endswith(".py"):
        raise UserError(f"{path}: found the ending {Path(path).suffix!r}, allowed is .py")
    try:
        compile(Path(path).read_bytes(), os.path.abspath(path), "exec")
    except (SyntaxError, ValueError) as error:
        raise error_in_file(path, path, error) from None


def check_asked(path: str, machine: Machine) -> None:
    """Refuse a policy file that the machine would not use.

    Raises:
        UserError: a value of the user names another arbiter.
    """
    arbiter = machine.hbm.arbiter
    if arbiter != Arbiter.USER:
        raise UserError(f"--policy {path}: found hbm.arbiter = {arbiter.name.lower()}, allowed beside it is user")


def policy_digest(path: str) -> str:
    """SHA-256 of a policy file; results identify the policy by it."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
