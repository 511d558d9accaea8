"""Measuring a GPU without one: it says so; its kernels' chains are ours; reader, ncu's output and comparison."""

import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sim.presets import load_preset
from tests.support.paths import ROOT
from tracer.streams import PointerChase
from traces.errors import UserError
from traces.schema import Cache
from validation.against import gpu_measurements, measure_gpu
from validation.against.gpu_measurements import comparison, simulation_on
from validation.against.gpu_rows import CHASES, Chase, MeasuredRow, ncu_sums, read_rows, write_rows

SYNTHETIC = ROOT / "tests" / "validation" / "against" / "gpu_synthetic.csv"
NCU = """==PROF== Connected to process 7
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","gemm","dram__sectors_read.sum","sector","1,200,000"
"0","gemm","lts__t_sectors_op_read.sum","sector","5,000"
"1","reduce","dram__sectors_read.sum","sector","34"
"1","reduce","lts__t_sectors_op_read.sum","sector","n/a"
==PROF== Disconnected
"""


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert measure_gpu.main(["-o", str(tmp_path / "gpu.csv")]) == 0
    assert "no NVIDIA GPU" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        (None, "no torch"),
        (SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)), "torch sees no CUDA device"),
    ],
)
def test_with_a_driver_but_nothing_to_measure_with(tmp_path, monkeypatch, capsys, torch, says):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert measure_gpu.main(["-o", str(tmp_path / "gpu.csv")]) == 0
    assert says in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chase", CHASES, ids=lambda chase: chase.level)
def test_chases_are_those_that_the_simulator_runs(chase):
    simulated = PointerChase(chase.buffer_bytes, chase.warm + chase.loads, chase.stride_bytes, address=0)
    (workgroup,) = simulated.workgroups()
    assert measure_gpu.chain_offsets(chase)[:-1].tolist() == workgroup.events["base"][:-1].tolist()


def test_a_chain_is_linked_and_timed_per_load():
    """The kernel is replaced by one that walks the chain on the host and says 7 clocks per load."""

    class Event:
        def record(self): ...
        def synchronize(self): ...

    def kernel(grid, block, arguments):
        ring, warm, loads, out = arguments
        at = ring.data_ptr
        for _ in range(warm + loads):
            at = int(ring.array[(at - ring.data_ptr) // 8])
        walked.append(at - ring.data_ptr)
        out[0] = 7 * loads

    class Ring:
        """What cupy's array has and numpy's has not: a plain number as data.ptr."""

        data_ptr = 1 << 40

        def __init__(self, array):
            self.array, self.data = array, SimpleNamespace(ptr=self.data_ptr)

        def __setitem__(self, places, values):
            self.array[places] = values

    walked = []
    cupy = SimpleNamespace(
        zeros=lambda n, dtype: Ring(np.zeros(n, dtype)) if n > 2 else np.zeros(n, dtype),
        asarray=np.asarray,
        uint64=np.uint64,
        cuda=SimpleNamespace(Event=Event, get_elapsed_time=lambda begin, end: 0.001),
    )
    chase = Chase("L1 hit", "", 1024, 128, 3, 6, Cache.DEFAULT)
    flush = SimpleNamespace(fill=lambda value: None)
    clocks, times = measure_gpu._chase(cupy, SimpleNamespace(get_function=lambda name: kernel), chase, flush)
    assert clocks == MeasuredRow("chase", "L1 hit", "latency", 7.0, "clock")
    assert times.unit == "ns"
    assert set(walked[1::2]) == {9 * 128 % 1024}


def test_written_rows_are_read_again(tmp_path):
    found = read_rows(SYNTHETIC)
    assert found.synthetic and found.gpu == "Invented GPU" and len(found.rows) == 5
    write_rows(tmp_path / "again.csv", found.gpu, found.provenance, found.rows)
    assert (tmp_path / "again.csv").read_text(encoding="utf-8").replace("8e+06", "8000000") == SYNTHETIC.read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("gpu,kind", "gpu;kind", ":1: found gpu;kind"),
        (",chase,L1 hit,latency,", ",chase,L1 hit,speed,", ":2: found chase speed"),
        ("24,clock", "24,us", ":2: unit: found 'us'"),
        ("24,clock", "fast,clock", ":2: value: found 'fast'"),
        ("1000,GB/s", "-1,GB/s", ":4: value: found '-1'"),
        ("Invented GPU,stream", "Other GPU,stream", "found 2 GPUs"),
        ("24,clock", "24", ":2: found 6 cells"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, old, new, words):
    path = tmp_path / "gpu.csv"
    text = SYNTHETIC.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError, match=r"gpu\.csv") as caught:
        read_rows(path)
    assert words in str(caught.value)


def test_ncu_sums_all_kernels():
    assert ncu_sums(NCU) == {"dram__sectors_read.sum": 1_200_034.0, "lts__t_sectors_op_read.sum": 5000.0}
    assert ncu_sums("==ERROR== ERR_NVGPUCTRPERM\n") == {}


@pytest.mark.slow
def test_comparison_stands_beside_the_preset(monkeypatch):
    """Chase and stream are simulated; the GEMM's figures are given."""
    monkeypatch.setattr(gpu_measurements, "STREAM_L2S", 1)
    simulated = simulation_on(load_preset("v100"))
    text = comparison(
        read_rows(SYNTHETIC), "v100", lambda row: 3000.0 if row.kind == "gemm" else simulated(row)
    ).splitlines()
    assert any("Synthetic" in line for line in text)
    assert "| chase | L1 hit | latency | clock | 24 | 30 | +25.0 % |" in text
    assert "| gemm | t-nlg/fc2/tp8 | time | us | 1500 | 3000 | +100.0 % |" in text
    (l2,) = [line for line in text if "| L2 hit |" in line]
    assert float(l2.split("|")[6]) == pytest.approx(215 * 0.725, rel=0.01)
    (copy,) = [line for line in text if "| copy |" in line]
    assert 400 < float(copy.split("|")[6]) < 900  # GB/s, at most the peak of the memory


def test_an_unknown_case_and_the_command(tmp_path, capsys):
    with pytest.raises(UserError, match="'L4 hit', allowed are L1 hit, L2 hit, HBM"):
        simulation_on(load_preset("v100"))(MeasuredRow("chase", "L4 hit", "latency", 1.0, "ns"))
    assert gpu_measurements.main([str(tmp_path / "nothing.csv"), "v100"]) == 2
    assert "nothing.csv" in capsys.readouterr().err
