"""`t3sim run`: from a GEMM, a workload or a trace to a table, a JSON object and an archive."""

import json
import os
import subprocess
import sys

import pytest

from sim import results
from tests.support.accelsim_texts import block_text, kernel_text, write
from tests.support.paths import ROOT
from traces.command.cli import main
from traces.errors import UserError

SMALL = ["--kernel", "gemm:m=256,n=256,k=64,tile_m=128", "--preset", "v100"]
KEYS = {
    *("time_ns", "warp_instructions", "line_requests", "wall_s", "compile_s", "peak_rss_bytes"),
    *("l1_read_sectors", "l1_read_hit_sectors", "l1_write_sectors"),
    *("l2_read_sectors", "l2_read_hit_sectors", "l2_read_merged_sectors", "l2_write_sectors"),
    *("dram_read_sectors", "dram_write_sectors", "dram_write_sectors_after_flush"),
}


def run_json(capsys, *arguments):
    capsys.readouterr()
    assert main(["run", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_has_the_promised_figures(capsys):
    found = run_json(capsys, *SMALL)
    assert found.keys() >= KEYS
    # 256 x 256 x 64 in fp16: A and B are read once by each of two tiles across; C leaves once.
    assert found["l1_read_sectors"] == 2 * 2 * 256 * 64 * 2 // 32
    assert found["l1_write_sectors"] == found["dram_write_sectors_after_flush"] == 256 * 256 * 2 // 32
    assert found["dram_read_sectors"] == 2 * 256 * 64 * 2 // 32
    assert found["time_ns"] > 0 and found["peak_rss_bytes"] > 1e7


def test_same_input_gives_the_same_bytes(tmp_path, capsys):
    """Also on another number of threads."""
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path, threads in zip(paths, "13", strict=True):
        options = ["--interval-ns", "500", "--fresh", "--threads", threads, "-o", str(path)]
        assert main(["run", *SMALL, *options]) == 0
    shown = capsys.readouterr().out
    assert "dram_read_sectors" in shown and "are assumed" in shown
    assert "unchanged preset beside measured and published values" in shown
    assert paths[0].read_bytes() == paths[1].read_bytes()
    found = results.open(paths[0]).run()
    assert found.interval_ps == 500_000 and len(found.series_frame()) >= 1


@pytest.mark.parametrize("kernel", ["gemm:m=256,n=256,k=64,tile_m=128", "layernorm:rows=20,cols=1024,stats=true"])
def test_a_stored_trace_gives_what_the_kernel_gives(kernel, tmp_path, capsys):
    trace = tmp_path / "kernel.h5"
    assert main(["trace", "make", kernel, "-o", str(trace)]) == 0
    stored, direct = run_json(capsys, trace), run_json(capsys, "--kernel", kernel)
    varying = {"wall_s", "compile_s", "peak_rss_bytes", "trace_fingerprint", "from_store", "input", "command"}
    assert {name: stored[name] for name in stored.keys() - varying} == {
        name: direct[name] for name in direct.keys() - varying
    }


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (["--gemm", "100x90x80"], "gemm:m=100,n=90,k=80"),
        (["--workload", "t-nlg/op/tp16"], "gemm:workload=t-nlg/op/tp16"),
    ],
)
def test_short_forms_name_the_same_kernel(short, long, monkeypatch, capsys):
    """The run itself is left out: what it is given tells."""
    given = []

    def run_or_get(run, *_, **__):
        given.append(run.key)
        raise UserError("enough")

    monkeypatch.setattr("sim.verbs.run.run_or_get", run_or_get)
    assert main(["run", *short]) == main(["run", "--kernel", long]) == 2
    assert given[0] == given[1] and capsys.readouterr().err.count("enough") == 2


def warnings_in(text):
    return [line.removeprefix("warning: ") for line in text.splitlines() if line.startswith("warning: ")]


