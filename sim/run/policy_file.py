"""A user's arbiter by its file: is it the one that this process has bound, and its digest for the archive.

The slot itself, and what a policy looks like, is `sim.hw.policy`.
"""

import hashlib
import os
import sys
from pathlib import Path

from sim.hw.policy import MODULE, VARIABLE
from traces.errors import UserError


def is_bound(path: str) -> bool:
    """Is that file the arbiter that this process has bound?"""
    module = sys.modules.get(MODULE)
    return (
        module is not None
        and module.__file__ is not None
        and os.path.exists(path)
        and os.path.samefile(module.__file__, path)
    )


def check_bound(path: str) -> None:
    """Refuse a policy that came too late.

    Raises:
        UserError: this process has bound another one, or none; it needs a process of its own.
    """
    if not is_bound(path):
        raise UserError(f"{path}: this process has bound its arbiter before; start another one, with {VARIABLE} set")


def bound_digest() -> str:
    """SHA-256 of the policy file that this process has bound, "" where it has none."""
    module = sys.modules.get(MODULE)
    return "" if module is None or module.__file__ is None else policy_digest(module.__file__)


def policy_digest(path: str) -> str:
    """SHA-256 of a policy file, by which results tell policies apart."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
