"""`import t3sim`: what it offers, what it runs, and what it says about mistakes."""

import inspect

import pytest

import t3sim
from sim.presets import presets
from sim.results import ResultsArchive
from sim.scenario.result import CONFIGURATIONS

GEMM = "gemm:m=64,n=64,k=32,tile_m=128"


def test_every_name_is_there_documented_and_typed():
    for name in t3sim.__all__:
        offered = getattr(t3sim, name)
        if inspect.isfunction(offered):
            assert offered.__doc__
            signature = inspect.signature(offered)
            kinds = [signature.return_annotation, *(each.annotation for each in signature.parameters.values())]
            assert inspect.Signature.empty not in kinds, name


def test_machines():
    assert t3sim.machines() == presets()
    changed = t3sim.machine("v100", {"l2.mshrs": 96})
    assert changed.machine.l2.mshrs == 96 and t3sim.machine(changed) is changed
    assert t3sim.machine("v100", ["l2.mshrs=96"]) == changed


def test_a_kernel_is_simulated_once(tmp_path, monkeypatch):
    store = t3sim.Store(tmp_path)
    first = t3sim.run(GEMM, store=store)
    monkeypatch.setattr("sim.run.run.simulate", None)
    for again in (
        t3sim.run(GEMM, store=store),
        t3sim.run(t3sim.kernel("gemm", m=64, n=64, k=32, tile_m=128), "v100", store=store),
    ):
        assert again.headline() == first.headline()
    assert len(first.frame("l2")) == first.preset.machine.l2.banks


def test_a_kernel_is_the_choice_of_the_machine_as_in_a_run():
    made = t3sim.kernel("gemm:m=4096,n=4096,k=512", machine="mi210")
    (of_run,) = t3sim._source("gemm:m=4096,n=4096,k=512", t3sim.machine("mi210")).commands()
    assert made.kernel == of_run.kernel and made.kernel.lanes == 64
    assert t3sim.kernel("gemm:m=4096,n=4096,k=512").kernel != made.kernel


def test_a_stored_trace(tmp_path):
    from_trace = t3sim.run("traces/small/gemm_512x512x256.h5", "accelsim_qv100")
    t3sim.write_results(tmp_path / "result.h5", from_trace)
    assert t3sim.open(tmp_path / "result.h5").run().totals == from_trace.totals


def test_a_scenario_and_a_figure(tmp_path):
    found = t3sim.scenario("gemm:m=256,n=256,k=64", gpus=2, configurations=["Sequential", "T3"])
    assert found.speedup("T3") > 1 and set(found.configurations) == {"Sequential", "T3"}
    every = t3sim.scenario("gemm:m=256,n=256,k=64", gpus=2, configurations=["all"])
    assert tuple(every.configurations) == CONFIGURATIONS  # a ring has no others
    t3sim.plot("rates", found.runs["gemm"], tmp_path / "rates.svg")
    t3sim.plot("roofline", ResultsArchive([found.runs["gemm"]]), tmp_path / "roofline.png")
    assert (tmp_path / "rates.svg").stat().st_size > 1000 and (tmp_path / "roofline.png").stat().st_size > 1000


def test_results_show_themselves_in_notebooks():
    run = t3sim.run(GEMM)
    assert f'<td>time_ns</td><td style="text-align:right">{run.headline()["time_ns"]:,.0f}</td>' in run._repr_html_()
    assert repr(run) == f"<RunResult: {run.kernels[0].name} on v100, {run.headline()['time_ns']} ns>"
    layer = t3sim.scenario("gemm:m=256,n=256,k=64", gpus=2, configurations=["Sequential", "T3"])
    assert f'<td style="text-align:right">{layer.speedup("T3"):.4g}</td>' in layer._repr_html_()
    assert repr(layer) == "<ScenarioResult: GEMM 256 x 256 x 64 on 2 GPUs, t3_2024: Sequential, T3>"


