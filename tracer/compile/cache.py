"""Compiled functions on disk: one directory per module and fingerprint, one file per signature.

numba's own cache has two faults. It does not detect an edited callee or constant in another file. And if two processes
add different signatures of one function at the same time, its index can point to the wrong code. Here the directory
name contains the fingerprint of all sources that matter (`tracer.compile.fingerprint`) and of the compiler settings.
The file name contains the signature. So no file is ever updated: it is written once, atomically.

Layout: `<root>/<module>-<fingerprint>/<function>-<signature>.kernel` = SHA-256 of the payload, then the payload.
`<root>` is $T3SIM_CACHE_DIR or the user's cache folder. It can be deleted at any time. Entries are code that this
program runs. So a folder or entry that belongs to another user (except root), or that others can write, is not used.
"""

import hashlib
import os
import pickle
import platform
import sys
import warnings
from functools import lru_cache
from pathlib import Path

import numba
import numpy as np
from numba.core import config, types
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from tracer.compile.fingerprint import source_fingerprint
from traces.errors import UserError
from traces.output import replacing
from traces.ownership import OWN_FOLDER, foreign

CACHE_VARIABLE = "T3SIM_CACHE_DIR"
OWN_FILE = 0o600
_DIGEST_BYTES = hashlib.sha256().digest_size


def cache_root():
    """Folder of all compiled functions (Path). It may not exist yet."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).absolute() if folder else user_cache()


def user_cache():
    """The user's cache folder of t3sim (Path). It may not exist yet."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "t3sim"


def compiler_settings():
    """Versions and settings that determine the machine code, as one string. The CPU is in the signature key."""
    versions = (f"python {platform.python_version()}", f"numba {numba.__version__}", f"numpy {np.__version__}")
    switches = (
        f"boundscheck {config.BOUNDSCHECK}",
        f"disable_jit {config.DISABLE_JIT}",
        f"opt {config.OPT}",
        f"debug {config.DEBUGINFO_DEFAULT}",
    )
    return "; ".join(versions + switches)


class KernelCache(_Cache):
    """The disk cache of one compiled function, with the interface that a numba dispatcher expects."""

    def __init__(self, function, path):
        fingerprint = hashlib.sha256(
            f"{source_fingerprint(function.__module__, path)}; {compiler_settings()}".encode()
        ).hexdigest()
        self._directory = cache_root() / f"{function.__module__}-{fingerprint[:20]}"
        self._name = f"{function.__qualname__.replace('<locals>', 'local')}.{function.__code__.co_firstlineno}"
        self._enabled = True

    @property
    def cache_path(self):
        return str(self._directory)

    def load_overload(self, sig, target_context):
        """The compiled overload for a signature; None if it is missing or damaged."""
        if not self._enabled:
            return None
        target_context.refresh()
        key = self._key(sig, target_context.codegen())
        try:
            with open(self._file(key), "rb") as file:
                refused = self._refused() or _foreign(os.fstat(file.fileno()))
                content = b"" if refused else file.read()
        except OSError:
            return None
        if refused:
            _warn_once(refused)
            return None
        payload = content[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != content[:_DIGEST_BYTES]:
            return None
        stored_key, reduced = pickle.loads(payload)
        return CompileResult._rebuild(target_context, *reduced) if stored_key == key else None

    def save_overload(self, sig, data):
        """Store a compiled overload. If the folder cannot be written, warn once."""
        if not self._enabled or data.library.has_dynamic_globals:
            return
        key = self._key(sig, data.codegen)
        payload = dumps((key, data._reduce()))
        try:
            cache_root().mkdir(OWN_FOLDER, parents=True, exist_ok=True)
            self._directory.mkdir(OWN_FOLDER, exist_ok=True)
            if refused := self._refused():
                _warn_once(refused)
                return
            with replacing(self._file(key), OWN_FILE) as temporary:
                temporary.write_bytes(hashlib.sha256(payload).digest() + payload)
        except (OSError, UserError) as problem:
            _warn_once(f"compiled functions cannot be kept in {cache_root()}: {problem}")

    def enable(self):
        self._enabled = True

    def disable(self):
        self._enabled = False

    def flush(self):
        for file in self._directory.glob(f"{self._name}-*.kernel"):
            file.unlink(missing_ok=True)

    def _refused(self):
        """Reason why code of the folder must not run; "" if it may run."""
        folders = (cache_root(), self._directory)
        return next((reason for folder in folders if (reason := _foreign(os.stat(folder)))), "")

    def _key(self, sig, codegen):
        """Signature, field names and CPU, as plain values with a stable text. The text gives the file name."""
        return f"{sig} {_field_names(getattr(sig, 'args', sig))}", str(codegen.magic_tuple())

    def _file(self, key):
        return self._directory / f"{self._name}-{hashlib.sha256('; '.join(key).encode()).hexdigest()[:20]}.kernel"


def _foreign(status):
    return foreign(status, "compiled functions", cache_root())


def _field_names(kinds):
    """Fields of the named tuples among types. The text of a signature has only the types of their values."""
    tuples = [kind for kind in kinds if isinstance(kind, types.BaseNamedTuple)]
    return [(kind.fields, _field_names(kind.types)) for kind in tuples]


@lru_cache(maxsize=1)
def _warn_once(message):
    warnings.warn(f"{message}; every start compiles again", RuntimeWarning, stacklevel=4)
