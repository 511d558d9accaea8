"""Compiled functions on disk: one directory per module and fingerprint, one file per signature.

numba's own cache has two faults. It does not detect an edited callee or constant in another file. And if two processes
add different signatures of one function at the same time, its index can point to the wrong code. Here the directory
name contains the fingerprint of all sources that matter (`tracer.compile.fingerprint`) and of the compiler settings.
The file name contains the signature. So no file is ever updated: it is written once, atomically.

Layout: `<root>/<module>-<fingerprint>/<function>-<signature>.kernel` = SHA-256 of the payload, then the payload: a
program (machine code). Instead of `.kernel`: `.apart`, a program apart, and `.part`, a part (LLVM code), see
`tracer.compile.library`. `<root>` is $T3SIM_CACHE_DIR or the user's cache folder. It can be deleted at any time.
Entries are code that this program runs. So a folder or entry that belongs to another user (except root), or that others
can write, is not used. A program that the cache lacks may have come with the installation (`tracer.compile.shipped`).
"""

import hashlib
import os
import pickle
import platform
import warnings
from functools import lru_cache

import llvmlite
import numba
import numpy as np
from numba.core import config, types
from numba.core.caching import NullCache, _Cache
from numba.core.compiler import compile_result
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from tracer.compile.fingerprint import source_fingerprint
from tracer.compile.folder import cache_root, foreign_file, refused
from tracer.compile.library import Part, PartLibrary, ProgramLibrary
from tracer.compile.shipped import shipped, shipped_cpu
from traces.errors import Notice, UserError
from traces.output import replacing
from traces.ownership import OWN_FILE, OWN_FOLDER

_DIGEST_BYTES = hashlib.sha256().digest_size


def compiler_settings():
    """Versions and settings that determine the machine code, as one string. The CPU is in the signature key.

    Machine code works with all patch releases of a minor version of Python and numpy.
    """
    python, numpy = (".".join(version.split(".")[:2]) for version in (platform.python_version(), np.__version__))
    versions = (f"python {python}", f"numba {numba.__version__}", f"llvmlite {llvmlite.__version__}", f"numpy {numpy}")
    switches = (
        f"boundscheck {config.BOUNDSCHECK}",
        f"disable_jit {config.DISABLE_JIT}",
        f"opt {config.OPT}",
        f"debug {config.DEBUGINFO_DEFAULT}",
    )
    return "; ".join(versions + switches)


class NoCache(NullCache):
    """The cache of functions that cannot be stored, with the interface of KernelCache."""

    folder = ""

    def load_part(self, args, target_context):
        return None

    load_apart = load_part

    def save_part(self, args, part):
        pass

    save_apart = save_part


