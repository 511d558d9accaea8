"""README.md: its Python runs, its commands name what exists, its links lead somewhere."""

import re
import shlex

import pytest

from sim.presets import load_preset
from tests.support.paths import ROOT
from tracer.workloads import named_sublayer
from traces.archive import open_archive

README = (ROOT / "README.md").read_text(encoding="utf-8")
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def block(language, number=0):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)[number]


def test_the_lines_of_python_run(capsys):
    lines = [line for line in block("python").splitlines() if line]
    assert len(lines) <= 5
    names = {}
    exec(compile("\n".join(lines), "README.md", "exec"), names)
    found = names["result"]
    assert found.headline()["dram_read_sectors"] == 2 * 512 * 256 * 2 // 32  # A and B once
    assert len(found.frame("hbm")) == found.preset.machine.hbm.channels
    assert capsys.readouterr().out.split()[0] == str(found.headline()["time_ns"])


def test_the_main_job_names_what_exists():
    commands = [shlex.split(line) for line in block("sh").replace("&&\n", "\n").splitlines()]
    workload, stored = (words for words in commands if words[:2] == [".venv/bin/t3sim", "run"])
    problem, _ = named_sublayer(workload[workload.index("--workload") + 1])
    assert f"{problem.m} x {problem.n} x {problem.k}" in README
    with open_archive(ROOT / stored[2]) as trace:
        assert len(trace.kernels) == 1
    for words in (workload, stored):
        load_preset(words[words.index("--preset") + 1])


def test_links_lead_somewhere():
    files = re.findall(r"\]\(((?!https)[^)]+)\)", README) + re.findall(r"`((?:sim|validation|traces)/[\w./]+)`", README)
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_every_dependency_is_explained():
    listed = re.findall(r'"([\w-]+)>=', PYPROJECT.partition("[project]")[2])
    reasons = README[README.index("## Why these libraries") : README.index("## Words")]
    assert [name for name in listed if f"**{name}**" not in reasons] == []


@pytest.mark.parametrize("name", ["t-nlg-fc2-tp8-dram.png"])
def test_figures_are_small(name):
    assert (ROOT / "validation" / "tables" / "report" / "figures" / name).stat().st_size < 150_000


def test_the_heart_of_the_report_is_the_report():
    section = README[README.index("## How close") : README.index("## Test")]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    report = (ROOT / "validation" / "tables" / "report" / "report.md").read_text(encoding="utf-8").splitlines()
    assert len(rows) >= 12
    assert [row for row in rows if row not in report] == []
