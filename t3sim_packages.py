"""The packages of t3sim must be its own: another distribution or a file of the user can have the same name.

`pip install traces` writes into our folder `traces`, and a `sim.py` on the path of Python hides our package `sim`. The
command `t3sim` and `import t3sim` begin here. So they say what is wrong before they import anything of t3sim.
"""

import sys
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("traces", "tracer", "sim", "validation")
"""The packages of t3sim. They lie beside this file, and each has an empty `__init__.py`."""
MISTAKE = 2
"""Exit status of the command, as for a mistake of the user."""
INTERRUPTED = 130
"""Exit status after an interrupt, as a shell has it."""


def main() -> int:
    """The command `t3sim`. Returns its exit status."""
    problems = foreign_packages()
    if problems:
        print("\n".join(f"t3sim: {problem}" for problem in problems), file=sys.stderr)
        return MISTAKE
    try:
        status: int = import_module("traces.command.cli").main()
    except KeyboardInterrupt:  # while modules are loaded
        print("t3sim: interrupted", file=sys.stderr)
        return INTERRUPTED
    return status


def check_packages() -> None:
    """Raise ImportError if a package of t3sim is not its own."""
    problems = foreign_packages()
    if problems:
        raise ImportError("t3sim: " + "; ".join(problems))


def foreign_packages() -> list[str]:
    """One line for each package of t3sim that Python would not find, or would find with the content of another one."""
    folder = Path(__file__).resolve().parent
    return [problem for name in PACKAGES if (problem := _problem(name, folder / name / "__init__.py"))]


def _problem(name: str, own: Path) -> str:
    """What is wrong with a package; "" = nothing."""
    spec = find_spec(name)
    found = Path(spec.origin).resolve() if spec and spec.origin else None
    if found is None:
        return f"package {name}: {own} is missing; install t3sim again"
    if found != own:
        return (
            f"package {name}: Python finds {found}, which hides {own}; rename it, or remove its folder from "
            "PYTHONPATH (or work in another folder)"
        )
    if own.stat().st_size:
        others = ", ".join(other_owners(name)) or "another program"
        return f"package {name}: {others} has replaced {own}; remove {others}, then install t3sim again"
    return ""


def other_owners(name: str) -> list[str]:
    """Distributions other than t3sim that install a package of this name. They overwrite each other's files."""
    return sorted({owner for owner in packages_distributions().get(name, ()) if owner != "t3sim"})
