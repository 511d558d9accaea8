"""The schemas of --json: what the verbs print is valid, and has no field that its schema does not describe."""

import json
import re

import jsonschema
import pytest
from click.testing import CliRunner

from sim.verbs.collective import collective
from sim.verbs.explain import explain_verb
from sim.verbs.kernel import kernel
from sim.verbs.model import model
from sim.verbs.run import run
from sim.verbs.t3 import t3
from tests.support.doc_blocks import DOCS

GEMM = "gemm:m=128,n=128,k=32,tile=64x64x32"
LAYER = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
}


def schema_of(name):
    return json.loads((DOCS / "schema" / f"{name}.json").read_text(encoding="utf-8"))


def printed(verb, *arguments):
    done = CliRunner().invoke(verb, [*map(str, arguments), "--json"])
    if done.exception:
        raise done.exception
    return json.loads(done.stdout)


@pytest.fixture
def archive(tmp_path):
    return tmp_path / "a.h5"


def check(name, content):
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(content, schema)
    assert sorted(content.keys() - schema["properties"].keys()) == []
    assert sorted(set(schema["required"]) - content.keys()) == []


def test_run(archive):
    check("run", printed(run, "--kernel", GEMM, "--preset", "t3_2024", "-o", archive))
    check("explain", printed(explain_verb, archive, "--checks", 1, "--assumed", 1))


def test_t3(archive):
    check("t3", printed(t3, "--kernel", GEMM, "--gpus", 2, "-o", archive))


def test_collective():
    check("collective", printed(collective, "all_gather", "--gpus", 2, "--bytes", 4096))


def test_kernel():
    check("kernel", printed(kernel, "rmsnorm:rows=8,cols=256"))


@pytest.mark.slow
def test_model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LAYER))
    deployment = ("--gpus", 2, "--tp", 2, "--sequence", 64, "--dtype", "fp16", "--configuration", "T3")
    found = printed(model, tmp_path / "config.json", "--preset", "t3_2024", *deployment)
    check("model", found)
    assert found["operators"] and list(found["configurations"]) == ["Sequential", "T3"]


def test_the_page_of_formats_names_every_schema():
    section = (DOCS / "formats.md").read_text(encoding="utf-8").partition("## JSON and exit statuses")[2]
    sentence = section.partition("prints one object")[0]
    assert set(re.findall("`([a-z0-9]+)`", sentence)) == {path.stem for path in (DOCS / "schema").iterdir()}


def test_a_missing_or_wrong_field_is_found():
    content = dict.fromkeys(schema_of("explain")["required"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content, schema_of("explain"))
