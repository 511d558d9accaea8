"""The command: verbs and their examples, JSON and nothing else, one line for a mistake, exit statuses."""

import json
import os
import signal
import subprocess
import sys

import click
import pytest

from sim.results import write_results
from sim.verbs.warm import ACCELSIM_TRACE
from tests.support.paths import ROOT
from tests.support.result_samples import sample_results
from tracer.accelsim.writer import same_events
from traces.archive import open_archive
from traces.command.cli import main
from traces.command.numbers import numbers_of
from traces.command.verbs import verbs
from traces.errors import UserError

STREAM = "R 0 0\nR 64 0\nW 4096 0\n"
ALL_VERBS = [tuple(name.split(".")) for name in verbs()]


@pytest.fixture
def archive(tmp_path):
    """A small trace archive."""
    path = tmp_path / "gemm.h5"
    assert main(["trace", "make", "gemm:m=64,n=64,k=32", "-o", str(path)]) == 0
    return path


@pytest.fixture
def result(tmp_path):
    path = tmp_path / "result.h5"
    write_results(path, sample_results())
    return path


def printed_json(capsys, *arguments):
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("verb", ALL_VERBS, ids=" ".join)
def test_help_of_every_verb_shows_an_example(verb, capsys):
    assert main([*verb, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"t3sim {' '.join(verb)}" in shown.partition("Example: ")[2]


def test_the_list_of_verbs_imports_none_of_them():
    program = "import sys; from traces.command.cli import main; main(['--help']); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in verbs() if "." not in name)
    assert done.stdout.endswith("False\n")


@pytest.mark.slow
def test_a_verb_loads_only_what_it_needs():
    program = "import sys; from traces.command.cli import main; main(['trace', 'make', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if name == "sim.machine.build" or name.startswith("matplotlib")]


def test_trace_verbs(archive, capsys):
    described = printed_json(capsys, "trace", "info", archive)
    verified = printed_json(capsys, "trace", "verify", archive)
    assert described["kernels"][0]["name"] == "gemm_64x64x32"
    assert verified["events"] == described["kernels"][0]["events"]
    assert verified["checksum"] == described["checksum"]
    assert main(["trace", "info", str(archive)]) == 0
    assert "gemm_64x64x32" in capsys.readouterr().out
    assert main(["trace", "info", str(archive), "--format", "csv"]) == 0
    title, names, values, empty = capsys.readouterr().out.splitlines()
    found = dict(zip(names.split(","), values.split(","), strict=True))
    assert int(found["events"]) == described["kernels"][0]["events"] and title.startswith("# ") and not empty


@pytest.mark.parametrize("options", ["", ",copy=async,dtype=fp16,with_c=true", ",epilogue=staged,order=grouped"])
def test_export_and_import_give_the_trace_back(options, tmp_path, capsys):
    archive = tmp_path / "gemm.h5"
    printed_json(capsys, "trace", "make", f"gemm:m=100,n=130,k=72{options}", "-o", archive)
    exported = printed_json(capsys, "trace", "export", archive, "-o", tmp_path / "text", "--xz")
    imported = printed_json(capsys, "trace", "import", tmp_path / "text", "-o", tmp_path / "again.h5")
    original = printed_json(capsys, "trace", "verify", archive)
    assert (exported["kernels"], exported["changed_workgroups"], imported["skipped"]) == (1, 0, 0)
    for content in ("kernels", "workgroups", "warps", "events", "instructions"):
        assert imported[content] == original[content]
    with open_archive(archive) as one, open_archive(tmp_path / "again.h5") as other:
        pairs = zip(one.kernels[0].workgroups(), other.kernels[0].workgroups(), strict=True)
        assert all(same_events(ours, theirs) for ours, theirs in pairs)


def test_host_copies_of_each_gpus_list_make_hits_in_l2(tmp_path, capsys):
    """One folder, two GPUs: the list with the copy (of a 64-bit address) finds its data in L2, the other does not."""
    kernel = ACCELSIM_TRACE.replace("0x700000000000", "0x7f2b2d500000")
    (tmp_path / "kernel-1.traceg").write_text(kernel)
    (tmp_path / "kernelslist_ctx_0x1.g").write_text("MemcpyHtoD,0x00007f2b2d500000,128\nMemcpyX\nkernel-1.traceg\n")
    (tmp_path / "kernelslist_ctx_0x2.g").write_text("MemcpyX,1\nMemcpyX,2\nkernel-1.traceg\n")
    assert main(["run", str(tmp_path), "--preset", "accelsim_qv100"]) == 2
    assert "found kernelslist_ctx_0x1.g, kernelslist_ctx_0x2.g: give the path" in capsys.readouterr().err
    found = []
    for gpu in ("1", "2"):
        assert main(["run", str(tmp_path / f"kernelslist_ctx_0x{gpu}.g"), "--preset", "accelsim_qv100", "--json"]) == 0
        said = capsys.readouterr()
        assert said.err.count("unknown command 'MemcpyX', ignored") == 1
        run = json.loads(said.out)
        found.append((run["l2_read_sectors"], run["l2_read_hit_sectors"], run["dram_read_sectors"]))
    assert found == [(4, 4, 0), (4, 0, 4)]


@pytest.mark.parametrize(
    ("found", "changed", "resource"),
    [("shmem = 0", "shmem = 99000", "cu.shared_bytes = 98304"), ("(32,1,1)", "(1024,1,1)", "cu.registers_bytes")],
)
def test_a_trace_whose_workgroups_do_not_fit_is_refused(found, changed, resource, tmp_path, capsys):
    (tmp_path / "kernel-1.traceg").write_text(ACCELSIM_TRACE.replace(found, changed).replace("nregs = 8", "nregs = 99"))
    assert main(["run", str(tmp_path / "kernel-1.traceg"), "--preset", "v100"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "does not fit on a CU" in error and resource in error


def test_lenient_import_counts_what_it_skips(tmp_path, capsys):
    (tmp_path / "kernelslist.g").write_text("kernel-1.traceg\nkernel-2.traceg\n")
    (tmp_path / "kernel-2.traceg").write_text(ACCELSIM_TRACE)
    command = ["trace", "import", tmp_path / "kernelslist.g", "-o", tmp_path / "out.h5"]
    assert main([*map(str, command)]) == 2
    assert "kernelslist.g:1" in capsys.readouterr().err and not (tmp_path / "out.h5").exists()
    assert printed_json(capsys, *command, "--lenient")["skipped"] == 1
    assert main([*map(str, command), "--lenient"]) == 0
    assert "kernelslist.g:1: skipped" in capsys.readouterr().err


def test_fields_of_a_kernel_reach_the_synthesiser(tmp_path, capsys):
    out = tmp_path / "odd.h5"
    options = "tile=64x32x16,warps=2x1,order=grouped,group=2,copy=async,epilogue=staged,lanes=64"
    problem = "m=100,n=60,k=40,dtype=fp32,out_dtype=fp16,b_layout=column,ldb=48,with_c=true"
    written = printed_json(capsys, "trace", "make", f"gemm:{problem},{options}", "-o", out)
    found = printed_json(capsys, "trace", "info", out)["kernels"][0]["attributes"]
    assert written["workgroups"] == 4
    kernel, gemm = found["kernel"], found["problem"]
    assert (kernel["tile_m"], kernel["tile_n"], kernel["tile_k"], kernel["warps_m"], kernel["lanes"]) == (
        64,
        32,
        16,
        2,
        64,
    )
    assert (kernel["order"], kernel["copy"], kernel["epilogue"], kernel["group"]) == (2, 1, 1, 2)
    assert (gemm["m"], gemm["n"], gemm["k"], gemm["a_bytes"], gemm["c_bytes"]) == (100, 60, 40, 4, 2)
    assert (gemm["b_layout"], gemm["ldb"], gemm["with_c"]) == (1, 48, True)


def test_show(result, capsys):
    found = printed_json(capsys, "show", result)
    expected = sample_results()
    assert found["time_ns"] == 11.0
    assert found["l2_read_sectors"] == expected.totals["l2.read_sectors"]
    assert [kernel["name"] for kernel in found["kernels"]] == ["first", "second"]
    assert main(["show", str(result)]) == 0
    shown = capsys.readouterr().out
    assert "l2_read_sectors" in shown and "values of v100 are assumed" in shown
    assert main(["show", str(result), "--unit", "hbm"]) == 0
    assert "bus_busy_ps" in capsys.readouterr().out


def test_presets(capsys):
    assert {"v100", "t3_2024", "accelsim_qv100"} <= printed_json(capsys, "presets").keys()
    fields = printed_json(capsys, "presets", "v100", "--set", "l2.mshrs=7")["fields"]
    assert fields["l2.mshrs"] == {"value": 7, "kind": "override", "source": "set for this run"}
    kinds = {leaf["kind"] for leaf in printed_json(capsys, "presets", "v100", "--assumed")["fields"].values()}
    assert kinds == {"assumed", "borrowed"}
    assert main(["presets"]) == 0
    assert "1024 GB/s DRAM" in capsys.readouterr().out


def test_dram(tmp_path, capsys):
    stream = tmp_path / "three.trace"
    stream.write_text(STREAM)
    found = printed_json(capsys, "dram", stream, "--set", "G", "--map", "BG", "--nmc-updates")
    wanted = "cycles bandwidth_GBps avg_read_latency_ns p50_latency_ns p99_latency_ns row_hit_rate acts requests_per_s"
    assert set(wanted.split()) <= found.keys()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["runn"], ["'runn'", "run"]),
        (["trace", "inform"], ["'inform'", "info"]),
        (["show"], ["RESULT"]),
        (["show", "nothing.h5"], ["nothing.h5", "no such file"]),
        (["show", "result.h5", "--unit", "l9"], ["l9", "hbm"]),
        (["show", "result.h5", "--unit", "hbm", "--names", "nsight"], ["--unit", "--names"]),
        (["show", "result.h5", "--colour"], ["--colour"]),
        (["trace", "info", "result.h5"], ["result.h5", "t3sim-results", "t3sim-trace"]),
        (["trace", "make", "gemm:m=0,n=1,k=1", "-o", "x.h5"], ["m = 0", "1 to "]),
        (["trace", "make", "gemm:m=x,n=1,k=1", "-o", "x.h5"], ["gemm: m", "'x'", "at most 18 digits"]),
        (["trace", "make", "gemm:m=8,n=8,k=8,mac_cost=-1", "-o", "x.h5"], ["mac_cost", "'-1'", "not negative"]),
        (["trace", "info", "."], [".: is a folder"]),
        (["run", "gemm:m=8,n=8,k=8"], ["no such file", "--kernel gemm:m=8,n=8,k=8"]),
        (["trace", "make", "gemm:m=8,n=8,k=8,tile=1x2", "-o", "x.h5"], ["tile", "'1x2'", "<number>x<number>x<number>"]),
        (["trace", "make", "gemm:m=8,n=8,k=8,order=spiral", "-o", "x.h5"], ["order", "spiral", "grouped"]),
        (["trace", "make", "gemm:m=8,n=8,k=8", "-o", "no/x.h5"], ["no/x.h5"]),
        (["trace", "make", "atention:heads=8", "-o", "x.h5"], ["'atention'", "flash_attention"]),
        (["presets", "--set", "l2.mshrs=7"], ["--set", "NAME"]),
        (["presets", "--assumed"], ["--assumed", "NAME"]),
        (["kernel", "--list", "adam:parameters=3"], ["--list", "NAME"]),
        (["kernel", "--list", "--preset", "v100"], ["--list", "--preset"]),
        (["model", "--list", "llama-3-70b"], ["--list", "NAME"]),
        (["model", "--list", "--tp", "8"], ["--list", "--tp"]),
        (["study", "study.toml", "--list", "--scheduler", "tcp://node7:8786"], ["--list", "--scheduler"]),
        (["validate", "--list", "--only", "gemm_counters"], ["--list", "--only"]),
        (["explore", "result.h5", "--port", "8000", "-o", "x.html"], ["--port", "--serve"]),
        (["explore", "result.h5", "--last", "3", "-o", "x.html"], ["--last", "store"]),
        (["run", "--gemm", "64x64x32", "--line-trace", "--checkpoint"], ["--line-trace", "--checkpoint"]),
        (["t3", "--kernel", "gemm:m=8,n=8,k=8", "--gpus", "2", "--interval-ns", "9"], ["--interval-ns", "--output"]),
        (["presets", "v10"], ["'v10'", "v100"]),
        (["presets", "v100", "--set", "l2.mshr=3"], ["l2.mshr", "l2.mshrs"]),
        (["dram", "missing.trace"], ["missing.trace"]),
        (["dram", "three.trace", "--set", "Z"], ["'Z'", "G"]),
        (["dram", "three.trace", "--map", "XY"], ["'XY'", "RO", "BG"]),
        (["dram", "broken.trace"], ["broken.trace", "2"]),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, words, result, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "three.trace").write_text(STREAM)
    (tmp_path / "broken.trace").write_text("R 0 0\nQ 1\n")
    capsys.readouterr()
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and shown.err.startswith("t3sim")
    assert all(word in shown.err for word in words), shown.err


def caused_by(problem):
    """The error of C code that an interrupt has met."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = problem
    return error


@pytest.mark.parametrize(
    ("problem", "status", "says"),
    [
        (KeyboardInterrupt(), 130, "t3sim: interrupted\n"),
        (OSError(28, "No space left on device", "big.h5"), 2, "t3sim: big.h5: No space left on device\n"),
        (click.Abort(), 130, "t3sim: interrupted\n"),
        (caused_by(KeyboardInterrupt()), 130, "t3sim: interrupted\n"),
    ],
)
def test_statuses(problem, status, says, monkeypatch, capsys):
    @click.command()
    def failing():
        raise problem

    monkeypatch.setattr("traces.command.verbs.load_verb", lambda _: failing)
    assert main(["trace"]) == status
    assert capsys.readouterr().err.lstrip() == says  # click ends the line that shows ^C


@pytest.mark.slow
def test_installed_command_is_main():
    program = "import sys; from traces.command.cli import main; sys.exit(main(['show', 'nothing.h5']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(("text", "numbers"), [("3", [3]), ("3-7", [3, 4, 5, 6, 7]), ("5-6, 0", [0, 5, 6])])
def test_number_lists(text, numbers):
    assert numbers_of(text, "--kernels") == numbers


@pytest.mark.parametrize(
    "text", ["", "a", "3-", "-3", "7-3", "1,,2", "1.5", "0-99999999999", "9" * 5000, "0,0", "5-6, 0,6"]
)
def test_wrong_number_lists(text):
    with pytest.raises(UserError, match="--kernels: found"):
        numbers_of(text, "--kernels")


def test_another_package_adds_a_verb(tmp_path):
    """Its entry point is found, its summary listed; a broken one costs one line; ours cannot be replaced."""
    (tmp_path / "others.py").write_text(
        '"""`t3sim greet`: say hello."""\n\nimport click\n\n\n@click.command()\ndef greet():\n    click.echo("hello")\n'
    )
    about = tmp_path / "others-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[t3sim.verbs]\ngreet = others:greet\nlost = others:lost\nrun = others:greet\n"
    )

    def t3sim(*arguments):
        program = "import sys; from traces.command.cli import main; sys.exit(main())"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert t3sim("greet").stdout == "hello\n"
    listed = t3sim("--help").stdout
    assert "say hello" in listed and "simulate a trace or a kernel" in listed
    lost = t3sim("lost")
    assert (lost.returncode, lost.stderr.count("\n")) == (2, 1) and "verb lost of others" in lost.stderr


def test_a_wrong_verb_is_answered_with_the_nearest(capsys):
    assert main(["shwo", "a.h5"]) == 2
    assert "no verb 'shwo'; did you mean show" in capsys.readouterr().err


SIGNALLED = """
import os, signal
from traces.command import cli
signal.signal(signal.SIGINT, signal.SIG_IGN)
def verb(*_, **__):
    try:
        os.kill(os.getpid(), {0})
    finally:
        os.kill(os.getpid(), {0} if {0} == signal.SIGTERM else 0)
        print("all is closed")
cli.t3sim.main = verb
raise SystemExit(cli.main([]))
"""


@pytest.mark.parametrize(("name", "status", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")])
def test_a_signal_ends_a_command_in_order(name, status, word):
    """A shell that starts a command with & lets it ignore interrupts. `timeout` sends SIGTERM twice."""
    command = [sys.executable, "-c", SIGNALLED.format(f"signal.{name}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "all is closed\n", f"t3sim: {word}\n")


def test_a_command_called_from_python_leaves_the_signals_as_they_were(capsys):
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--version"]) == 0 and signal.getsignal(signal.SIGTERM) is before
