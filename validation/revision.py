"""The commit of this checkout."""

import subprocess
from pathlib import Path

DIGITS = 9


def current_revision() -> str:
    """The commit of this checkout, as DIGITS digits."""
    asked = ("git", "rev-parse", f"--short={DIGITS}", "HEAD")
    return subprocess.run(asked, cwd=Path(__file__).parent, check=True, capture_output=True, text=True).stdout.strip()
