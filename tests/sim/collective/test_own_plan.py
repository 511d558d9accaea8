"""A user's topology and plan: the torus of docs/t3.md loses nothing, what does is refused before the run."""

import hashlib
from dataclasses import replace

import pytest

from sim import results
from sim.collective.check import check_regions
from sim.collective.chunks import even_chunks
from sim.collective.own_plan import load_plan
from sim.run import run
from sim.run.gpus_run import CollectiveRun, FusedRun
from sim.scenario.result import ALL_CONFIGURATIONS, LIBRARY, SOFTWARE, SWITCH_CONFIGURATIONS
from sim.scenario.scenario import Scenario, check_scenario
from sim.spec import Arbiter
from sim.study import load_study, run_study
from tests.support.doc_blocks import file_of
from tests.support.programs import small_preset
from tests.support.t3_cases import TILE, check_empty, clusters, fp16_problem
from tracer.gemm.source import GemmSource
from traces.command.cli import main
from traces.errors import UserError

TORUS = file_of("t3.md", "torus.py")
TWO_WAYS = (
    TORUS
    + """

def fused_regions(chunks, gpu, torus=fused_regions):
    '''Tiles of odd owners go around the ring, those of even ones across the torus: GPUs are not alike.'''
    regions = torus(chunks, gpu)
    for local in range(chunks.gpus):
        far, tiles = chunks.owner_distance(local), chunks.span(gpu, local)
        if (gpu + far) % 2:
            kind = {'to': (1,)} if local == 0 else {'expects': 2, 'sends': (Send(1),) if far else (), 'chunk': local}
            regions[local] = Region(tiles.start, tiles.stop, op=Op.UPDATE, **kind)
    return regions
"""
)
SHAPE = ["--kernel", "gemm:m=256,n=256,k=32,tile=64x64x32,warps=2x2", "--gpus", "4"]
SHAPE += ["--set", "cu.count=4", "--set", "l2.banks=4", "--set", "hbm.channels=2"]


@pytest.fixture
def plan_of(tmp_path, monkeypatch):
    """A function: text of a file -> its plan, torus.py in the current folder."""
    monkeypatch.chdir(tmp_path)

    def load(text):
        (tmp_path / "torus.py").write_text(text)
        return load_plan("torus.py")

    return load


def ran(plan, gpus, explicit, m=128):
    """(result, cluster) of a fused GEMM of 32 x 32 tiles."""
    source = GemmSource(fp16_problem(m, 32 * gpus, 32), TILE)
    common = {"source": source, "chunks": even_chunks(source.tiles, gpus), "explicit": explicit, "own": plan}
    with clusters() as seen:
        result = FusedRun(preset=small_preset(), arbitration=Arbiter.MCA, **common).execute()
    return result, seen[0]


@pytest.mark.parametrize(("gpus", "row"), [(4, 2), (6, 2), (6, 3), (8, 4)])
def test_traffic_of_the_torus_is_exact(gpus, row, plan_of):
    plan = plan_of(TORUS.replace("ROW = 2", f"ROW = {row}"))
    found = {explicit: ran(plan, gpus, explicit) for explicit in (True, False)}
    chunk_bytes = 128 * 32 * gpus * 2 // gpus
    leaves = sum(far % row == row - 1 or far == gpus - 1 for far in range(1, gpus))  # nobody adds to these
    for explicit, (result, cluster) in found.items():
        assert len(cluster.gpus) == (gpus if explicit else 1) and result.exactly_once, result.wrong
        expected = [gpus - leaves, gpus - 1 - leaves, gpus - 1]  # GEMM updates, DMA reads, arriving updates
        assert (result.dram_bytes[1:] == [count * chunk_bytes for count in expected]).all()
        assert result.link_bytes == (gpus - 1) * chunk_bytes
        for gpu in cluster.gpus:
            check_empty(gpu)
            across = (gpus - 1) // row  # chunks whose owner is a whole number of rows ahead
            assert gpu.node.ports["bytes"].tolist() == [(gpus - 1 - across) * chunk_bytes, across * chunk_bytes]


def test_gpus_that_are_not_alike_are_all_simulated(plan_of):
    result, cluster = ran(plan_of(TWO_WAYS), 4, explicit=False)
    assert len(cluster.gpus) == 4 and result.exactly_once, result.wrong
    counts = [gpu.node.ports["bytes"].tolist() for gpu in cluster.gpus]
    assert counts[0] != counts[1] and all(sum(count) == 3 * 128 * 32 * 2 for count in counts)


