"""Measuring a GPU without one: it says so; its kernels' chains are ours; reader, ncu's output and comparison."""

import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from tests.support.paths import ROOT
from tracer.data_type import DataType
from tracer.gemm.architecture import GemmLibrary, architecture
from tracer.gemm.library import choose_kernel
from tracer.streams import PointerChase
from traces.command.document import to_markdown
from traces.errors import UserError
from traces.schema import Cache
from validation.against import gpu_contention, gpu_measurements, gpu_memory, measure_gpu
from validation.against.gpu_contention import Point, at_bandwidth, kernels_named
from validation.against.gpu_kernels import CALLS, kernel_call
from validation.against.gpu_measurements import Figures
from validation.against.gpu_rows import (
    BESIDE,
    CHASES,
    IDLE,
    LADDER,
    LOADED,
    UNITS,
    Beside,
    Chase,
    MeasuredRow,
    ncu_cases,
    read_rows,
    write_rows,
)
from validation.csv_file import read_csv

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
    """Two workgroups: 10 turns in 1000 ns of 1500 clocks, 20 in 4000 ns of 5000. A copy moves two buffers."""
    done = np.array([10, 1000, 1500, 20, 4000, 5000], np.uint64)
    turn_bytes = 1024 * 4 * 16
    GBps, clock_MHz = gpu_memory.stream_figures(done, 1)
    assert GBps == pytest.approx(turn_bytes * (10 / 1000 + 20 / 4000)) and clock_MHz == (1500 + 1250) / 2
    assert gpu_memory.stream_figures(done, 2) == (2 * GBps, clock_MHz)


def test_counters_belong_to_the_case_before_their_marker(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)
    done = SimpleNamespace(stdout=NCU, stderr="", returncode=0)
    monkeypatch.setattr(measure_gpu.subprocess, "run", lambda *arguments, **options: done)
    names = ["t-nlg/fc2/tp8", "moe_route:tokens=1", "softmax:rows=1"]
    assert list(measure_gpu.count_sectors(measure_gpu.profile(names))) == [
        MeasuredRow("gemm", names[0], "l2_read_sectors", 5000.0, "sector"),
        MeasuredRow("gemm", names[0], "dram_read_sectors", 1_200_034.0, "sector"),
        MeasuredRow("operator", names[2], "dram_read_sectors", 7.0, "sector"),
    ]
    with pytest.raises(measure_gpu.NotPossible, match="3 cases, not of 2"):
        measure_gpu.profile(names[:2])


def test_a_part_that_is_not_possible_leaves_the_others(monkeypatch, capsys):
    row = MeasuredRow("launch", "in a graph", "time", 1.0, "us")

    def missing(*arguments):
        raise gpu_memory.NotPossible("no cupy")

    for name in ("measure_memory", "measure_loaded", "measure_beside"):
        monkeypatch.setattr(measure_gpu, name, missing)
    monkeypatch.setattr(measure_gpu, "profile", lambda names: [])
    for name in ("measure_times", "count_sectors"):
        monkeypatch.setattr(measure_gpu, name, lambda *arguments: iter(()))
    monkeypatch.setattr(measure_gpu, "measure_launch", lambda torch: iter((row,)))
    kept = []
    assert measure_gpu.measure(None, [], lambda rows: kept.append(list(rows)), kept.append) == [row]
    assert kept == [*[[row]] * 4, [], [row]] and capsys.readouterr().err.count("left out: no cupy") == 3


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


def test_ncu_cases_all_kernels_of_a_case_up_to_its_marker():
    first = {"dram__sectors_read.sum": 1_200_034.0, "lts__t_sectors_op_read.sum": 5000.0}
    found = ncu_cases(NCU, measure_gpu.MARKER)
    assert [case.sums for case in found] == [first, {}, {"dram__sectors_read.sum": 7.0}]
    assert [[name for name, _, _ in case.kernels.values()] for case in found] == [["gemm", "reduce"], [], ["norm"]]
    assert ncu_cases("==ERROR== ERR_NVGPUCTRPERM\n", measure_gpu.MARKER) == []


def test_kernels_stand_beside_what_was_predicted(monkeypatch):
    """Nothing is simulated here. The shortest kernel takes 3.5 us between two events."""
    figures = {"t-nlg/fc2/tp8": Figures(3000.0, 64e6), GEMM: Figures(10.0, 48e6)}
    monkeypatch.setattr(gpu_measurements, "today", lambda name, case: figures[case])
    text = to_markdown(gpu_measurements.blocks_of(read_rows(SYNTHETIC)._replace(rows=ROWS), "h200"))
    assert "| t-nlg/fc2/tp8 | 1500.0 | - | - | 3000.0 | +100.0 % |" in text
    blind = gpu_measurements.blind("h200", "gemm")[GEMM]
    assert f"| {GEMM} | 20.0 | {blind.us:.1f} | {100 * (blind.us / 20 - 1):+.1f} % | 10.0 | -50.0 % |" in text
    assert "| 32.00 | 48.00 | +50.0 % |" in text
    (mean,) = [line for line in text.splitlines() if line.startswith("| GEMMs, blind | 1 |")]
    assert mean.endswith(f"| {100 * (blind.read_bytes / 32e6 - 1):.1f} % | 50.0 % |") and " 50.0 % |" in mean[:70]
    assert "Synthetic" in text and "no/such" not in text


