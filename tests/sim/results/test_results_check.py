"""A run with impossible values, before a seal that fits, is refused by the reader or by the verb: never a traceback."""

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from sim.results import Failure, ResultsError, write_results, write_runs
from sim.results import open as open_results
from sim.results.check import OF_CONFIGURATION
from tests.support.result_samples import sample_results
from tests.support.sealed import changed_archive
from traces.command.cli import main

KERNEL = "runs/00000/kernels/0000"
VERBS = (
    ("show", "IN"), ("show", "IN", "--json"), ("show", "IN", "--unit", "hbm"), ("show", "IN", "--names", "nsight"),
    ("show", "IN", "--energy", "hbm2_12nm"), ("diff", "IN", "GOOD"), ("merge", "IN", "-o", "OUT.h5"),
    ("timeline", "IN", "-o", "OUT.html"), ("plot", "rates", "IN", "-o", "OUT.png"),
    ("plot", "roofline", "IN", "-o", "OUT.png"), ("plot", "traffic", "IN", "-o", "OUT.png"),
    ("plot", "queue", "IN", "-o", "OUT.png"), ("plot", "study", "IN", "-o", "OUT.png"),
    ("plot", "speedups", "IN", "--table"),
)  # fmt: skip


def put(place, value):
    """A change: the dataset gets another value, form or type."""

    def change(file):
        del file[place]
        file[place] = value

    return change


def attribute(name, value, place="runs/00000"):
    return lambda file: file[place].attrs.__setitem__(name, value)


def totals(**changes):
    def change(file):
        found = json.loads(file[f"{KERNEL}/totals"].asstr()[()])
        found |= {name.replace("__", "."): value for name, value in changes.items()}
        put(f"{KERNEL}/totals", json.dumps(found))(file)

    return change


def machine(**changes):
    def change(file):
        found = json.loads(file["runs/00000/spec"].asstr()[()])
        found["fields"]["l2.bytes"] |= {name: value for name, value in changes.items() if name == "kind"}
        put("runs/00000/spec", json.dumps(found | {name: changes[name] for name in changes if name in found}))(file)

    return change


REFUSED = {
    "a machine without a name": (machine(name=None), "machine: name: found None, allowed is a text"),
    "a title that is a number": (machine(title=3), "machine: title: found 3, allowed is a text"),
    "a kind that is a list": (machine(kind=[1]), r"machine: l2.bytes: kind: found \[1\], allowed is a text"),
    "a text in the totals": (totals(hbm__read_columns="1"), "totals: allowed are whole numbers"),
    "a list in the totals": (totals(l2__read_sectors=[1]), "totals: allowed are whole numbers"),
    "a fraction in the totals": (totals(cu__events=1.5), "totals: allowed are whole numbers"),
    "an infinity in the totals": (totals(cu__events=float("inf")), "totals: allowed are whole numbers"),
    "a total without unit": (totals(events=1), "totals: allowed names are unit.counter"),
    "totals that are a list": (put(f"{KERNEL}/totals", "[1, 2]"), "damaged"),
    "times that fall": (attribute("end_ps", -5, KERNEL), "found 0 to -5 ps"),
    "a time that is NaN": (attribute("end_ps", np.nan, KERNEL), "damaged"),
    "counters of two dimensions": (put(f"{KERNEL}/units/hbm", np.zeros((2, 2), "i8,i8")), "units/hbm"),
    "counters that are fractions": (put(f"{KERNEL}/units/l2", np.zeros(2, "f8,f8")), "units/l2"),
    "counters without names": (put(f"{KERNEL}/units/l1", np.zeros(2)), "units/l1"),
    "a series of two dimensions": (put("runs/00000/series/dram_read_bytes", np.zeros((11, 2), "i8")), "series"),
    "a series that is NaN": (
        put("runs/00000/series/dram_read_bytes", np.full(11, np.nan)),
        "series: .*64-bit",
    ),
    "a shorter series": (put("runs/00000/series/dram_read_bytes", np.zeros(3, "i8")), "series: allowed is columns"),
    "an interval of nothing": (attribute("interval_ps", 0), "interval_ps"),
    "figures that are a list": (attribute("figures", "[1]"), "figures: allowed is a JSON object"),
    "operations of one kernel only": (attribute("input", '{"flops": [3]}'), "flops of input: allowed is one for each"),
    "a figure that is a list": (attribute("figures", '{"a": [1]}'), r"figures: a: allowed is a number.*found \[1\]"),
    "a figure that is a text": (attribute("figures", '{"a": "x"}'), "figures: a: allowed is a number.*, found 'x'"),
    "a figure of 71 bits": (attribute("figures", '{"a": 1180591620717411303424}'), "figures: a: .*64 bits"),
    "a configuration that lacks a figure": (
        attribute("figures", '{"T3.time_ns": 1}'),
        "runs/00000: figures: T3.gemm_ns: allowed is a number from 0, found nothing",
    ),
    "a row of a scenario without figures": (
        attribute("point", '{"simulation": "all"}'),
        "figures: allowed is one or more of Sequential",
    ),
    "a kernel that multiplies in no time": (attribute("end_ps", 0, KERNEL), "kernel 0: found a time of 0 ps"),
    "a figure that is NaN": (attribute("figures", '{"T3.time_ns": NaN}'), "found NaN, allowed are finite numbers"),
    "an infinite speed-up": (attribute("figures", '{"T3.speedup": Infinity}'), "found Infinity"),
    "a swept value that is NaN": (attribute("point", '{"l2.bytes": NaN}'), "found NaN"),
    "a number of GPUs that is infinite": (attribute("input", '{"gpus": -Infinity}'), "found -Infinity"),
    "a point that is a number": (attribute("point", "3"), "point: allowed is a JSON object"),
    "a warning that is a number": (attribute("warnings", "[3]"), "warnings: allowed is a list of texts"),
    "spans of another type": (lambda file: put_new(file, "spans", np.zeros(3, "i8")), "spans: allowed"),
    "triggers of one dimension": (lambda file: put_new(file, "triggers", np.zeros(3, "i8")), "triggers: allowed"),
    "traffic of five streams": (lambda file: put_new(file, "mean_dram_bytes", np.zeros(5, "i8")), "mean_dram_bytes"),
}