def test_collectives_on_cus_take_its_ring(plan_of):
    source = GemmSource(fp16_problem(128, 128, 32), TILE)
    run = CollectiveRun(
        preset=small_preset(),
        kind="all_reduce",
        source=source,
        chunks=even_chunks(source.tiles, 4),
        own=plan_of(TORUS),
    )
    with clusters() as seen:
        result = run.execute()
    assert result.exactly_once and len(seen[0].gpus) == 1 and seen[0].distances == (1, 2)
    assert result.link_bytes == 2 * 3 * 128 * 128 * 2 // 4
    with pytest.raises(UserError, match=r"topology torus\.py of 4 GPUs: no link to the GPU 1 ahead; allowed are 2, 3"):
        replace(run, own=plan_of(TORUS.replace("(1, ROW)", "(2, 3)"))).execute()


def test_links_that_step_over_gpus_reach_all_of_them_around_the_ring(plan_of):
    assert plan_of(TORUS.replace("(1, ROW)", "(3,)")).distances(4) == (3,)


def test_what_it_prints_is_not_on_standard_output(plan_of, capsys):
    text = TORUS.replace("return (1, ROW)", "print('called')\n    return (1, ROW)")
    assert plan_of("print('read')\n" + text).distances(4) == (1, 2)
    assert capsys.readouterr() == ("", "read\ncalled\n")


def test_an_update_that_is_forgotten_is_found(plan_of):
    plan, chunks = plan_of(TORUS), even_chunks(16, 4)
    for gpu in range(4):
        for place in range(4):
            plans = [plan.fused_regions(chunks, other) for other in range(4)]
            region = plans[gpu][place]
            plans[gpu][place] = replace(region, expects=max(0, region.expects - 1), to=(*region.to, 3))
            with pytest.raises(UserError, match=r"plan: .*tile"):
                check_regions(plans, chunks.tiles)


def test_a_case_is_known_by_its_plan(plan_of):
    case = Scenario(small_preset(), fp16_problem(128, 128, 32), TILE, 4)
    one, other = (replace(case, own=plan_of(text)) for text in (TORUS, TORUS + "\n"))
    assert one.run("gemm").key == case.run("gemm").key
    assert len({found.run("t3").key for found in (case, one, other)}) == 3


def test_in_a_study(plan_of, tmp_path):
    plan_of(TORUS)
    (tmp_path / "study.toml").write_text(
        'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\nt3.gpus = 4\n'
        't3.configurations = ["T3"]\n[[points]]\nt3.explicit = false\n[[points]]\nt3.plan = "torus.py"\n'
    )
    study = load_study(tmp_path / "study.toml")
    ring, torus = results.open(run_study(study, tmp_path, workers=0).archive).runs
    assert torus.options["plan_sha256"] == hashlib.sha256(TORUS.encode()).hexdigest()
    assert torus.figures["T3.dram_rs_reads_bytes"] == ring.figures["T3.dram_rs_reads_bytes"] / 2
    plan_of(TORUS + "\n")
    assert load_study(tmp_path / "study.toml").digest != study.digest
    (tmp_path / "torus.py").unlink()
    with pytest.raises(UserError, match=r"t3\.plan: no file torus\.py"):
        load_study(tmp_path / "study.toml")