def test_a_kernel_is_simulated_with_the_choice_of_the_library():
    gpu = gpu_facts(load_preset("h200").machine)
    (named,), (layer,) = kernels_named(GEMM, gpu), kernels_named("t-nlg/fc2/tp8", gpu)
    assert named.problem.n == 6144 and layer.problem.k == 2128
    assert named.kernel == choose_kernel(named.problem, gpu, DataType.BF16)
    assert named.kernel != choose_kernel(named.problem, gpu._replace(cus=4), DataType.BF16)


def test_latency_at_a_bandwidth_lies_between_points_up_to_the_largest_bandwidth():
    points = Point(0.0, 300.0), Point(1000.0, 320.0), Point(2000.0, 420.0), Point(1900.0, 900.0)
    assert at_bandwidth(points, 0.0) == 300 and at_bandwidth(points, 1500.0) == 370
    assert at_bandwidth(points, 2000.5) is None


def test_a_stream_has_whole_turns_of_all_its_warps():
    stream = gpu_contention._stream(load_preset("v100"), "write", 8, 3e6)
    turn_bytes = 8 * 32 * 4 * 32 * 16
    assert stream.buffer_bytes == 6 * turn_bytes and stream.info.workgroups == 8


def test_contention_is_relative_to_sms_that_are_kept_without_traffic(monkeypatch):
    monkeypatch.setattr(gpu_measurements, "slowdown", lambda name, beside, GBps: 1 + GBps / 1000)
    monkeypatch.setattr(gpu_measurements, "latency_at", lambda name, flow, GBps: None if GBps > 490 else 357.0)
    beside = Beside("write", 8, "t-nlg/fc2/tp8")
    rows = (
        MeasuredRow("beside", beside._replace(flow=IDLE).case, "time", 200.0, "us"),
        MeasuredRow("beside", beside.case, "time", 250.0, "us"),
        MeasuredRow("beside", beside.case, "bandwidth", 400.0, "GB/s"),
        MeasuredRow("beside", beside.case, "clock", 1700.0, "MHz"),
        MeasuredRow("ladder", "8 MiB", "latency", 140.0, "ns"),
        MeasuredRow("ladder", "8 MiB", "bandwidth", 8000.0, "GB/s"),
        MeasuredRow("loaded", "read on 8 SMs", "latency", 330.0, "ns"),
        MeasuredRow("loaded", "read on 8 SMs", "bandwidth", 500.0, "GB/s"),
        MeasuredRow("loaded", "write on 8 SMs", "latency", 340.0, "ns"),
        MeasuredRow("loaded", "write on 8 SMs", "bandwidth", 490.0, "GB/s"),
    )
    text = to_markdown(gpu_measurements.blocks_of(read_rows(SYNTHETIC)._replace(rows=rows), "h200"))
    assert "| t-nlg/fc2/tp8 | 8 | write | 400 | 1.250 | 1.400 | +12.0 % | 1,700 |" in text
    assert "| write on 8 SMs | 490 | 340 | 357 | +5.0 % |" in text and "| read on 8 SMs | 500 | 330 | - | - |" in text
    assert "| 8 MiB | 140 | 8,000 |" in text


@pytest.mark.slow
def test_the_memory_stands_beside_the_preset():
    text = to_markdown(gpu_measurements.blocks_of(read_rows(SYNTHETIC)._replace(rows=MEMORY), "v100")).splitlines()
    (l2,) = [line for line in text if "| L2 hit, latency |" in line]
    assert float(l2.split("|")[4]) == pytest.approx(215 * 0.725, rel=0.01)
    (copy,) = [line for line in text if "| stream, copy |" in line]
    assert 400 < float(copy.split("|")[4]) < 900  # GB/s, at most the peak of the memory


def test_latencies_that_set_a_preset_are_calibration():
    levels = [chase.level for chase in CHASES]
    found = {name: [gpu_measurements.sets(name, level) for level in levels] for name in ("h200", "h100_sxm", "v100")}
    assert found == {"h200": [True] * 3, "h100_sxm": [False] * 3, "v100": [False] * 3}


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
    assert {row.case for row in found.rows if row.kind == "ladder"} == {one.level for one in LADDER}


def test_tiles_of_the_library_are_those_of_measured_kernels():
    """Every tile of sm90 was seen on an H200 or H100, or m and n exchanged. Most measured tiles are in the table."""
    seen = set()
    for stem in gpu_measurements.MEASURED.values():
        path = ROOT / "validation" / "references" / stem.replace(".csv", "_kernels.csv")
        for row in read_csv(path):
            if found := re.match(r"nvjet_sm90_[a-z]+_(\d+)x(\d+)_64x\d+_\dx\d_", row["kernel"]):
                n, m = map(int, found.groups())
                seen.add((m, n))
    table = {(kernel.tile_m, kernel.tile_n) for kernel in architecture(GemmLibrary.SM90).kernels}
    assert all((m, n) in seen or (n, m) in seen for m, n in table)
    assert len(seen - table) <= 1 + len(seen) // 3


def test_every_kernel_that_is_predicted_has_a_call_or_is_known_to_have_none():
    kernels = {case.partition(":")[0] for case in measure_gpu.cases() if ":" in case}
    assert kernels - set(CALLS) == {"moe_route"}
    with pytest.raises(ValueError, match="moe_route"):
        kernel_call(None, "moe_route:tokens=1,experts=8,top_k=2")