def test_warnings_of_an_import_reach_the_archive_and_the_results(tmp_path, capsys):
    lines = ["0000 ffffffff 1 R8 FROB 0 0 0 ", "0010 ffffffff 0 EXIT 0 0 0 "]
    write(tmp_path, kernel_text([lines], grid="2,1,1") + block_text([["nonsense", *lines]], "1,0,0"))
    text, trace, result = (str(tmp_path / name) for name in ("kernel-1.traceg", "trace.h5", "result.h5"))
    assert main(["trace", "import", text, "--lenient", "-o", trace]) == 0
    warnings = warnings_in(capsys.readouterr().err)
    assert "unknown opcode FROB" in warnings[0] and "skipped: program counter is no" in warnings[1]
    for arguments in (["trace", "info", trace], ["run", trace, "-o", result], ["run", trace], ["show", result]):
        assert main([*arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["warnings"] == warnings
        assert main(arguments) == 0
        assert warnings_in(capsys.readouterr().err) == warnings


def test_a_kernel_without_workgroups_is_bound_by_nothing(tmp_path, capsys):
    path = write(tmp_path, kernel_text([]).partition("#BEGIN_TB")[0])
    assert main(["run", str(path)]) == 0
    shown = capsys.readouterr()
    assert "bounded by no unit: no workgroup ran" in shown.out and "1 of 1 thread blocks are missing" in shown.err


def test_a_result_of_an_archive_without_warnings_is_not_that_of_one_with(tmp_path, capsys):
    """The same events, of a whole text and of a damaged one."""
    lines = ["0000 ffffffff 1 R8 MOV 0 0 0 ", "0010 ffffffff 0 EXIT 0 0 0 "]
    found = []
    for text in (kernel_text([lines]), kernel_text([lines]) + "nonsense\n"):
        path, trace = write(tmp_path, text), str(tmp_path / "trace.h5")
        assert main(["trace", "import", str(path), "--lenient", "-o", trace]) == 0
        found.append(run_json(capsys, trace))
    assert found[0]["trace_fingerprint"] == found[1]["trace_fingerprint"]
    assert [len(each["warnings"]) for each in found] == [0, 1]


def test_machine_changes_by_set(capsys):
    slow = run_json(capsys, *SMALL, "--set", "hbm.extra_latency_ps=5000000")
    assert slow["time_ns"] > run_json(capsys, *SMALL)["time_ns"] + 5000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["one of TRACE"]),
        (["x.h5", "--gemm", "8x8x8"], ["one of TRACE"]),
        (["missing.h5"], ["missing.h5"]),
        (["--gemm", "8x8"], ["--gemm 8x8: ", "shape", "'8x8'"]),
        (["--gemm", "0x8x8"], ["m = 0"]),
        (["--workload", "t-nlg/fc9/tp8"], ["fc9", "fc2"]),
        (["--workload", "t-nlg"], ["model/layer/tpN"]),
        (["--workload", "t-nlg/fc2/8"], ["model/layer/tpN"]),
        (["--gemm", "8x8x8", "--preset", "v9"], ["'v9'", "v100"]),
        (["--gemm", "8x8x8", "--set", "l2.banks"], ["l2.banks"]),
        (["--gemm", "8x8x8", "--kernels", "b"], ["--kernels", "'b'"]),
        (["--gemm", "8x8x8", "--kernels", "3"], ["kernels", "3"]),
        (["--gemm", "8x8x8", "-o", "no/where.h5"], ["no/where.h5", "no such folder"]),
        (["--gemm", "8x8x8", "-o", ""], ["cannot write", "folder"]),
        (["--gemm", "8x8x8", "--interval-ns", "0"], ["--interval-ns", "0"]),
        (["--kernel", "layernrm:rows=8,cols=8"], ["'layernrm'", "layernorm"]),
        (["--kernel", "layernorm:rows=8"], ["layernorm: cols: missing"]),
        (["--kernel", "gemm:m=8,n=8,k=8", "--gemm", "8x8x8"], ["one of TRACE"]),
        (["text.g", "--kernel", "gemm:m=8,n=8,k=8"], ["one of TRACE"]),
        (["text.g"], ["text.g"]),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.g").write_text("hello\n")
    assert main(["run", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1, shown.err
    assert all(word in shown.err for word in words), shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["text.g"]


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "words"), [("def pick(:\n", "invalid syntax"), ("x = 1\n", "no function pick")])
def test_a_broken_policy_is_one_line(policy, words, tmp_path):
    """In a process of its own: the policy is bound when the machine is imported."""
    file = tmp_path / "policy.py"
    file.write_text(policy)
    program = "import sys; from traces.command.cli import main; sys.exit(main(['run', '--gemm', '64x64x64']))"
    environment = {**os.environ, "T3SIM_POLICY": str(file), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert words in done.stderr and "policy.py" in done.stderr