@pytest.mark.parametrize(("links", "missing"), [("(1, ROW)", SOFTWARE), ("tuple(range(1, gpus))", ())])
def test_all_leaves_out_what_the_links_of_the_plan_cannot_do(links, missing, plan_of, tmp_path, monkeypatch):
    plan_of(TORUS.replace("(1, ROW)", links))
    seen = []

    def checked(scenario, configurations):
        check_scenario(scenario, configurations)
        seen.append(configurations)
        raise UserError("checked")

    monkeypatch.setattr("sim.verbs.t3.check_scenario", checked)
    main(["t3", *SHAPE, "--set", "link.topology=switch", "--plan", "torus.py", "--configuration", "all"])
    assert seen == [
        tuple(name for name in ALL_CONFIGURATIONS if name not in (LIBRARY, *missing, *SWITCH_CONFIGURATIONS))
    ]
    (tmp_path / "study.toml").write_text(
        'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\nt3.gpus = 4\nt3.plan = "torus.py"\n'
        '[set]\nlink.topology = "switch"\n[axes]\nt3.configurations = [["all"]]\n'
    )
    (point,) = load_study(tmp_path / "study.toml").points
    assert tuple(point.asked.configurations) == seen[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "plan: no file torus.py"),
        ("def distances(:\n", "torus.py:1: cannot be read: SyntaxError"),
        (TORUS.replace("return (1, ROW)", "raise SystemExit(0)"), "torus.py:11: distances: SystemExit: 0"),
        (TORUS.replace("regions = []", "raise KeyboardInterrupt"), "fused_regions: KeyboardInterrupt"),
        ("raise SystemExit\n", "torus.py:1: cannot be read: SystemExit"),
        ("x = 1\n", "no function distances; a plan has distances and fused_regions"),
        (TORUS.replace("(1, ROW)", "(1, 4)"), "distances(4): found (1, 4), allowed are whole numbers from 1 to 3"),
        (TORUS.replace("(1, ROW)", "(1, 1)"), "each once"),
        (TORUS.replace("(1, ROW)", "(2,)"), "torus.py: distances(4): found (2,), which reach only one GPU in 2"),
        (TORUS.replace("(1, ROW)", "(1, 3)"), "torus.py of 4 GPUs: no link to the GPU 2 ahead; allowed are 1, 3"),
        (TORUS.replace("return regions", "return chunks"), "fused_regions: found Chunks("),
        (TORUS.replace("far % ROW", "far % (ROW - 2)"), ": fused_regions: ZeroDivisionError"),
        (TORUS.replace("far == 0:", "far == 0 and gpu > 0:"), "tile 12 is final on GPUs [], allowed is exactly one"),
        (
            TORUS.replace("expects=expects, sends=sends, chunk", "chunk").replace("op=Op.UPDATE, c", "c"),
            "keeps its part",
        ),
        (TORUS.replace("expects = 1 + arriving", "expects = max(1, arriving)"), "it would continue too early"),
        (TORUS.replace("expects = 1 + arriving", "expects = 2 + arriving"), "it would wait for ever"),
        (TORUS.replace("(tiles.start, tiles.stop, to", "(0, tiles.stop, to"), "overlap"),
        (TORUS.replace("to=(hop(far),)", "to=hop(far)"), "region 0 of GPU 0: to: found 1, allowed is a tuple of dist"),
        (TORUS.replace("to=(hop(far),)", "to=(1.5,)"), "to: found (1.5,), allowed is a tuple of distances or Sends"),
        (TORUS.replace("Region(tiles.start", "Region(float(tiles.start)"), "first: found 0.0, allowed is a tile"),
        (TORUS.replace("expects = 1 +", "expects = '1' and 1.0 +"), "expects: found 2.0, allowed is the number of"),
        (TORUS.replace("op=Op.UPDATE", "op='update'"), "op: found 'update', allowed is Op.WRITE or Op.UPDATE"),
        (TORUS.replace("op=Op.UPDATE", "op=Op.COMBINE"), "op: found <Op.COMBINE: 5>, allowed is Op.WRITE or Op.UPDATE"),
        (TORUS.replace("op=Op.UPDATE", "op=Op.READ"), "op: found <Op.READ: 0>, allowed is Op.WRITE or Op.UPDATE"),
        (TORUS.replace("(Send(hop(far)),)", "(hop(far),)"), "sends: found (2,), allowed is a tuple of Sends"),
        (TORUS.replace("(Send(hop(far)),)", "Send(1)"), "allowed is a tuple of Sends"),
        (TORUS.replace("Send(hop(far))", "Send(hop(far), slot=0)"), "Send.slot: found 0, allowed is None"),
        (TORUS.replace("chunk=local", "chunk=-1"), "chunk: found -1, allowed is a whole number from 0 to 15"),
        (TORUS.replace("chunk=local", "gate=-5"), "gate: found -5, allowed is None or 0 to 15"),
        (TORUS.replace("chunk=local", "granularity='wavefront'"), "found 'wavefront', allowed is one of Granularity"),
        (TORUS.replace("chunk=local", "polled=True"), "polled: found True, allowed is False"),
        (TORUS.replace("chunk=local", "adds=True"), "adds: found True, allowed is False"),
        (TORUS.replace("chunk=local", "alone=True"), "alone: found True, allowed is False"),
    ],
)
def test_a_wrong_plan_is_one_line_before_anything_is_simulated(text, words, plan_of, monkeypatch, tmp_path, capsys):
    def simulated(*_, **__):
        raise AssertionError("a run was simulated")

    monkeypatch.setattr(run, "simulate", simulated)
    if text is not None:
        (tmp_path / "torus.py").write_text(text)
    assert main(["t3", *SHAPE, "--plan", "torus.py", "-o", "x.h5"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and words in said and not (tmp_path / "x.h5").exists(), said


@pytest.mark.slow
def test_the_archive_names_the_plan(plan_of, capsys):
    plan_of(TORUS)
    assert main(["t3", *SHAPE, "--plan", "torus.py", "-o", "torus.h5"]) == 0
    assert results.open("torus.h5").runs[0].options["plan_sha256"] == hashlib.sha256(TORUS.encode()).hexdigest()
    assert "NO" not in capsys.readouterr().out.split()
