"""`t3sim t3`: the promised JSON, tables, archive, and mistakes as one line."""

import json
import re
import shlex

import h5py
import numpy as np
import pytest

from sim.results import write_results
from sim.run import run
from sim.run.runner import run_all
from sim.scenario.archive import open_scenario
from sim.scenario.result import CONFIGURATIONS, TRAFFIC
from tests.support.result_samples import sample_results
from traces.command.cli import main
from traces.errors import UserError

MACHINE = ["--set", "cu.count=4", "--set", "l2.banks=4", "--set", "hbm.channels=2"]
GEMM = "gemm:m=256,n=256,k=32,tile=64x64x32,warps=2x2"
SHAPE = ["--kernel", GEMM, "--gpus", "4"]
FIELDS = {"time_ns", "gemm_ns", "rs_ns", "ag_ns", "speedup", "dram_bytes", "link_bytes", "ledger"}
D = 256 * 256 * 2


def run_json(capsys, *arguments):
    capsys.readouterr()
    assert main(["t3", *MACHINE, *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_json_has_the_promised_figures(capsys):
    found = run_json(capsys, *SHAPE)
    assert list(found["configurations"]) == list(CONFIGURATIONS)
    for name, one in found["configurations"].items():
        assert one.keys() == FIELDS and list(one["dram_bytes"]) == list(TRAFFIC), name
        assert one["ledger"] == {"exactly_once": True, "wrong": []}
        assert one["link_bytes"] == 2 * 3 * D // 4
        assert one["dram_bytes"]["ag_reads"] == one["dram_bytes"]["ag_writes"] == 3 * D // 4
    assert found["workload"] == {"m": 256, "n": 256, "k": 32, "gpus": 4, "output_bytes": D, "zeroing_bytes": 3 * D // 4}
    assert found.keys() >= {"wall_s", "compile_s", "peak_rss_bytes", "preset"}
    assert found["input"]["kernel"]["tile_m"] == 64
    assert found["command"].startswith("t3sim t3 --kernel gemm:m=256,n=256,k=32,tile_m=64,tile_n=64,warps_m=2 --gpus 4")


@pytest.mark.slow
def test_runs_of_several_processes_are_kept_in_a_full_store_and_have_the_threads(tmp_path, monkeypatch, capsys):
    """A stand-in for the processes, which would be slow."""

    def run_here(runs, store, *, workers, threads, **options):
        asked.append((workers, threads))
        return run_all(runs, store, workers=0, threads=threads, **options)

    asked = []
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("T3SIM_STORE_BYTES", "1")
    monkeypatch.setattr("sim.verbs.t3.run_all", run_here)
    found = run_json(capsys, *SHAPE, "--configuration", "Sequential", "--workers", 2, "--threads", 2)
    assert asked == [(2, 2)] and found["from_store"]


def test_energy_by_configuration(tmp_path, capsys):
    """Every configuration sends 2 (N-1)/N of the output; only the fused ones have DMA engines read."""
    path = str(tmp_path / "a.h5")
    energy = run_json(capsys, *SHAPE, "-o", path)["energy"]
    assert list(energy) == list(CONFIGURATIONS)
    for name, one in energy.items():
        assert one["units"]["link"]["uJ"] == pytest.approx(80e-6 * 2 * 3 * D / 4), name
        assert one["units"]["dma"]["bytes"] == (2 * D // 4 if name.startswith("T3") else 0), name
        assert one["uJ"] == pytest.approx(sum(unit["uJ"] for unit in one["units"].values()))
    assert energy["T3"]["pJ_per_dram_byte"] * energy["T3"]["units"]["dram"]["bytes"] == energy["T3"]["uJ"] * 1e6
    assert main(["show", path, "--energy", "gpujoule_k40"]) == 0
    shown = capsys.readouterr().out
    assert "gpujoule_k40" in shown and all(f"\n{name} " in shown for name in CONFIGURATIONS)
    assert main(["show", path, "--energy", "hbm2_12nm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"energy": energy}
    assert main(["show", path, "--run", "5", "--unit", "link"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("arrived_bytes"))
    assert row.split() == ["arrived_bytes", f"{3 * D // 4:,}", "byte"]
    assert main(["show", path, "--run", "1", "--unit", "link"]) == 2
    assert "unit 'link': allowed are cu, lsu, l1, noc, l2, hbm" in capsys.readouterr().err
    assert main(["show", path, "--unit", "link"]) == 2


def test_energy_is_a_table_if_asked_for(capsys):
    only = ["t3", *SHAPE, *MACHINE, "--configuration", "Sequential"]
    assert main([*only, "--energy", "hbm2_12nm"]) == 0
    table = capsys.readouterr().out.partition("Dynamic energy")[2]
    assert "\nSequential " in table and "\nIdeal" not in table and "pJ per DRAM byte" in table
    assert main(only) == 0
    assert "Dynamic energy" not in capsys.readouterr().out
    assert main([*only, "--energy", "hbm5"]) == 2
    assert "allowed are gpujoule_k40, hbm2_12nm" in capsys.readouterr().err


@pytest.mark.slow
def test_how_configurations_are_put_together(capsys):
    found = run_json(capsys, *SHAPE)["configurations"]
    sequential, fused = found["Sequential"], found["T3-MCA"]
    assert sequential["time_ns"] == pytest.approx(sum(sequential[phase] for phase in ("gemm_ns", "rs_ns", "ag_ns")))
    assert sequential["speedup"] == 1
    for name in ("Ideal-GEMM-RS-Overlap", "Ideal-RS+NMC"):
        assert found[name]["time_ns"] == pytest.approx(
            max(found[name]["gemm_ns"], found[name]["rs_ns"]) + found[name]["ag_ns"]
        )
        assert found[name]["gemm_ns"] == sequential["gemm_ns"] and found[name]["ag_ns"] == sequential["ag_ns"]
    assert found["Ideal-GEMM-RS-Overlap"]["rs_ns"] == sequential["rs_ns"] > found["Ideal-RS+NMC"]["rs_ns"]
    assert fused["gemm_ns"] == fused["rs_ns"] and fused["time_ns"] == pytest.approx(fused["rs_ns"] + fused["ag_ns"])
    for one in found.values():
        assert one["speedup"] == pytest.approx(sequential["time_ns"] / one["time_ns"])
    assert [sequential["dram_bytes"][kind] * 4 // D for kind in TRAFFIC[1:4]] == [4, 7, 4]
    assert [fused["dram_bytes"][kind] * 4 // D for kind in TRAFFIC[1:4]] == [3, 2, 3]


@pytest.mark.slow
def test_symmetric_and_explicit_agree(capsys):
    one, all_ = run_json(capsys, *SHAPE), run_json(capsys, *SHAPE, "--explicit")
    assert one["runs"]["t3"]["simulated_gpus"] == 1 and all_["runs"]["t3"]["simulated_gpus"] == 4
    for name in CONFIGURATIONS:
        first, second = (found["configurations"][name] for found in (one, all_))
        assert first["link_bytes"] == second["link_bytes"]
        assert all(first["dram_bytes"][kind] == second["dram_bytes"][kind] for kind in TRAFFIC[1:])


@pytest.mark.parametrize(("chunks", "said"), [([], False), (["--chunks", "2,5,3,6"], True)])
def test_counters_of_gpu_0_say_so_where_gpus_differ(chunks, said, capsys, tmp_path):
    path = str(tmp_path / "out.h5")
    only = [*SHAPE, *MACHINE, "--configuration", "T3", *chunks, "-o", path]
    assert main(["t3", *only, "--energy", "hbm2_12nm"]) == 0
    direct = capsys.readouterr().out
    assert main(["show", path]) == main(["show", path, "--energy", "hbm2_12nm"]) == 0
    for shown in (direct, capsys.readouterr().out):
        for title in ("percent of each peak", "as long as it does"):
            assert (f"{title} (counters of GPU 0)" in shown) == said and title in shown
        assert ("Dynamic energy of GPU 0, hbm2_12nm" in shown) == said != ("Dynamic energy per GPU" in shown)


def test_only_some_configurations_and_unequal_chunks(capsys):
    found = run_json(capsys, *SHAPE, "--configuration", "T3", "--chunks", "2,5,3,6")
    (one,) = found["configurations"].values()
    assert one["speedup"] is None and one["ledger"]["exactly_once"] and found["runs"].keys() == {"ag", "t3"}
    assert found["runs"]["t3"]["simulated_gpus"] == 4
    # Over all GPUs every chunk is first once and own once: the mean is that of equal chunks.
    assert [one["dram_bytes"][kind] * 4 // D for kind in TRAFFIC[1:4]] == [3, 2, 3]


def test_the_library_chooses_the_kernel_of_the_pieces_too(capsys):
    """The printed command makes the same result again: it names no kernel either."""
    chosen = ["--configuration", "Decomposed", "--set", "link.topology=switch"]
    found = run_json(capsys, "--kernel", "gemm:m=512,n=256,k=32", "--gpus", "4", *chosen)
    kernel, pieces = found["input"]["kernel"], found["input"]["piece_kernel"]["kernel"]
    assert pieces["order"] == "grouped" and pieces != kernel and "fused_kernel" not in found["input"]
    assert found["command"].startswith("t3sim t3 --kernel gemm:m=512,n=256,k=32 --gpus 4 --configuration Decomposed")
    assert main([*shlex.split(found["command"])[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["configurations"] == found["configurations"]


def test_a_gemm_for_which_the_library_splits_k_has_a_whole_kernel_in_fused_runs(capsys):
    """Sequential has the split one; the printed command and `explain` make the same again."""
    wide = ("--gpus", "2", "--set", "cu.count=32", "--configuration", "T3")
    found = run_json(capsys, "--kernel", "gemm:m=256,n=256,k=2048", "--configuration", "Sequential", *wide)
    whole, alone = found["input"]["kernel"], found["input"]["alone_kernel"]["kernel"]
    assert whole["split_k"] == 1 < alone["split_k"]
    assert found["configurations"]["T3"]["ledger"]["exactly_once"]
    own = run_json(capsys, "--kernel", "gemm:m=256,n=256,k=2048,split_k=1", *wide)
    assert "alone_kernel" not in own["input"]
    assert main([*shlex.split(found["command"])[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["configurations"] == found["configurations"]


@pytest.mark.slow
def test_archive(tmp_path, capsys):
    path = tmp_path / "a.h5"
    found = run_json(capsys, *SHAPE, "-o", path, "--interval-ns", 500)
    row, runs = open_scenario(path)
    assert row.figures["T3.time_ns"] == found["configurations"]["T3"]["time_ns"]
    assert row.options.items() >= (found["workload"] | {"explicit": False}).items()
    assert row.options["configurations"] == list(CONFIGURATIONS) and row.interval_ps == 500_000
    assert row.input["gpus"] == 4 and row.input["kernel"]["tile_m"] == 64 and row.input["kernel"]["copy"] == "ldg"
    assert runs["t3"].input["kernel"] == row.input["kernel"] and row.input["problem"]["k"] == 32
    assert list(runs) == ["gemm", "rs", "rs_nmc", "ag", "t3", "t3_mca"]
    fused = runs["t3_mca"]
    assert fused.exactly_once and fused.wrong == () and fused.figures == found["runs"]["t3_mca"]
    for name, stream in (("compute_write", 1), ("comm_read", 2), ("comm_write", 3)):
        assert fused.series[f"dram_{name}_bytes"].sum() == fused.dram_bytes[stream]
    assert fused.series["link_bytes"].sum() == fused.link_bytes == 3 * D // 4
    assert fused.series["tracker_triggers"].sum() == fused.figures["tracker_triggers"] == 12
    with h5py.File(path) as file:
        time_ps = file["runs/00006/series/time_ps"][:]
        assert (np.diff(time_ps) == 500_000).all() and time_ps[0] == 500_000
        assert time_ps[-1] - 500_000 < fused.time_ps <= time_ps[-1] + 500_000
        assert json.loads(file["runs/00006/spec"].asstr()[()])["fields"]["cu.count"]["value"] == 4


@pytest.mark.slow
def test_same_input_gives_the_same_bytes_and_a_table(tmp_path, capsys):
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path in paths:
        assert main(["t3", *SHAPE, *MACHINE, "--fresh", "-o", str(path)]) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    shown = capsys.readouterr().out
    for words in (
        "T3-MCA",
        "speed-up",
        "exact",
        "yes",
        "link: ring, 150 GB/s each way",
        "GEMM kernel: tile 64 x 64 x 32, 2 x 2 warps",
        "are assumed",
        "wrote",
    ):
        assert words in shown
    assert "NO" not in shown.split()
    assert main(["show", str(paths[0])]) == 0
    again = capsys.readouterr().out.splitlines()
    assert {line for line in shown.splitlines() if "T3" in line} <= set(again)  # the same tables
    assert not any(line.startswith("trace") for line in again) and any("made by: t3sim t3" in line for line in again)
    assert re.search(r"tiles that it completed +12 +12 *\nDMA descriptors +8 +8 *\n", shown)
    assert re.search(r"\nt3 .* latency \(|\nt3 .*\b(link|DRAM|L2|matrix)", shown)
    tables = shown[: shown.index("wrote")].partition("0.0 s of it")[0].partition(" s, ")[0].rpartition("\n")[0]
    assert main(["show", str(paths[0])]) == 0
    assert capsys.readouterr().out.startswith(tables)


def test_an_archive_that_is_none_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        open_scenario(tmp_path / "none.h5")
    former, other = tmp_path / "former.h5", tmp_path / "other.h5"
    with h5py.File(former, "w") as file:
        file.attrs["file_type"], file.attrs["format_version"] = "t3sim-evaluation", 1
    with pytest.raises(UserError, match="of an older t3sim, allowed is 't3sim-results': run t3sim t3 again"):
        open_scenario(former)
    write_results(other, sample_results())
    with pytest.raises(UserError, match="holds no scenario"):
        open_scenario(other)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kernel", f"{GEMM},split_k=2"],
        ["--set", "tracker.wavefronts=2"],
        ["--set", "tracker.counter_bits=8"],
        ["--set", "tracker.granularity=wavefront", "--kernel", f"{GEMM},epilogue=staged"],
    ],
)
def test_what_cannot_be_fused_is_refused_before_anything_is_simulated(arguments, monkeypatch, capsys):
    def simulated(*_, **__):
        raise AssertionError("a run was simulated")

    monkeypatch.setattr(run, "simulate", simulated)
    assert main(["t3", *SHAPE, *MACHINE, *arguments]) == 2
    assert capsys.readouterr().err.startswith("t3sim: ")
    with pytest.raises(AssertionError):  # what needs no fused GEMM may run
        main(["t3", *SHAPE, *MACHINE, "--configuration", "Sequential", "--fresh"])


FREE = ["--kernel", "gemm:m=256,n=256,k=32"]
MODEL = ["--model", "t-nlg", "--layer", "fc2"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--kernel gemm:... and --gpus, or --model, --layer and --tp"]),
        (FREE, ["--gpus"]),
        ([*FREE, "--gpus", "4", *MODEL, "--tp", "8"], ["or --model"]),
        ([*FREE, "--gpus", "1"], ["gpus: ", "found 1", "2"]),
        ([*FREE, "--gpus", "0"], ["gpus: ", "found 0"]),
        ([*FREE, "--gpus", "65"], ["gpus: ", "found 65", "64"]),
        ([*FREE, "--gpus", "8"], ["gpus: ", "found 8", "4 tiles"]),
        ([*MODEL, "--tp", "1"], ["--tp 1", "2 and more"]),
        (MODEL, ["or --model, --layer and --tp"]),
        ([*MODEL, "--tp", "8", "--gpus", "8"], ["--gpus", "its own"]),
        (["--kernel", "layernorm:rows=8,cols=8", "--gpus", "4"], ["found layernorm", "gemm"]),
        (
            ["--model", "gpt-9", "--layer", "fc2", "--tp", "8"],
            ["--model gpt-9 --layer fc2", "--kernel gemm:m=M,n=N,k=K --gpus N"],
        ),
        (["--model", "t-nlg", "--layer", "fc7", "--tp", "8"], ["fc7", "fc2"]),
        (["--kernel", "gemm:m=0,n=8,k=8", "--gpus", "2"], ["m = 0"]),
        ([*SHAPE, "--chunks", "4,4,4"], ["--chunks", "found 3", "4 GPUs"]),
        ([*SHAPE, "--chunks", "4,4,4,x"], ["--chunks", "'4,4,4,x'"]),
        ([*SHAPE, "--chunks", "4,4,4,5"], ["chunks", "17 tiles", "16"]),
        ([*SHAPE, "--chunks=-4,4,4,4"], ["chunks: found -4", "sizes from 1"]),
        ([*SHAPE, "--chunks", "4,0,6,6"], ["chunks", "at least one tile"]),
        ([*SHAPE, "--configuration", "T4"], ["T4", "T3-MCA"]),
        ([*SHAPE, "--preset", "t4"], ["'t4'", "t3_2024"]),
        ([*SHAPE, "--set", "tracker.entries=3"], ["tracker.entries", "3", "multiple"]),
        ([*SHAPE, "--set", "tracker.wavefronts=2"], ["tracker.wavefronts", "found 2", "4 wavefronts"]),
        ([*SHAPE, "--set", "tracker.granularity=tile"], ["tracker.granularity", "'tile'", "wavefront"]),
        (
            [*SHAPE, "--set", "tracker.granularity=wavefront", "--kernel", f"{GEMM},epilogue=staged"],
            ["tracker.granularity", "found wavefront", "epilogue direct"],
        ),
        ([*SHAPE, "--set", "link.topology=mesh"], ["link.topology", "'mesh'", "ring"]),
        ([*SHAPE, "--kernel", f"{GEMM},split_k=2"], ["split_k = 2"]),
        ([*SHAPE, "--interval-ns", "0"], ["--interval-ns", "0"]),
        ([*SHAPE, "-o", "no/where.h5"], ["no/where.h5", "no such folder"]),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["t3", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1, shown.err
    assert all(word in shown.err for word in words), shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("configuration", "explained"), [("T3", True), ("FLUX", False)])
def test_explain_is_named_as_next_only_where_it_explains(configuration, explained, tmp_path, capsys):
    path = tmp_path / "a.h5"
    options = ["--gpus", "4", "--preset", "h100_sxm", "--configuration", configuration, "-o", str(path)]
    assert main(["t3", "--kernel", "gemm:m=512,n=512,k=128", *options]) == 0
    assert ("t3sim explain" in capsys.readouterr().out) == explained
