"""`t3sim doctor`: versions, caches, compiled functions, problems of the installation."""

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sim.host.team import VARIABLE as THREADS_VARIABLE
from sim.host.team import chosen
from sim.machine.engine import run_engine
from sim.presets import presets
from sim.run.store import BYTES_VARIABLE, DEFAULT_BYTES, Store
from sim.run.store import VARIABLE as STORE_VARIABLE
from t3sim_packages import PACKAGES, other_owners
from tracer.compile.folder import CACHE_VARIABLE, cache_root
from tracer.compile.process import is_compiled, machine_text
from tracer.compile.shipped import is_shipped
from tracer.gemm.tiles import write_workgroup
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table
from traces.errors import UserError
from traces.ownership import OWN_FOLDER, foreign
from traces.version import VERSION

LIBRARIES = (
    "numpy",
    "numba",
    "llvmlite",
    "h5py",
    "pandas",
    "msgspec",
    "click",
    "rich",
    "pyelftools",
    "lz4",
    "zstandard",
)
OPTIONAL = {"hdf5plugin": "filters", "matplotlib": "plots", "distributed": "study", "xarray": "", "h5netcdf": ""}
"""Library -> extra of t3sim that installs it, "" = there is no extra; install the library itself."""
VARIABLES = (
    CACHE_VARIABLE,
    STORE_VARIABLE,
    BYTES_VARIABLE,
    THREADS_VARIABLE,
    "T3SIM_POLICY",
    "T3SIM_DATA",
    "NUMBA_DISABLE_JIT",
    "NUMBA_BOUNDSCHECK",
)
COMPILED = (".kernel", ".apart", ".part")
"""Suffixes of the files of the compile cache."""
FUNCTIONS: dict[str, Callable] = {"the machine": run_engine, "GEMM synthesis": write_workgroup}
"""Name in the output -> outermost compiled function."""
UNWELL = 1


@click.command("doctor")
@with_format
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Show versions, folders, the compile cache, and problems. Exit status 1 if there is a problem.

    Example: t3sim doctor
    """
    state = findings()
    if as_json:
        print_json(state)
    else:
        rows = [(name, value) for part in ("system", "libraries", "environment", "cache", "store", "compiled")
                for name, value in state[part].items()]  # fmt: skip
        print_table(f"t3sim {VERSION}", ("name", "value"), [(name, str(value)) for name, value in rows])
        click.echo("\n".join(f"problem: {problem}" for problem in state["problems"]) or "no problems")
    if state["problems"]:
        ctx.exit(UNWELL)


def findings() -> dict[str, Any]:
    """The output of the verb as plain values."""
    cache = _cache()
    missing = [name for name in LIBRARIES if _version(name) is None]
    problems = [f"{name} is not installed" for name in missing]
    if cache["writable"] is not True:
        problems.append(
            f"compiled functions cannot be kept in {cache['folder']}: {cache['writable']}; set {CACHE_VARIABLE}"
        )
    store = _store()
    if store["writable"] is not True:
        problems.append(f"results cannot be kept in {store['folder']}: {store['writable']}; set {STORE_VARIABLE}")
    problems += [
        f"{', '.join(others)} installs a package {name} too: the two overwrite each other, remove one"
        for name in PACKAGES
        if (others := other_owners(name))
    ]
    for read in (Store, chosen):
        try:
            read()
        except UserError as problem:
            problems.append(str(problem))
    policy = os.environ.get("T3SIM_POLICY")
    if policy and not os.path.isfile(policy):
        problems.append(f"T3SIM_POLICY: no file {policy}")
    if not presets():
        problems.append("no presets: the installation is incomplete")
    return {
        "t3sim": VERSION,
        "system": {"python": platform.python_version(), "program": sys.executable, "machine": machine_text()},
        "libraries": {name: _version(name) or "not installed" for name in LIBRARIES}
        | {name: _version(name) or _how_to_install(name) for name in OPTIONAL},
        "environment": {name: os.environ.get(name, "not set") for name in VARIABLES},
        "cache": cache,
        "store": store,
        "compiled": {what: _compile_state(kernel) for what, kernel in FUNCTIONS.items()},
        "problems": problems,
    }


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _how_to_install(library: str) -> str:
    wanted = f"'t3sim[{OPTIONAL[library]}]'" if OPTIONAL[library] else library
    return f"not installed (pip install {wanted})"


def _cache() -> dict[str, Any]:
    folder = cache_root()
    files = [path for path in folder.rglob("*") if path.suffix in COMPILED] if folder.is_dir() else []
    return {
        "folder": str(folder),
        "writable": _writable(folder),
        "functions": len(files),
        "bytes": sum(path.stat().st_size for path in files),
        "free_bytes": shutil.disk_usage(_existing(folder)).free,
    }


def _store() -> dict[str, Any]:
    store = Store(max_bytes=DEFAULT_BYTES)
    try:
        entries, writable = store.entries(), _writable(store.folder)
    except UserError as problem:
        entries, writable = [], str(problem)
    return {
        "folder": str(store.folder),
        "writable": writable,
        "entries": len(entries),
        "bytes": sum(entry.size_bytes for entry in entries),
    }


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def _writable(folder: Path) -> bool | str:
    """True, or the reason why the folder cannot be written or is refused."""
    try:
        folder.mkdir(OWN_FOLDER, parents=True, exist_ok=True)
        if reason := foreign(folder.stat(), "its files", folder):
            return reason
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as problem:
        return problem.strerror or str(problem)


def _compile_state(kernel: Any) -> str:
    found = is_compiled(kernel)
    if found is None:
        return "runs as plain Python (NUMBA_DISABLE_JIT)"
    if found:
        return "came compiled with the installation" if is_shipped(kernel._cache.folder) else "compiled"
    return "not yet compiled: the first run compiles it, or t3sim warm"
