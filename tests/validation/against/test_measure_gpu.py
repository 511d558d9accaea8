"""Measuring a GPU without one: it says so; its kernels' chains are ours; reader, ncu's output and comparison."""

import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.paths import ROOT
from tracer.streams import PointerChase
from traces.command.document import to_markdown
from traces.errors import UserError
from traces.schema import Cache
from validation.against import gpu_measurements, gpu_memory, measure_gpu
from validation.against.gpu_kernels import CALLS, kernel_call
from validation.against.gpu_rows import (
    BESIDE,
    CHASES,
    IDLE,
    LOADED,
    UNITS,
    Beside,
    Chase,
    MeasuredRow,
    ncu_sums,
    read_rows,
    write_rows,
)

GEMM = "gemm:m=1,n=6144,k=4096,dtype=bf16,b_layout=column"
ROWS = (
    MeasuredRow("gemm", "t-nlg/fc2/tp8", "time", 1500.0, "us"),
    MeasuredRow("gemm", "t-nlg/fc2/tp8", "dram_read_sectors", 2e6, "sector"),
    MeasuredRow("gemm", GEMM, "time", 20.0, "us"),
    MeasuredRow("gemm", GEMM, "dram_read_sectors", 1e6, "sector"),
    MeasuredRow("operator", "no/such:rows=1", "time", 20.0, "us"),
    MeasuredRow("launch", "between events", "time", 3.5, "us"),
)
MEMORY = (
    MeasuredRow("chase", "L2 hit", "latency", 150.0, "ns"),
    MeasuredRow("stream", "copy", "bandwidth", 800.0, "GB/s"),
)
SYNTHETIC = ROOT / "tests" / "validation" / "against" / "gpu_synthetic.csv"
NCU = """==PROF== Connected to process 7
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","gemm","dram__sectors_read.sum","sector","1,200,000"
"0","gemm","lts__t_sectors_op_read.sum","sector","5,000"
"1","reduce","dram__sectors_read.sum","sector","34"
"1","reduce","lts__t_sectors_op_read.sum","sector","n/a"
"2","spin_kernel(long)","dram__sectors_read.sum","sector","3"
"2","spin_kernel(long)","lts__t_sectors_op_read.sum","sector","4"
"3","spin_kernel(long)","dram__sectors_read.sum","sector","3"
"4","norm","dram__sectors_read.sum","sector","7"
"5","spin_kernel(long)","dram__sectors_read.sum","sector","3"
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
    assert gpu_memory.chain_offsets(chase)[:-1].tolist() == workgroup.events["base"][:-1].tolist()


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
    clocks, times = gpu_memory._chase(cupy, SimpleNamespace(get_function=lambda name: kernel), chase, flush)
    assert clocks == MeasuredRow("chase", "L1 hit", "latency", 7.0, "clock")
    assert times.unit == "ns"
    assert set(walked[1::2]) == {9 * 128 % 1024}


def test_streams_count_the_bytes_of_their_turns():
    """Two workgroups: 10 turns in 1000 ns and 20 in 4000 ns. A copy moves two buffers."""
    done = np.array([10, 1000, 20, 4000], np.uint64)
    turn_bytes = 1024 * 4 * 16
    assert gpu_memory.stream_GBps(done, 1) == pytest.approx(turn_bytes * (10 / 1000 + 20 / 4000))
    assert gpu_memory.stream_GBps(done, 2) == 2 * gpu_memory.stream_GBps(done, 1)


def test_counters_belong_to_the_case_before_their_marker(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    done = SimpleNamespace(stdout=NCU, stderr="", returncode=0)
    monkeypatch.setattr(measure_gpu.subprocess, "run", lambda *arguments, **options: done)
    names = ["t-nlg/fc2/tp8", "moe_route:tokens=1", "softmax:rows=1"]
    assert list(measure_gpu.count_sectors(names)) == [
        MeasuredRow("gemm", names[0], "l2_read_sectors", 5000.0, "sector"),
        MeasuredRow("gemm", names[0], "dram_read_sectors", 1_200_034.0, "sector"),
        MeasuredRow("operator", names[2], "dram_read_sectors", 7.0, "sector"),
    ]
    with pytest.raises(measure_gpu.NoGpu, match="3 cases, not of 2"):
        list(measure_gpu.count_sectors(names[:2]))


def test_a_part_that_is_not_possible_leaves_the_others(monkeypatch, capsys):
    row = MeasuredRow("launch", "in a graph", "time", 1.0, "us")

    def missing(*arguments):
        raise gpu_memory.NoMemory("no cupy")

    for name in ("measure_memory", "measure_loaded", "measure_beside"):
        monkeypatch.setattr(measure_gpu, name, missing)
    for name in ("measure_times", "count_sectors"):
        monkeypatch.setattr(measure_gpu, name, lambda *arguments: iter(()))
    monkeypatch.setattr(measure_gpu, "measure_launch", lambda torch: iter((row,)))
    kept = []
    assert measure_gpu.measure(None, [], lambda rows: kept.append(list(rows))) == [row]
    assert kept == [[row]] * 5 and capsys.readouterr().err.count("left out: no cupy") == 3


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


def test_ncu_sums_all_kernels_of_a_case_up_to_its_marker():
    first = {"dram__sectors_read.sum": 1_200_034.0, "lts__t_sectors_op_read.sum": 5000.0}
    assert ncu_sums(NCU, measure_gpu.MARKER) == [first, {}, {"dram__sectors_read.sum": 7.0}]
    assert ncu_sums("==ERROR== ERR_NVGPUCTRPERM\n", measure_gpu.MARKER) == []


def test_kernels_stand_beside_what_was_predicted(monkeypatch):
    """Sub-layers are not simulated here. The shortest kernel takes 3.5 us between two events."""
    monkeypatch.setattr(gpu_measurements, "sublayer", lambda name, case: (3000.0, 64e6))
    text = to_markdown(gpu_measurements.blocks_of(read_rows(SYNTHETIC)._replace(rows=ROWS), "h200"))
    assert "| t-nlg/fc2/tp8 | 1500.0 | 3000.0 | +100.0 % |" in text
    blind = gpu_measurements.blind("h200", "gemm")[GEMM]
    assert f"| {GEMM} | 20.0 | {blind[0]:.1f} | {100 * (blind[0] / 20 - 1):+.1f} % |" in text
    assert "| 32.00 | 50.34 | +57.3 % |" in text
    assert "Synthetic" in text and "no/such" not in text


def test_contention_is_relative_to_sms_that_are_kept_without_traffic():
    beside = Beside("write", 8, "t-nlg/fc2/tp8")
    rows = (
        MeasuredRow("beside", beside._replace(flow=IDLE).case, "time", 200.0, "us"),
        MeasuredRow("beside", beside.case, "time", 250.0, "us"),
        MeasuredRow("beside", beside.case, "bandwidth", 400.0, "GB/s"),
        MeasuredRow("loaded", "write on 8 SMs", "latency", 340.0, "ns"),
        MeasuredRow("loaded", "write on 8 SMs", "bandwidth", 490.0, "GB/s"),
    )
    text = to_markdown(gpu_measurements.blocks_of(read_rows(SYNTHETIC)._replace(rows=rows), "h200"))
    assert "| t-nlg/fc2/tp8 | 8 | write | 400 | 1.250 |" in text
    assert "| write on 8 SMs | 490 | 340 |" in text


@pytest.mark.slow
def test_the_memory_stands_beside_the_preset():
    text = to_markdown(gpu_measurements.blocks_of(read_rows(SYNTHETIC)._replace(rows=MEMORY), "v100")).splitlines()
    (l2,) = [line for line in text if "| L2 hit, latency |" in line]
    assert float(l2.split("|")[4]) == pytest.approx(215 * 0.725, rel=0.01)
    (copy,) = [line for line in text if "| stream, copy |" in line]
    assert 400 < float(copy.split("|")[4]) < 900  # GB/s, at most the peak of the memory


def test_the_command_names_what_is_wrong(tmp_path, capsys):
    assert gpu_measurements.main([str(tmp_path / "nothing.csv"), "v100"]) == 2
    assert "nothing.csv" in capsys.readouterr().err
    assert gpu_measurements.main([str(SYNTHETIC)]) == 2
    assert "preset: found nothing" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(gpu_measurements.MEASURED))
def test_every_committed_measurement_has_all_that_the_script_measures(name):
    found = read_rows(ROOT / "validation" / "references" / gpu_measurements.MEASURED[name])
    assert not found.synthetic
    assert {row.kind for row in found.rows} == {kind for kind, _ in UNITS}
    cases = {row.case for row in found.rows if row.quantity == "time"}
    assert {case for case in measure_gpu.cases() if not case.startswith("moe_route:")} <= cases
    assert {row.case for row in found.rows if row.kind == "loaded"} == {one.case for one in LOADED}
    assert {row.case for row in found.rows if row.kind == "beside"} == {one.case for one in BESIDE}


def test_every_kernel_that_is_predicted_has_a_call_or_is_known_to_have_none():
    kernels = {case.partition(":")[0] for case in measure_gpu.cases() if ":" in case}
    assert kernels - set(CALLS) == {"moe_route"}
    with pytest.raises(ValueError, match="moe_route"):
        kernel_call(None, "moe_route:tokens=1,experts=8,top_k=2")
