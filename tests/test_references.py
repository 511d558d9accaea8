"""Dotted names in backticks, in docstrings and in Markdown, name what is there: resolved on the syntax trees."""

import ast
import re

import pytest

from tests.support.checkout import FILES, ROOMS, ROOT, module_name, tree_of

SPAN = re.compile(r"`([^`\n]+)`")
REFERENCE = re.compile(rf"(?<![\w./-])(?:{'|'.join((*ROOMS, 't3sim', 'tests'))})(?:\.\w+)+")
NO_CODE = re.compile(r"\.(?:h5|py)$|^t3sim\.verbs$")
"""Files, and the entry points of the verbs."""
MODULES = {module_name(name): name for name in FILES if name.endswith(".py")}


def texts(name):
    """The text of a Markdown file; the docstrings of a module and of what is in it."""
    if name.endswith(".md"):
        return [(ROOT / name).read_text(encoding="utf-8")]
    strings = [node.value for node in ast.walk(tree_of(name)) if isinstance(node, ast.Expr)]
    return [node.value for node in strings if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def references(text):
    found = [reference for span in SPAN.findall(text) for reference in REFERENCE.findall(span)]
    return [reference for reference in found if not NO_CODE.search(reference)]


def names_of(statement):
    """Names that a statement of a module or a class defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def resolves(reference):
    """Whether a dotted name is that of a module, of something in a module, or of something in the body of a class."""
    module = reference
    while module not in MODULES:
        module = module.rpartition(".")[0]
        if not module:
            return False
    node = tree_of(MODULES[module])
    for name in reference.removeprefix(module).split(".")[1:]:
        node = next((part for part in getattr(node, "body", ()) if name in names_of(part)), None)
        if isinstance(node, ast.ImportFrom):
            alias = next(alias for alias in node.names if name in (alias.asname, alias.name))
            return resolves(f"{node.module}.{alias.name}" + reference.partition(f".{name}")[2])
    return node is not None


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".py", ".md")) and name != "CHANGELOG.md"])
def test_references_name_what_is_there(name):
    wrong = [reference for text in texts(name) for reference in references(text) if not resolves(reference)]
    assert not wrong, f"{name}: {wrong}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("see `sim.run.inputs.kernel_input`, `python -m validation.bench.run` and `sim.run.run.Run.signed()`", []),
        ("`sim.results.ResultsArchive`, `sim.hw`, `validation.h5` and sim.of.no.code", []),
        ("`sim.run.run.kernel_input`", ["sim.run.run.kernel_input"]),
        ("`sim.run.run.Run.lost` of `sim.no_room`", ["sim.run.run.Run.lost", "sim.no_room"]),
        ("`sim.results.ResultsArchive.lost`", ["sim.results.ResultsArchive.lost"]),
    ],
)
def test_a_wrong_reference_is_found(text, wrong):
    assert [reference for reference in references(text) if not resolves(reference)] == wrong
