"""The plan of the house, checked on the syntax trees: who may import whom, what stands where, what is refused."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.checkout import FILES, ROOMS, ROOT, TOP_LEVEL, module_name, tree_of

COMPILING = (
    "ahead",
    "kept",
    "atomics",
    "cache",
    "dispatcher",
    "jit",
    "library",
    "ones",
    "whole",
    "reference",
    "shipped",
)
NUMBA_DOORS = {*(f"tracer/compile/{name}.py" for name in COMPILING), "sim/hw/bits.py", "sim/hw/prefetch.py"}
"""The only files that may import numba: the decorator and what is behind it, instructions of the host's processor, and
the type of a policy's answer."""
HEAVY = {"matplotlib", "vl_convert", "hdf5plugin", "pandas", "xarray", "dask", "distributed", "torch", "cupy"}
"""Libraries that are slow to import or optional: allowed inside a function, where they are used."""
VAGUE_NAMES = re.compile(r"^(utils?|common|helpers?|misc|stuff|tools)$|(_old|_new|_copy|_backup|\d+_fixed)$")
BARE_QUANTITIES = {"latency", "delay", "interval", "timeout", "period", "duration", "bandwidth", "size"}
"""Words that say what is measured but not in which unit: a name in the machine must not end with one."""
LINES_PER_FILE = 400
LINES_PER_FUNCTION = 35
FUNCTIONS_THAT_FIT = 0.9

SOURCES = [name for name in FILES if name.endswith(".py") and name.split("/")[0] in ROOMS]


def imported_names(node):
    """Dotted names of one import statement; `from a import b` gives a.b as well as a."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def functions(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("name", SOURCES)
def test_imports_go_only_leftwards(name):
    own = ROOMS.index(name.split("/")[0])
    for node in imports(tree_of(name)):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{name}:{node.lineno}: relative import"
        for imported in imported_names(node):
            room = imported.split(".")[0]
            assert room not in ROOMS or ROOMS.index(room) <= own, f"{name}:{node.lineno}: imports {imported}"


@pytest.mark.parametrize("name", SOURCES)
def test_imports_stand_at_the_top(name):
    for function in functions(tree_of(name)):
        for node in imports(function):
            for imported in imported_names(node):
                library = imported.split(".")[0]
                assert library in HEAVY, f"{name}:{node.lineno}: import of {imported} inside a function"


def test_modules_have_no_import_cycles():
    modules = {module_name(name): name for name in SOURCES}
    needs = {}
    for module, name in modules.items():
        found = {imported for node in imports(tree_of(name)) for imported in imported_names(node)}
        needs[module] = sorted((found & modules.keys()) - {module})
    finished, path = set(), []

    def visit(module):
        assert module not in path, "import cycle: " + " -> ".join([*path[path.index(module) :], module])
        if module not in finished:
            path.append(module)
            for needed in needs[module]:
                visit(needed)
            finished.add(path.pop())

    for module in modules:
        visit(module)


@pytest.mark.parametrize("name", SOURCES)
def test_numba_comes_through_one_decorator(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "jitclass" not in text, f"{name}: jitclass is compiled in every process"
    if name not in NUMBA_DOORS:
        for node in imports(tree_of(name)):
            libraries = {imported.split(".")[0] for imported in imported_names(node)}
            assert not libraries & {"numba", "llvmlite"}, f"{name}:{node.lineno}: use tracer.compile.jit.compiled"


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("tests/") and name.endswith(".py")])
def test_support_code_stands_in_one_place(name):
    """No test module imports another one, and beside tests and their options there is support code only."""
    file = name.rpartition("/")[2]
    assert file.startswith("test_") or file == "conftest.py" or name.startswith("tests/support/"), name
    for node in imports(tree_of(name)):
        for imported in imported_names(node):
            assert not imported.startswith("tests.") or imported.startswith("tests.support"), f"{name}:{node.lineno}"


def test_tests_mirror_the_rooms():
    folders = {name.rpartition("/")[0].removeprefix("tests/") for name in FILES if name.startswith("tests/")}
    rooms = {name.rpartition("/")[0] for name in SOURCES}
    for folder in folders:
        place = folder.split("/")
        known = place[0] in ("tests", "support", "corpus", "docs") or any(room == folder for room in rooms)
        assert known or "/".join(place[:-1]) in folders, f"tests/{folder}: no such room"


def test_top_level_layout():
    assert {name.split("/")[0] for name in FILES} <= TOP_LEVEL


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".py")])
def test_file_names_say_what_is_inside(name):
    for part in Path(name).with_suffix("").parts:
        assert not VAGUE_NAMES.search(part), f"{name}: a name that says nothing"


@pytest.mark.parametrize("name", [name for name in SOURCES if name.startswith(("sim/", "validation/"))])
def test_names_of_quantities_end_with_their_unit(name):
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.arg):
            word = node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            word = node.target.id
        else:
            continue
        last = word.rpartition("_")[2]
        assert last not in BARE_QUANTITIES, f"{name}:{node.lineno}: {word} has no unit"


def test_a_unit_of_measure_is_defined_once():
    pattern = re.compile(r"(?:(?:PS|NS|US|MS)_PER_(?:NS|US|MS|S)|HZ_PER_MHZ|KIB|MIB|GIB|KILO|MEGA|GIGA|TERA)$")
    assigned = [
        (name, target.id)
        for name in SOURCES
        for node in tree_of(name).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and pattern.match(target.id)
    ]
    assert {name for name, _ in assigned} == {"traces/units.py"}, assigned


@pytest.mark.parametrize("name", SOURCES)
def test_files_are_short(name):
    lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_PER_FILE, f"{name}: {lines} lines, is it one thing?"


def test_functions_are_short():
    lengths = [
        (node.end_lineno - node.lineno + 1, f"{name}:{node.lineno} {node.name}")
        for name in SOURCES
        for node in functions(tree_of(name))
    ]
    long = sorted((entry for entry in lengths if entry[0] > LINES_PER_FUNCTION), reverse=True)
    assert len(long) <= (1 - FUNCTIONS_THAT_FIT) * len(lengths), long


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".py", ".md", ".toml", ".csv", "run"))])
def test_nothing_unfinished_and_no_machine_in_the_text(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    unfinished = re.search(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|NotImplemented" r"Error)\b", text)
    assert not unfinished, f"{name}: {unfinished}"
    place = re.search(r"(?<![\w.])/(home|root|work|Users|mnt)/", text) if name != "tests/test_doors.py" else None
    assert not place, f"{name}: names a place of one machine: {place}"
