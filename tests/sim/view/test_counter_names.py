"""Counters under other tools' names: known counters only, values in their units, Accel-Sim's own counts met."""

import json
from dataclasses import replace

import pytest

from sim import results
from sim.counters import COUNTERS
from sim.results import write_results
from sim.view.counter_names import NAMES
from tests.support.accelsim_texts import kernel_text, write
from tests.support.paths import ROOT, SMALL_TRACE_TEXT
from tests.support.result_samples import sample_results
from traces.command.cli import main
from validation.csv_file import read_csv


@pytest.mark.parametrize("names", NAMES)
def test_every_term_is_a_counter(names):
    for counterpart in NAMES[names]:
        for term in counterpart.ours:
            unit, _, counter = term.removeprefix("-").partition(".")
            assert term == "time_ps" or counter in COUNTERS[unit], counterpart.name
    assert len({counterpart.name for counterpart in NAMES[names]}) == len(NAMES[names])


def test_values_are_in_their_units():
    kernel, machine = sample_results().kernels[0], sample_results().preset.machine
    value = {counterpart.name: counterpart.value(kernel, machine) for counterpart in NAMES["nsight"]}
    assert value["gpu__time_duration.sum"] == 5
    assert value["sm__cycles_elapsed.max"] == pytest.approx(5e-9 * 1380e6)
    assert (
        value["dram__bytes_read.sum"] == 32 * value["dram__sectors_read.sum"] == 32 * kernel.totals["hbm.read_columns"]
    )
    hits, misses = (value[f"l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_{what}.sum"] for what in ("hit", "miss"))
    assert hits + misses + kernel.totals["l1.read_merged_sectors"] == kernel.totals["l1.read_sectors"]


def test_accelsim_counts_atomics_as_reads_of_l2():
    totals = {"l2.read_sectors": 5, "l2.uncached_read_sectors": 2, "l2.atomic_sectors": 3}
    kernel = replace(sample_results().kernels[0], totals=totals)
    (reads,) = [
        each for each in NAMES["accelsim"] if each.name == "L2_cache_stats_breakdown[GLOBAL_ACC_R][TOTAL_ACCESS]"
    ]
    assert reads.value(kernel, sample_results().preset.machine) == 10


@pytest.mark.parametrize("names", NAMES)
def test_global_counts_say_that_they_have_local_memory(names):
    """Both tools count local memory apart in L1, and Accel-Sim also in L2."""
    for counterpart in NAMES[names]:
        if "global" in counterpart.name.lower():
            assert counterpart.remark.startswith("with local memory"), counterpart.name


def test_loads_that_bypass_l1_are_in_our_sum_and_the_remark_says_so(tmp_path, capsys):
    lines = ["0000 ffffffff 1 R8 LDG.E.STRONG.GPU 1 R4 4 1 0x7f4000000000 4 0 ", "0010 ffffffff 0 EXIT 0 0 0 "]
    path, result = write(tmp_path, kernel_text([lines])), str(tmp_path / "result.h5")
    assert main(["run", str(path), "-o", result]) == 0
    assert results.open(result).run().kernels[0].totals["l1.read_sectors"] == 4
    (reads,) = [each for each in NAMES["accelsim"] if each.ours == ("l1.read_sectors",)]
    assert "ours includes loads that bypass L1" in reads.remark


@pytest.mark.slow
def test_accelsim_counts_the_same(capsys, tmp_path):
    """The copy kernel, with the counts that Accel-Sim has printed for it (DRAM writes: before any flush)."""
    result = tmp_path / "copy.h5"
    arguments = ["run", str(SMALL_TRACE_TEXT), "--preset", "accelsim_qv100", "--keep-l2", "-o", str(result)]
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(["show", str(result), "--names", "accelsim", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["kernels"]
    rows = read_csv(ROOT / "validation" / "references" / "accelsim.csv")
    theirs = next(row for row in rows if row["case"] == "copy_512KiB")
    pairs = {
        "gpgpu_n_tot_w_icount": "warp_instructions",
        "Total_core_cache_stats_breakdown[GLOBAL_ACC_R][TOTAL_ACCESS]": "l1_read_sectors",
        "Total_core_cache_stats_breakdown[GLOBAL_ACC_R][HIT]": "l1_read_hits",
        "L2_cache_stats_breakdown[GLOBAL_ACC_R][TOTAL_ACCESS]": "l2_read_sectors",
        "L2_cache_stats_breakdown[GLOBAL_ACC_R][MSHR_HIT]": "l2_read_mshr_merged",
        "L2_cache_stats_breakdown[GLOBAL_ACC_W][TOTAL_ACCESS]": "l2_write_sectors",
        "total dram reads": "dram_read_sectors",
        "total dram writes": "dram_write_sectors",
    }
    assert {name: found[name] for name in pairs} == {name: int(theirs[column]) for name, column in pairs.items()}


def test_table_and_mistake(tmp_path, capsys):
    write_results(tmp_path / "run.h5", sample_results())
    assert main(["show", str(tmp_path / "run.h5"), "--names", "nsight"]) == 0
    shown = capsys.readouterr().out
    assert "lts__t_sectors_srcunit_tex_op_read.sum" in shown and "first" in shown and "second" in shown
    assert main(["show", str(tmp_path / "run.h5"), "--names", "rocprof"]) == 2
    assert "nsight" in capsys.readouterr().err