def figures_of(*configurations):
    return {f"{name}.{figure}": 0 for name in configurations for figure in OF_CONFIGURATION}


def put_new(file, name, values):
    file[f"runs/00000/{name}"] = values


@pytest.mark.parametrize("name", REFUSED)
def test_the_reader_refuses_impossible_values(tmp_path, name):
    change, words = REFUSED[name]
    path = tmp_path / "a.h5"
    write_results(path, sample_results())
    with changed_archive(path) as file:
        change(file)
    with pytest.raises(ResultsError, match=words) as refused:
        open_results(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def fewer_counters(file):
    put(f"{KERNEL}/totals", json.dumps({"cu.events": 1}))(file)


ODD = {
    "counters that are missing": fewer_counters,
    "a name with formulas and control characters": attribute("name", "$\\frac{$ \x1b[2J \u202e", KERNEL),
    "no time and no speed-up of a scenario": attribute("figures", json.dumps(figures_of("Sequential", "T3"))),
    "a sub-layer that is none": lambda file: (
        attribute("figures", json.dumps(figures_of("Sequential", "T3") | {"Sequential.time_ns": 1, "T3.speedup": 2}))(
            file
        ),
        attribute("point", '{"kernel.workload": [1], "kernels": [2]}')(file),
    ),
    "a swept list": attribute("point", '{"kernels": [1, 2]}'),
    "a scenario of one row": attribute("point", '{"simulation": "all"}'),
    "a swept field with the name of a column": attribute("point", '{"failure": 1, "time_ns": "x"}'),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_every_verb_ends_with_a_result_or_one_line(tmp_path, name, capsys):
    path, good = tmp_path / "a.h5", tmp_path / "good.h5"
    for place in (path, good):
        write_results(place, sample_results())
    with changed_archive(path) as file:
        ODD[name](file)
    for verb in VERBS:
        words = [word.replace("IN", str(path)).replace("GOOD", str(good)) for word in verb]
        status = main([word.replace("OUT", str(tmp_path / "out")) for word in words])
        said = capsys.readouterr().err
        assert status in (0, 2, *((1,) if verb[0] == "diff" else ())) and said.count("\n") <= 1, (verb, said)
        assert "\x1b" not in said


@pytest.mark.slow
def test_odd_totals_of_version_1(tmp_path, capsys):
    """It has no checksum and no seal."""
    path = tmp_path / "old.h5"
    for value in ('{"cu.events": "1"}', '{"hbm": 1}', "{}", "[]", '{"a.b": 1e400}', "null", '"x"'):
        shutil.copy(Path(__file__).parent / "archives" / "results_v1.h5", path)
        with h5py.File(path, "r+") as file:
            del file["kernels/0000/totals"]
            file["kernels/0000/totals"] = value
        for verb in VERBS[:9]:
            words = [word.replace("IN", str(path)).replace("GOOD", str(path)) for word in verb]
            status = main([word.replace("OUT", str(tmp_path / "out")) for word in words])
            said = capsys.readouterr().err
            assert status in (0, 2) and said.count("\n") <= 1, (verb, said)


@pytest.mark.slow
def test_a_failed_first_point_is_no_scenario(tmp_path, capsys):
    path = tmp_path / "a.h5"
    write_runs(path, [Failure({"simulation": "all"}, "no"), sample_results()])
    for verb in (("timeline", "IN", "-o", "OUT.json"), ("show", "IN", "--energy", "hbm2_12nm"), ("show", "IN")):
        assert main([word.replace("IN", str(path)).replace("OUT", str(tmp_path / "o")) for word in verb]) in (0, 2)
        assert capsys.readouterr().err.count("\n") <= 1
