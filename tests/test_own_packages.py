"""Packages of other people with our names: the command and `import t3sim` say whose they are, and how to go on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t3sim_packages import PACKAGES, foreign_packages, main
from tests.support.paths import ROOT

COMMAND = "import sys; from t3sim_packages import main; sys.exit(main())"


def python(program, *arguments, cwd, path=(ROOT,)):
    """Run a program as a user would: with `path` on the path of Python, in the folder `cwd`."""
    variables = {"PYTHONPATH": ":".join(map(str, path))}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=variables)


@pytest.fixture
def copy(tmp_path):
    """An installation without the code of the packages: enough to check them."""
    for name in PACKAGES:
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").touch()
    shutil.copytree(ROOT / "t3sim", tmp_path / "site" / "t3sim")
    shutil.copy(ROOT / "t3sim_packages.py", tmp_path / "site")
    return tmp_path / "site"


def test_the_packages_of_the_checkout_are_its_own():
    assert foreign_packages() == []
    assert [name for name in PACKAGES if (ROOT / name / "__init__.py").read_bytes()] == []


def test_the_command_begins_with_the_check(tmp_path):
    done = python(COMMAND, "--version", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("t3sim, version")


def test_an_interrupt_while_modules_are_loaded(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("t3sim_packages.import_module", interrupted)
    assert main() == 130 and capsys.readouterr().err == "t3sim: interrupted\n"


@pytest.mark.parametrize("program", [COMMAND, "import t3sim"])
@pytest.mark.parametrize("fake", ["sim.py", "traces.py", "tracer/__init__.py", "validation/__init__.py"])
def test_a_file_of_the_user_that_hides_a_package(fake, program, tmp_path):
    (tmp_path / fake).parent.mkdir(exist_ok=True)
    (tmp_path / fake).write_text("raise SystemExit('it ran')\n")
    done = python(program, "presets", cwd=tmp_path, path=(tmp_path, ROOT))
    assert done.returncode != 0 and "it ran" not in done.stderr
    name = Path(fake).parts[0].removesuffix(".py")
    assert f"package {name}: Python finds {tmp_path / fake}, which hides {ROOT / name}" in done.stderr
    if program == COMMAND:
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("program", [COMMAND, "import t3sim"])
def test_another_distribution_writes_into_our_folder(program, copy):
    (copy / "traces" / "__init__.py").write_text("from .timeseries import TimeSeries\n")
    record = copy / "traces-0.6.4.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: traces\nVersion: 0.6.4\n")
    (record / "top_level.txt").write_text("traces\n")
    done = python(program, "doctor", cwd=copy.parent, path=(copy,))
    assert done.returncode != 0
    assert f"package traces: traces has replaced {copy / 'traces' / '__init__.py'}" in done.stderr
    assert "install t3sim again" in done.stderr


def test_a_package_that_is_gone(copy):
    (copy / "sim" / "__init__.py").unlink()
    done = python(COMMAND, "doctor", cwd=copy.parent, path=(copy,))
    assert done.returncode == 2 and "sim/__init__.py is missing; install t3sim again" in done.stderr


def test_python_m_t3sim_is_the_command(tmp_path):
    """Also with a policy, which must be known before the machine is imported."""
    (tmp_path / "own.py").write_text('"""No function pick."""\n')
    for arguments, status, says in (
        (["--version"], 0, "t3sim, version"),
        (["run", "--gemm", "64x64x32", "--policy", "own.py"], 2, "own.py"),
    ):
        command = [sys.executable, "-m", "t3sim", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}
        )
        assert done.returncode == status and says in done.stdout + done.stderr
        assert "before" not in done.stderr
