"""Machine code that a wheel brings along, so that a new machine compiles nothing.

`.ci/wheel` compiles for TARGET, a set of CPU features that common computers have, and packs the programs of its cache
into one file beside this module. A checkout has no such file. Names in it contain the fingerprint of the sources and
of the versions of Python, numba and numpy. So what does not fit is not found, and is compiled as usual. The file
belongs to the installation, like the Python files beside it, and is trusted like them.
"""

import zipfile
from functools import cache
from pathlib import Path

from llvmlite import binding as llvm
from numba.core import config

TARGET = "x86-64-v3"
FEATURES = ("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "sse4.2", "xsave")
"""Features of TARGET, in LLVM's names (System V ABI for x86-64, micro-architecture level 3)."""
FILE = Path(__file__).with_name(f"{TARGET}.zip")
PACK_DATE = (1980, 1, 1, 0, 0, 0)
"""Date of all entries, so that the same code gives the same file."""


def shipped_cpu():
    """The CPU in the keys of shipped code: (triple, name, features). None if there is none, or it cannot run here."""
    features = llvm.get_host_cpu_features()
    if _packed() is None or config.CPU_NAME is not None or not all(features.get(name) for name in FEATURES):
        return None
    return llvm.get_process_triple(), TARGET, ""


def shipped(name):
    """Content of an entry ("folder/file" of the cache), or None."""
    try:
        return _packed().read(name)
    except KeyError:
        return None


def is_shipped(folder):
    """True if there is a program of a folder of the cache, for this machine."""
    return shipped_cpu() is not None and any(name.startswith(f"{folder}/") for name in _packed().namelist())


def pack(cache_folder):
    """Write the programs of a cache folder to FILE. Returns their number."""
    programs = sorted([*cache_folder.glob("*/*.kernel"), *cache_folder.glob("*/*.apart")])
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as packed:
        for program in programs:
            entry = zipfile.ZipInfo(f"{program.parent.name}/{program.name}", PACK_DATE)
            packed.writestr(entry, program.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(programs)


@cache
def _packed():
    return zipfile.ZipFile(FILE) if FILE.is_file() else None