class KernelCache(_Cache):
    """The disk cache of one compiled function. Programs: the interface that a numba dispatcher expects. Parts: ours.

    Attributes:
        folder: name of the directory: module and fingerprint.
    """

    def __init__(self, function, path, library_of):
        """Args: function; path: its file; library_of: from the `origin` of a function to its library, or None."""
        self.folder = _folder_name(function, path)
        self._library_of = library_of
        self._directory = cache_root() / self.folder
        self._name = f"{function.__qualname__.replace('<locals>', 'local')}.{function.__code__.co_firstlineno}"

    @property
    def cache_path(self):
        return str(self._directory)

    def enable(self):
        """The cache is always enabled."""

    disable = enable

    def load_overload(self, sig, target_context):
        """The program for a signature; None if it, or a program apart that it calls, is missing or damaged."""
        return self._load_program("kernel", getattr(sig, "args", sig), target_context)

    def save_overload(self, sig, data):
        """Store a program."""
        self._save_program("kernel", getattr(sig, "args", sig), data)

    def load_apart(self, args, target_context):
        """The program apart for argument types; None if it is missing or damaged."""
        return self._load_program("apart", args, target_context)

    def save_apart(self, args, data):
        """Store a program apart."""
        self._save_program("apart", args, data)

    def _load_program(self, kind, args, target_context):
        rtsys.initialize(target_context)  # all that a program needs of `target_context.refresh()`, which takes 0.3 s
        state = self._load(kind, args, target_context.codegen()) or self._shipped(kind, args)
        if state is None:
            return None
        origins, *rest = state
        if None in [self._library_of(origin) for origin in origins]:
            return None
        return _program(target_context, kind == "kernel", *rest)

    def _save_program(self, kind, args, data):
        library, fndesc = data.library, data.fndesc
        if library.has_dynamic_globals or not library.stored:
            return
        fndesc.typemap = fndesc.calltypes = None  # large, and not always possible to store
        environments = tuple(data._find_referenced_environments())
        stored = (library.name, library.origin, *library.machine_code())
        origins = [needed.origin for needed in library.needed_apart]
        state = (origins, stored, fndesc, data.environment, data.signature, data.reload_init, environments)
        self._save(kind, args, data.codegen, state)

    def load_part(self, args, target_context):
        """The part for argument types, a tuple of numba's; None if it, or what it calls, is missing or damaged."""
        target_context.refresh()
        state = self._load("part", args, target_context.codegen())
        if state is None:
            return None
        origin, bitcode, origins, *rest = state
        needed = [self._library_of(needed) for needed in origins]
        if None in needed:
            return None
        return Part(PartLibrary.of_bitcode(target_context.codegen(), origin, bitcode, needed), *rest)

    def save_part(self, args, part):
        """Store a part, if all that it calls is stored."""
        library = part.library
        if not library.stored:
            return
        origins = [needed.origin for needed in library.needed_ours()]
        self._save("part", args, library.codegen, (library.origin, library.as_bitcode(), origins, *part[1:]))

    def flush(self):
        for file in self._directory.glob(f"{self._name}-*"):
            file.unlink(missing_ok=True)

    def _load(self, kind, args, codegen):
        """What was stored for argument types; None if it is missing or damaged."""
        key = _key(args, codegen)
        try:
            with open(self._file(kind, key), "rb") as file:
                reason = refused(self._directory) or foreign_file(os.fstat(file.fileno()))
                content = b"" if reason else file.read()
        except OSError:
            return None
        if reason:
            _warn_once(reason)
            return None
        return _checked(content, key)

    def _shipped(self, kind, args):
        """A program that came with the installation; None if there is none for this machine."""
        cpu = shipped_cpu()
        if cpu is None:
            return None
        key = signature_text(args), str(cpu)
        content = shipped(f"{self.folder}/{self._file(kind, key).name}")
        return content and _checked(content, key)

    def _save(self, kind, args, codegen, state):
        """Store what was compiled for argument types. If the folder cannot be written, warn once.

        A function among the arguments is known by its address only, so what was compiled for it is not stored.
        """
        if any(isinstance(kind, types.Callable) for kind in args):
            return
        key = _key(args, codegen)
        payload = dumps((key, state))
        try:
            cache_root().mkdir(OWN_FOLDER, parents=True, exist_ok=True)
            self._directory.mkdir(OWN_FOLDER, exist_ok=True)
            if reason := refused(self._directory):
                _warn_once(reason)
                return
            with replacing(self._file(kind, key), OWN_FILE) as temporary:
                temporary.write_bytes(hashlib.sha256(payload).digest() + payload)
        except (OSError, UserError) as problem:
            _warn_once(f"compiled functions cannot be kept in {cache_root()}: {problem}")

    def _file(self, kind, key):
        return self._directory / f"{self._name}-{hashlib.sha256('; '.join(key).encode()).hexdigest()[:20]}.{kind}"


def _folder_name(function, path):
    """Module and fingerprint of a function. The fingerprint is made once whenever Python loads the module."""
    module, loading = function.__module__, function.__globals__.get("__spec__")  # a new object whenever it is loaded
    if getattr(loading, "origin", None) != path:  # a script, or code that another file made
        loading = None
    name = getattr(loading, "t3sim_folder", None)
    if name is None:
        text = f"{source_fingerprint(module, path)}; {compiler_settings()}"
        name = f"{module}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"
        if loading is not None:
            loading.t3sim_folder = name
    return name


def signature_text(args):
    """Text of argument types. It has the field names of named tuples, which numba's text does not have."""
    return f"{args} {_field_names(args)}"


def _field_names(kinds):
    """Fields of the named tuples among types. The text of a signature has only the types of their values."""
    tuples = [kind for kind in kinds if isinstance(kind, types.BaseNamedTuple)]
    return [(kind.fields, _field_names(kind.types)) for kind in tuples]


def _key(args, codegen):
    """Signature, field names and CPU, as plain values with a stable text. The text gives the file name."""
    return signature_text(args), str(codegen.magic_tuple())


def _checked(content, key):
    """The state in the content of an entry; None if it is damaged or belongs to another key."""
    payload = content[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != content[:_DIGEST_BYTES]:
        return None
    stored_key, state = pickle.loads(payload)
    return state if stored_key == key else None


def _program(target_context, called, stored, fndesc, environment, signature, reload_init, environments):
    """The compile result of a stored program, ready to run. called: by Python."""
    for initialize in reload_init:
        initialize()
    codegen = target_context.codegen()
    library = ProgramLibrary.of_machine_code(codegen, *stored)
    entry = target_context.get_executable(library, fndesc, environment) if called else None
    for referenced in environments:
        codegen.set_env(referenced.env_name, referenced)
    return compile_result(
        typing_context=target_context.typing_context,
        target_context=target_context,
        entry_point=entry,
        library=library,
        environment=environment,
        fndesc=fndesc,
        signature=signature,
        objectmode=False,
        reload_init=reload_init,
    )


@lru_cache(maxsize=1)
def _warn_once(message):
    warnings.warn(f"{message}; every start compiles again", Notice, stacklevel=4)
