"""The schemas of --json: what the verbs print is valid, and has no field that its schema does not describe."""

import json
import re

import jsonschema
import pytest
from click.testing import CliRunner

from sim.run.kernel_figures import UNITS
from sim.verbs.collective import collective
from sim.verbs.explain import explain_verb
from sim.verbs.kernel import kernel
from sim.verbs.model import model
from sim.verbs.run import run
from sim.verbs.show import show
from sim.verbs.t3 import t3
from tests.support.doc_blocks import DOCS, file_of
from tests.support.paths import ROOT
from tests.support.schemas import check, check_other, schema_of
from traces.command.cli import main

GEMM = "gemm:m=128,n=128,k=32,tile=64x64x32"
LAYER = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
}


def printed(verb, *arguments):
    done = CliRunner().invoke(verb, [*map(str, arguments), "--json"])
    if done.exception:
        raise done.exception
    return json.loads(done.stdout)


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "a.h5"


def test_run(archive):
    check("run", printed(run, "--kernel", GEMM, "--preset", "t3_2024", "-o", archive))
    check("explain", printed(explain_verb, archive, "--checks", 1, "--assumed", 1))


def test_show_of_one_run_prints_the_fields_of_run(archive):
    """But for those that its definition names."""
    ran = printed(run, "--kernel", GEMM, "--preset", "t3_2024", "-o", archive)
    shown = printed(show, archive)
    assert shown == {name: ran[name] for name in shown}
    assert all(name in schema_of("others")["$defs"]["show"]["description"] for name in ran.keys() - shown)


def test_run_of_kernels_at_once():
    beside = ("--beside", "stream:flow=copy,buffer_bytes=65536,address=1099511627776", "--cus", "shared")
    check("run", printed(run, "--kernel", GEMM, "--preset", "t3_2024", *beside))


def test_t3(archive):
    check("t3", printed(t3, "--kernel", GEMM, "--gpus", 2, "-o", archive))


def test_t3_with_a_plan(tmp_path):
    (tmp_path / "torus.py").write_text(file_of("t3.md", "torus.py"))
    arguments = ("--kernel", GEMM, "--gpus", 4, "--plan", tmp_path / "torus.py", "--configuration", "T3")
    check("t3", printed(t3, *arguments))


def test_collective():
    check("collective", printed(collective, "all_gather", "--gpus", 2, "--bytes", 4096))


def test_kernel():
    check("kernel", printed(kernel, "rmsnorm:rows=8,cols=256"))
    assert schema_of("kernel")["properties"]["bound_by"]["enum"] == [*UNITS, "latency", "launch"]


@pytest.mark.slow
def test_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LAYER))
    deployment = ("--gpus", 2, "--tp", 2, "--sequence", 64, "--dtype", "fp16", "--configuration", "T3")
    found = printed(model, tmp_path / "config.json", "--preset", "t3_2024", *deployment)
    check("model", found)
    assert found["operators"] and list(found["configurations"]) == ["Sequential", "T3"]


STUDY = """\
run = "kernel"
preset = "v100"
kernel = "gemm:m=64,n=64,k=32,tile=64x64x32"
[axes]
l2.bytes = [786432, 6291456]
"""
MADE = f"trace make {GEMM} -o g.h5"
RAN = f"run --kernel {GEMM} --preset v100 -o r.h5"
SCENARIO = f"t3 --kernel {GEMM} --gpus 2 --configuration Sequential -o t.h5"
OTHERS = {  # definition -> what runs before it, and the verb itself
    "diff": (RAN, RAN.replace("r.h5", "q.h5 --set l2.mshrs=100"), "diff r.h5 q.h5"),
    "doctor": ("doctor",),
    "dram": ("dram three.trace",),
    "kernel_list": ("kernel --list",),
    "model_list": ("model --list",),
    "estimate": (f"run --kernel {GEMM} --estimate",),
    "merge": (RAN, "merge r.h5 r.h5 -o both.h5"),
    "preset_list": ("presets",),
    "presets": ("presets v100",),
    "show": (SCENARIO, "show t.h5 --run 0"),
    "show_energy": (SCENARIO, "show t.h5 --energy hbm2_12nm"),
    "show_names": (RAN, "show r.h5 --names nsight"),
    "show_study": (RAN, "merge r.h5 r.h5 -o both.h5", "show both.h5"),
    "show_unit": (RAN, "show r.h5 --unit hbm"),
    "store_check": ("store check",),
    "store_list": (RAN, "store list"),
    "store_prune": ("store prune --bytes 1000000",),
    "study": ("study study.toml --workers 0",),
    "study_list": ("study study.toml --list",),
    "trace_export": (MADE, "trace export g.h5 -o text"),
    "trace_import": (MADE, "trace export g.h5 -o text", "trace import text/kernelslist.g -o i.h5"),
    "trace_info": (MADE, "trace info g.h5"),
    "trace_make": (MADE,),
    "trace_verify": (MADE, "trace verify g.h5"),
    "validate_list": ("validate --list",),
    "warm": ("warm",),
}
ELSEWHERE = {"elf_info": "tests/sim/verbs/test_elf_verbs.py", "validate": "tests/validation/report/test_report.py"}


@pytest.mark.parametrize("name", OTHERS)
def test_other_verbs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "three.trace").write_text("R 0 0\nR 64 0\nW 4096 0\n")
    (tmp_path / "study.toml").write_text(STUDY)
    *before, last = OTHERS[name]
    for line in before:
        assert main(line.split()) == 0
    capsys.readouterr()
    assert main([*last.split(), "--json"]) == (1 if name == "diff" else 0)
    check_other(name, json.loads(capsys.readouterr().out))


def test_every_definition_is_tested():
    assert {*OTHERS, *ELSEWHERE} == set(schema_of("others")["$defs"])
    for name, path in ELSEWHERE.items():
        assert f'check_other("{name}"' in (ROOT / path).read_text(encoding="utf-8")


def test_the_page_of_formats_names_every_schema():
    section = (DOCS / "formats.md").read_text(encoding="utf-8").partition("## JSON and exit statuses")[2]
    sentence = section.partition("prints one object")[0]
    assert {*re.findall("`([a-z0-9]+)`", sentence), "others"} == {path.stem for path in (DOCS / "schema").iterdir()}
    assert "`others.json`" in section


def test_a_missing_or_wrong_field_is_found():
    content = dict.fromkeys(schema_of("explain")["required"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema_of("explain"))
