"""From experiments and claims to the report: the table, its files, what resumes, and the exit status."""

import csv
import json
import shutil
import sys

import h5py
import pytest

from sim.run.store import Store
from tests.support.fake_runs import fake_results
from tests.support.paths import ROOT
from tests.support.schemas import check_other
from traces.command.cli import main as t3sim
from traces.command.document import Bullets, Heading, Table, Text, from_markdown, to_html, to_markdown
from traces.errors import UserError
from validation.claims.claim import Claim
from validation.experiments.ablation import Ablation
from validation.experiments.bert_layer import CONTRACTION, NORMALISATION
from validation.experiments.collectives import ScatterSizes
from validation.experiments.cu_split import CuSplit
from validation.experiments.layers import Layers
from validation.experiments.load import load_experiments
from validation.experiments.model_steps import CLASSES, KINDS, LAYER, layer_kind
from validation.experiments.search import Search
from validation.experiments.sublayers import Sublayers
from validation.experiments.workbench import Workbench
from validation.report import answers as answers_module
from validation.report import bert_page
from validation.report.answers import _complete, answer_claims
from validation.report.archive import write_findings
from validation.report.compare import INSIDE, NOT_RUN
from validation.report.draw import draw_figures, published_speedups
from validation.report.figures import model_steps
from validation.report.page import CLAIM_COLUMNS, NOTES, conclusions, write_report
from validation.report.tables import answer_tables
from validation.verbs import validate as verb

NAME = "mega-gpt-2/op/tp8"
SMALL = Workbench(tokens=256)
EXPERIMENTS = {
    "small": Sublayers(title="Small", full=False, scenarios=(NAME,), bench=Workbench(tokens=256, series=(NAME,))),
    "both": Sublayers(title="Both", scenarios=(NAME, "mega-gpt-2/fc2/tp8"), bench=SMALL),
    "sizes": ScatterSizes(title="Sizes", gpus=(8,), sizes_MB=(4, 8)),
    "split": CuSplit(title="Split", scenarios=(NAME,), collective_cus=(8,), bench=SMALL),
    "layers": Layers(title="Layers", models=("mega-gpt-2/tp8",), heads={"mega-gpt-2": 24}, bench=SMALL),
    "ablation": Ablation(title="Ablation", scenarios=(NAME,), jitter_ps=1000, seeds=(1,), bench=SMALL),
    "search": Search(
        title="Search",
        space="t3_authors",
        machines=12,
        scenarios=(NAME, "mega-gpt-2/op/tp16", "mega-gpt-2/fc2/tp8"),
        bench=SMALL,
    ),
}


def claim(name, experiment, answer, published, **more):
    given = {"source": "s", "quantity": f"the {name}", "unit": "x", "read": "r", "kind": "prediction"}
    return Claim(id=name, experiment=experiment, answer=answer, published=published, **given | more)


