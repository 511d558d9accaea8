"""The files of this checkout, and its rooms."""

import ast
import subprocess
from functools import cache

from tests.support.paths import ROOT

ROOMS = ("traces", "tracer", "sim", "validation")
"""From left to right: a room imports only from itself and from the rooms to its left."""
TOP_LEVEL = {
    *ROOMS,
    "t3sim",
    "t3sim_packages.py",
    "tests",
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "CITATION.cff",
    "MANIFEST.in",
    "docs",
    "LICENSE",
    "README.md",
    "pyproject.toml",
}


def listed(*options):
    """Paths that `git ls-files` lists; None without git."""
    listing = subprocess.run(["git", "ls-files", *options], cwd=ROOT, capture_output=True, text=True, check=False)
    return listing.stdout.splitlines() if listing.returncode == 0 else None


def project_files():
    """Paths of the project relative to ROOT: what git tracks, and new files beside it; without git, all of TOP_LEVEL.

    A new file or folder at the root is none of the project's until git tracks it: reports and archives of runs.
    """
    tracked = listed()
    if tracked is None:
        files = [path for name in TOP_LEVEL for path in (ROOT / name, *(ROOT / name).rglob("*")) if path.is_file()]
        return [str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts]
    new = [name for name in listed("--others", "--exclude-standard") if name.split("/")[0] in TOP_LEVEL]
    return [name for name in (*tracked, *new) if (ROOT / name).is_file()]


FILES = project_files()


@cache
def tree_of(name):
    """The syntax tree of one of FILES."""
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), name)


def module_name(name):
    """The dotted name of one of FILES."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