def test_a_speed_up_that_the_scenario_lacks():
    fused = t3sim.scenario("gemm:m=256,n=256,k=64", gpus=2, configurations=["T3"])
    with pytest.raises(t3sim.UserError, match=r"speedup of T3: the scenario has no Sequential; its .* are T3$"):
        fused.speedup("T3")
    with pytest.raises(t3sim.UserError, match="speedup of T4: the scenario has no T4"):
        fused.speedup("T4")


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: t3sim.run(5), "run: found 5"),
        (lambda: t3sim.run("nothing.h5"), "nothing.h5: no such file"),
        (lambda: t3sim.run("gem:m=1"), "no such file"),
        (lambda: t3sim.run(GEMM, machine=7), "machine: found 7"),
        (lambda: t3sim.run(GEMM, t3sim.machine("v100"), {"l2.mshrs": 1}), "a loaded machine and changes"),
        (lambda: t3sim.run(GEMM, accuracy="60%"), "accuracy: found '60%', allowed are exact and percentages"),
        (lambda: t3sim.run(GEMM, changes=5), "changes: found 5"),
        (lambda: t3sim.run(GEMM, interval_ns="x"), "interval_ns: found 'x', allowed is a whole number"),
        (lambda: t3sim.run(GEMM, interval_ns=10**16), "interval_ns: found 10000000000000000, allowed is 0 to 100,000"),
        (lambda: t3sim.run(GEMM, flush_l2="no"), "run: flush_l2: found 'no', allowed are True and False"),
        (lambda: t3sim.run(GEMM, fresh="no"), "run: fresh: found 'no'"),
        (lambda: t3sim.run(GEMM, store="folder"), "run: store: found 'folder', allowed is a t3sim.Store"),
        (lambda: t3sim.scenario(GEMM, gpus=2, explicit="no"), "scenario: explicit: found 'no'"),
        (lambda: t3sim.scenario(GEMM, gpus=2, store="folder"), "scenario: store: found 'folder'"),
        (
            lambda: t3sim.collective("all_gather", 2, 4096, channels="4"),
            "channels: found '4', allowed is a whole number",
        ),
        (lambda: t3sim.collective("all_gather", 2, 4096, protocol=3), "protocol: found 3, allowed is a text"),
        (lambda: t3sim.collective("all_gather", 2, 4096, whole="no"), "collective: whole: found 'no'"),
        (lambda: t3sim.study("study.toml", store="folder"), "study: store: found 'folder'"),
        (lambda: t3sim.plot("rates", t3sim.run(GEMM), number="0"), "run: found '0', allowed are 0 to 0"),
        (lambda: t3sim.plot("rates", t3sim.run(GEMM), relative=True), "relative are settings of study"),
        (lambda: t3sim.kernel("gemm", m=64), "missing"),
        (lambda: t3sim.kernel(5), "kernel: found 5, allowed is a text"),
        (lambda: t3sim.trace(5), "trace: found 5, allowed is a path"),
        (lambda: t3sim.study(5), "file: found 5"),
        (lambda: t3sim.plot("rates", 5), "plot: found 5"),
        (lambda: t3sim.scenario(5, gpus=2), "gemm: found 5"),
        (lambda: t3sim.scenario(GEMM, gpus="2"), "gpus: found '2'"),
        (lambda: t3sim.scenario(GEMM, gpus=2, configurations="T3"), "configurations: found 'T3', allowed is a list"),
        (lambda: t3sim.scenario(GEMM, gpus=2, configurations=["T4"]), "found 'T4', allowed are Sequential"),
        (lambda: t3sim.scenario(GEMM), "scenario: gpus"),
        (lambda: t3sim.scenario("layernorm:rows=1,cols=8", gpus=2), "allowed is gemm"),
        (lambda: t3sim.plot("pie", t3sim.run(GEMM), "pie.svg"), "plot: found 'pie'"),
    ],
)
def test_mistakes_are_sentences(mistake, says):
    with pytest.raises(t3sim.UserError, match=says):
        mistake()
