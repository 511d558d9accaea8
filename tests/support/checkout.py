"""The files of this checkout, and its rooms."""

import subprocess

from tests.support.paths import ROOT

ROOMS = ("traces", "tracer", "sim", "validation")
"""From left to right: a room imports only from itself and from the rooms to its left."""
TOP_LEVEL = {
    *ROOMS,
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


def tracked_files():
    """Paths of the project relative to ROOT: what git tracks or would track; without git, all of TOP_LEVEL."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        return [line for line in listing.stdout.splitlines() if (ROOT / line).is_file()]
    files = [path for name in TOP_LEVEL for path in (ROOT / name, *(ROOT / name).rglob("*")) if path.is_file()]
    return [str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts]


FILES = tracked_files()