CLAIMED = {name: EXPERIMENTS[name] for name in ("small", "both", "sizes")}
"""Those of the claims: the whole report, with the figures of a search, takes some ten seconds."""
CLAIMS = [
    claim("gain", "small", f"{NAME}/T3-MCA/speedup", 1.30, tolerance=0.5, note="why | so"),
    claim("far", "both", "geomean/T3-MCA/speedup", 3.0, tolerance=0.1),
    claim("machine", "sizes", "8/4MB/rs_us", 500.0, unit="us"),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Folder of a store that has done everything."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    store = Store(folder)
    for experiment in EXPERIMENTS.values():
        for key, result in fake_results(experiment.runs()).items():
            store.put(key, result)
    return folder


@pytest.fixture
def store(filled, tmp_path, monkeypatch):
    """The user's store: a copy of the filled one."""
    shutil.copytree(filled, tmp_path / "store")
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    return Store()


def answered(store, **settings):
    return answer_claims(store, **{"full": True, "experiments": EXPERIMENTS, "claims": CLAIMS} | settings)


def report(store, folder):
    """Write everything that a report has into a new folder."""
    folder.mkdir()
    found = answered(store)
    write_report(folder, found, draw_figures(found, folder))
    write_findings(folder / "validation.h5", found)
    return folder


@pytest.fixture(scope="module")
def reported(filled, tmp_path_factory):
    """Folder of the report of all experiments."""
    return report(Store(filled), tmp_path_factory.mktemp("reported") / "out")


@pytest.mark.slow
def test_quick_runs_take_what_the_store_has(store, tmp_path):
    found = answered(store, full=False, experiments=CLAIMED)
    assert set(found.answers) == set(CLAIMED) and found.rows[0].verdict == INSIDE
    other = Store(tmp_path / "other")
    for run in EXPERIMENTS["small"].runs():
        other.put(run.key, store.get(run.key))
    found = answered(other, full=False, experiments=CLAIMED)
    assert set(found.answers) == {"small"} and found.rows[1].verdict == NOT_RUN


@pytest.mark.slow
def test_report_archive_and_figures(reported):
    markdown = (reported / "report.md").read_text(encoding="utf-8")
    assert "| the gain | 1.3 x |" in markdown and "3 claims: 1 inside, 1 outside, 1 shown." in markdown
    rows = ("| geomean | 72-8 |", "| mega-gpt-2/op/tp8 | 1 |", "| DRAM queue = one |", "| training, mega-gpt-2/tp8 |")
    assert all(row in markdown for row in rows)
    figures = sorted(path.name for path in (reported / "figures").iterdir())
    assert len(figures) == 4 + 3 + 1 + 1 + 1 + 2
    for name in figures:
        assert f"(figures/{name})" in markdown
        assert (reported / "figures" / name).read_bytes().startswith(b"\x89PNG")
    page = (reported / "report.html").read_text(encoding="utf-8")
    assert page.count('<img src="data:image/png;base64,') == len(figures)
    assert "http:" not in page and "https:" not in page  # base64 has no colon
    with h5py.File(reported / "validation.h5") as file:
        assert file["claims/id"].asstr()[:].tolist() == ["gain", "far", "machine"]
        assert file["claims/published"][1] == 3.0
        names = file["answers/both/name"].asstr()[:].tolist()
        assert file["answers/both/value"][names.index("geomean/Sequential/speedup")] == 1.0
        assert file[f"series/small/{NAME}/t3/dram_comm_read_bytes"][:].tolist() == [10**6, 2 * 10**6]


@pytest.mark.slow
def test_a_search_answers_with_the_machines_that_have_all_runs(store, tmp_path):
    search = EXPERIMENTS["search"]
    first, second = [each.sublayers.runs() for each in search.candidates()][:2]
    other = Store(tmp_path / "other")
    for run in [*first, *second[1:]]:
        other.put(run.key, store.get(run.key))
    found = answer_claims(other, full=False, experiments={"search": search}, claims=[])
    assert found.answers == {} and not found.failed  # nobody has asked for it
    results = {}
    assert not _complete(search.runs(), results, other, partial=True)
    assert {name.partition("/")[0] for name in search.answers(results)} == {"base"}
    found = answer_claims(store, full=False, experiments={"search": search}, claims=[])
    assert {name.partition("/")[0] for name in found.answers["search"]} == {"base", *map(str, range(search.machines))}


def test_published_speedups_are_drawn_beside_ours():
    assert published_speedups("both", CLAIMS) == {"geomean": {"T3-MCA": 3.0}}
    assert published_speedups("small", CLAIMS) == {}


def test_conclusions_are_of_experiments_that_the_report_holds():
    known = load_experiments()
    headings = [block for block in from_markdown(NOTES.read_text(encoding="utf-8")) if isinstance(block, Heading)]
    named = [name for heading in headings for name in heading.text.split(", ")]
    assert set(named) <= set(known)
    committed = (ROOT / "validation" / "tables" / "report" / "report.md").read_text(encoding="utf-8")
    assert to_markdown(conclusions(known)) in committed
    assert conclusions(["small", "quick"]) == []
    words = to_markdown(conclusions(["cu_split", "ablation"]))
    assert "Software overlap" in words and "FC-2" not in words


@pytest.mark.slow
def test_the_same_answers_give_the_same_bytes(reported, store, tmp_path):
    again = report(store, tmp_path / "again")
    for path in reported.rglob("*.*"):
        assert path.read_bytes() == (again / path.relative_to(reported)).read_bytes(), path.name


@pytest.mark.slow
def test_claims_that_nothing_answers_are_refused(store):
    def asked(**settings):
        return answered(store, experiments=CLAIMED, **settings)

    with pytest.raises(UserError, match="no experiment 'none'"):
        asked(claims=[claim("x", "none", "y", 1.0)])
    with pytest.raises(UserError, match="no answer 'y'"):
        asked(claims=[claim("x", "small", "y", 1.0, tolerance=1)])
    assert asked(claims=[claim("x", "small", "y", 1.0)]).rows[0].verdict == NOT_RUN
    with pytest.raises(UserError, match="no such experiment"):
        asked(only=("none",))


@pytest.fixture
def command(store, tmp_path, monkeypatch):
    """`t3sim validate` on the experiments of the claims, with a baseline that the test writes."""
    baseline = tmp_path / "baseline.json"
    monkeypatch.setattr(answers_module, "load_experiments", lambda: CLAIMED)
    monkeypatch.setattr(answers_module, "load_claims", lambda: CLAIMS)
    monkeypatch.setattr(verb, "BASELINE", baseline)
    monkeypatch.setattr(verb, "draw_figures", lambda *_: {})  # drawn in the tests above

    def run(*arguments, inside=()):
        if inside:
            baseline.write_text(json.dumps({"inside": list(inside)}))
        return t3sim(["validate", "--out", str(tmp_path), *arguments])

    return run


@pytest.mark.slow
def test_the_command(command, capsys):
    assert command("--json") == 0
    found = json.loads(capsys.readouterr().out)
    check_other("validate", found)
    assert [each["id"] for each in found["claims"]] == ["gain", "far", "machine"]
    assert found["claims"][1]["verdict"] == "outside" and found["claims"][1]["kind"] == "prediction"
    assert command("--full", inside=["gain"]) == 0
    assert "1 inside, 1 outside, 1 shown" in capsys.readouterr().out
    assert command("--full", "--format", "csv") == 0
    _, names, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert names == [*CLAIM_COLUMNS] and [row[:2] for row in rows[:-1]] == [
        ["the gain, x", "1.3"], ["the far, x", "3.0"], ["the machine, us", "500.0"],
    ]  # fmt: skip
    assert all(float(row[1]) + float(row[3]) == pytest.approx(float(row[2])) for row in rows[:-1])


@pytest.mark.slow
def test_no_number_is_lost_for_want_of_a_picture(command, capsys, monkeypatch, tmp_path):
    """Without matplotlib, or where a figure cannot be drawn."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        assert command("--full", inside=["gain"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("the report will have no figures: figures need matplotlib: pip install 't3sim[plots]'")
    assert "report.html and validation.h5\n" in said.out and "![" not in (tmp_path / "report.md").read_text()
    (tmp_path / "report.md").unlink()

    def fails(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(verb, "draw_figures", fails)
    with pytest.raises(ZeroDivisionError):
        command("--full")
    assert "| the gain | 1.3 x |" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert (tmp_path / "validation.h5").exists()


@pytest.mark.slow
def test_a_claim_that_has_left_its_tolerance_fails_the_command(command, capsys):
    assert command("--full", inside=["gain", "far"]) == 1
    assert "claim far has left its tolerance" in capsys.readouterr().err
    assert command("--full", "--accept") == 0
    assert command("--full") == 0


@pytest.mark.slow
def test_the_list_and_mistakes(command, capsys):
    assert t3sim(["validate", "--list", "--json"]) == 0
    assert "paper" in json.loads(capsys.readouterr().out)
    assert command("--only", "none") == 2
    assert command("--workers", "0") == 2


def test_notes_become_blocks():
    text = "## Why\n\nTwo lines\nof a text.\n\n* one\n  and more\n* two\n"
    assert from_markdown(text) == [Heading("Why", 2), Text("Two lines of a text."), Bullets(["one and more", "two"])]


def test_documents_escape_what_markup_would_take():
    blocks = [Heading("a < b", 2), Table(("x", "verdict"), [("p|q", "outside")], ("x",)), Bullets(["one"])]
    assert "| p\\|q | outside |" in to_markdown(blocks)
    page = to_html(blocks, "t", None)
    assert "a &lt; b" in page and '<td class="outside">' in page and '<td class="number">p|q' in page


def test_the_table_and_the_figure_of_a_training_step(tmp_path):
    experiment = load_experiments()["bert_training"]
    answers = {}
    for case in experiment.cases:
        answers |= {f"{case}/{name.replace(' ', '_')}_ms": 2.0 for name in CLASSES}
        answers |= {f"{case}/time_ms": 2.0 * len(CLASSES), f"{case}/near_memory_speedup": 1.25}
        answers |= {f"{case}/layer_{kind}_share": 30.0 + place for place, kind in enumerate(KINDS)}
    table, _, kinds = answer_tables(experiment, answers)
    assert [row[0] for row in table.rows] == [row[0] for row in kinds.rows] == [*experiment.cases]
    assert table.rows[0][1:] == ["10.0", *["20.0"] * len(CLASSES), "1.250"]
    assert kinds.rows[0][1:] == ["30.0", "31.0", "32.0"]
    text = bert_page.page(bert_page.study(), answers)
    assert "| batch 8 | 10.0 | 20.0 |" in text and all(f"* {each}" in text for each in experiment.assumed)
    assert "\n## " in text and "Not simulated" not in text  # the notes
    some = bert_page.page(bert_page.study(["batch 8"]), answers)
    assert (
        "| batch 8 | 10.0 |" in some and "| batch 4 |" not in some and "Not simulated yet: batch 4, batch 16," in some
    )
    model_steps.draw(answers, [*experiment.cases], experiment.title, tmp_path / "steps.png")
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


def test_the_classes_of_a_layers_kernels():
    """As arXiv 2007.00072 counts them: what has a sum over a row or over the tokens, and the dropout of the scores."""
    scenario = bert_page.study().scenario("recomputation")
    kinds = {step.name: layer_kind(step, step.work) for block, step in scenario.steps() if block.name in LAYER}
    sums = {name.removeprefix("again_") for name, kind in kinds.items() if kind == NORMALISATION}
    assert {name for name in sums if "bias_back" not in name} == {
        *("attention_norm_0", "attention_residual_norm_2", "softmax", "attention_dropout"),
        *("attention_dropout_back", "softmax_back_product", "softmax_back"),
        *("attention_norm_back_1", "attention_residual_norm_back_1"),
        *("attention_residual_norm_back_4", "mlp_residual_back_2", "mlp_activation_back_1"),
    }
    products = {name for name, kind in kinds.items() if kind == CONTRACTION}
    assert len(products) == 2 * 8 + 16  # eight GEMMs, twice as many for the gradients
