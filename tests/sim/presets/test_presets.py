"""Presets: every value has its evidence, the derived peaks are those of the machine meant, mistakes are named."""

import math

import pytest

from sim import spec
from sim.hw.request import LINE_BYTES
from sim.presets import assumed, borrowed, load_preset, preset_from_dict, presets
from sim.presets.load import FOLDER, PresetError
from sim.presets.preset import BORROWED, KINDS

LEAF = '{ value = %s, kind = "assumed", source = "test" }'


@pytest.mark.parametrize("name", presets())
def test_every_value_has_kind_and_source(name):
    preset = load_preset(name)
    assert preset.values().keys() == preset.sources.keys()
    assert all(source.kind in (*KINDS, BORROWED) and source.source for source in preset.sources.values())
    assert set(assumed(preset)) == {field for field, source in preset.sources.items() if source.kind == "assumed"}


@pytest.mark.parametrize(
    ("name", "dram_GBps", "tensor_TFLOPs", "l2_bytes"),
    [
        ("t3_2024", 1024, 114.7, 16 << 20),
        ("gpu_2x_cu", 1024, 229.4, 16 << 20),
        ("v100", 898, 113.0, 6 << 20),
        ("a100_80g", 2039, 305.8, 40 << 20),
        ("mi210", 1638.4, 121.6, 8 << 20),
        ("h200", 4800, 934.1, 48 << 20),
        ("a100_80g_halves", 2039, 305.8, 40 << 20),
        ("h100_sxm", 3351, 943.5, 50 << 20),
        ("b200", 8000, 2249.8, 126 << 20),
        ("mi300x", 5324.8, 751.5, 32 << 20),
        ("accelsim_qv100", 870.4, 92.7, 6 << 20),
        ("accelsim_a100", 1935.4, 311.9, 40 << 20),
    ],
)
def test_peaks_are_those_of_the_machine(name, dram_GBps, tensor_TFLOPs, l2_bytes):
    peaks = load_preset(name).peaks()
    assert math.isclose(peaks.dram_bytes_per_s / 1e9, dram_GBps, rel_tol=1e-3)
    assert math.isclose(peaks.tensor_flop_per_s / 1e12, tensor_TFLOPs, rel_tol=1e-3)
    assert peaks.l2_bytes == l2_bytes


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("unit", ["link", "network"])
def test_credits_do_not_limit_the_rate_of_an_idle_link(name, unit):
    """Rows of a tile that begin in the middle of a line make packets of two thirds of a line on average."""
    wire = getattr(load_preset(name).machine, unit)
    in_flight_bytes = wire.GB_per_s * wire.efficiency * 2 * wire.latency_ps / 1000
    assert wire.credits * LINE_BYTES * 2 / 3 >= in_flight_bytes


def test_the_peak_of_dram_is_that_of_its_columns():
    plain, slow = load_preset("v100").peaks(), load_preset("v100", ["hbm.timing.CCD_S=4"]).peaks()
    assert slow.dram_bytes_per_s == plain.dram_bytes_per_s / 2  # a column of two clocks of data every four


def test_machines_say_what_they_borrow_from_the_paper():
    paper, other = load_preset("t3_2024"), load_preset("mi210")
    own = {"collective.library", "dma.start_ps"}
    for unit in ("link", "network", "tracker", "dma", "mca", "collective"):
        fields = {field for field in other.sources if field.startswith(f"{unit}.")} - own
        assert fields and all(other.sources[field].kind == BORROWED for field in fields)
    assert other.sources["link.GB_per_s"].source.startswith("as the machine of the T3 paper (paper: T3 (ASPLOS 2024")
    assert not borrowed(paper) and not borrowed(load_preset("gpu_2x_cu"))
    assert paper.sources["link.GB_per_s"].kind == "paper"
    assert preset_from_dict(other.as_dict()) == other
    assert "link.GB_per_s" not in borrowed(load_preset("mi210", ["link.GB_per_s=50"]))
    assert not {"link.topology", "link.GB_per_s"} & set(borrowed(load_preset("h200")))


def test_t3_memory_is_set_g():
    timing = load_preset("t3_2024").machine.hbm.timing
    assert (timing.CL, timing.WL, timing.RCD_rd, timing.RP, timing.RAS, timing.RC) == (14, 2, 14, 14, 33, 47)
    assert (timing.CCD_S, timing.CCD_L, timing.RRD_S, timing.RTP, timing.WR, timing.CCDWL) == (1, 2, 4, 4, 12, 4)
    assert timing.CL + timing.burst + 2 - timing.WL == timing.RTW


def test_extends_takes_the_rest_from_the_base():
    base, child = load_preset("v100"), load_preset("accelsim_qv100")
    assert child.machine.l2.ways == base.machine.l2.ways == 24
    assert child.machine.cu.clock_MHz == 1132
    assert child.sources["cu.clock_MHz"].source.startswith("GPGPU-Sim")
    assert child.sources["l2.ways"] == base.sources["l2.ways"]


def test_overrides_set_single_values_and_say_so():
    preset = load_preset("t3_2024", ["hbm.queue_entries=32", "hbm.queue = split", "cu.clock_MHz=1500"])
    assert preset.machine.hbm.queue_entries == 32
    assert preset.machine.hbm.queue is spec.QueueOrganisation.SPLIT
    assert preset.machine.cu.clock_MHz == 1500
    assert preset.sources["hbm.queue"].kind == "override"


def test_stored_preset_reads_back():
    preset = load_preset("t3_2024", ["hbm.queue_entries=32"])
    assert preset_from_dict(preset.as_dict()) == preset


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("hbm.queue_entrys=3", ["hbm.queue_entrys", "did you mean hbm.queue_entries"]),
        ("zz=1", ["zz", "t3sim presets NAME"]),
        ("hbm.queue=unfied", ["hbm.queue", "'unfied'", "allowed are unified, split"]),
        ("hbm.queue=0", ["hbm.queue", "found 0", "unified"]),
        ("hbm.queue_entries=0", ["hbm.queue_entries", "found 0", "4 to 512: a line"]),
        ("hbm.timing.CL=1.5", ["hbm.timing.CL", "found 1.5", "int"]),
        ("cu.count='a'", ["cu.count", "found 'a'", "int"]),
        ("cu.clock_MHz=-1", ["cu.clock_MHz", "found -1"]),
        ("l1.unified_with_shared=1", ["l1.unified_with_shared", "bool"]),
        ("cu.lanes_per_warp=16", ["cu.lanes_per_warp", "32 or 64"]),
        ("cu.threads=4096", ["cu.threads", "2048"]),
        ("cu.warps=63", ["cu.warps"]),
        ("l1.ways=30", ["l1.bytes", "131072"]),
        ("l2.banks=33", ["l2.bytes", "6291456"]),
        ("hbm.channels=48", ["l2.banks", "48"]),
        ("cu.shared_bytes=262144", ["cu.shared_bytes", "131072"]),
        ("hbm.row_bytes=1000", ["hbm.row_bytes", "1000", "power of two"]),
        ("hbm.write_low=0.9", ["hbm.write_low", "0.8"]),
        ("hbm.timing.CCD_L=0", ["hbm.timing.CCD_L", "CCD_S"]),
        ("hbm.timing.RC=39", ["hbm.timing.RC", "43"]),
        ("hbm.timing.REFI=100", ["hbm.timing.REFI"]),
        ("hbm.timing.REFI=350", ["hbm.timing.REFI", "0 (no refresh) or at least "]),
        ("hbm.bank_groups=32", ["hbm.banks_per_group", "at most 64 / hbm.bank_groups = 2"]),
        ("hbm.interleave_bytes=192", ["hbm.interleave_bytes", "a power of two"]),
        ("hbm.column_bytes=48", ["hbm.column_bytes", "32 or 64"]),
        ("hbm.queue_entries=300", ["hbm.queue_entries", "at most 256 with hbm.queue = split"]),
        ("l2.dram_fifo=1", ["l2.dram_fifo", "2 to 65,536", "an eviction and for the request"]),
        ("collective.library=nccl", ["collective.library", "found nccl", "plain, nccl_v100"]),
        ("hbm.queue_entries", ["--set hbm.queue_entries", "unit.field=value"]),
    ],
)
def test_wrong_override_is_named(override, words):
    with pytest.raises(PresetError) as caught:
        load_preset("v100", [override])
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cu\n", ["not a TOML file", "line 1"]),
        ("extends = 'v99'", ["mine.toml: extends", "'v99'", "v100"]),
        ("extends = 'v99.toml'", ["mine.toml: extends", "v99.toml: no such preset file"]),
        (f"extends = '{'a' * 300}.toml'", ["mine.toml: extends", "a.toml: File name too long"]),
        ("extends = 'v100'\nhbm = 3", ["mine.toml: hbm", "found 3", "a table [hbm] of its fields"]),
        ("extends = 3", ["extends", "found 3"]),
        ("extends = 'v100'\n[gpu]\ncount = 3", ["gpu", "cu"]),
        ("extends = 'v100'\n[cu]\ncount = 3", ["cu.count", "found 3", "value, kind, source"]),
        ("extends = 'v100'\n[cu]\nsms = " + LEAF % 3, ["cu.sms", "unknown field"]),
        ("extends = 'v100'\n[cu]\ncount = { value = 3, kind = 'paper' }", ["cu.count", "no source"]),
        ("extends = 'v100'\n[cu]\ncount = { value = 3, kind = 'paper', source = ' ' }", ["cu.count", "source"]),
        (
            "extends = 'v100'\n[cu]\ncount = { value = 3, kind = 'guess', source = 'x' }",
            ["cu.count", "'guess'", "paper"],
        ),
        ("extends = 'v100'\n[cu]\ncount = { vlue = 3 }", ["cu.count", "'vlue'", "value"]),
        ("[cu]\ncount = " + LEAF % 3, ["missing", "cu.clock_MHz"]),
    ],
)
def test_wrong_file_is_named(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(PresetError) as caught:
        load_preset(path)
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message
    assert "mine.toml" in message


def test_file_may_extend_a_neighbour(tmp_path):
    (tmp_path / "base.toml").write_text("extends = 'v100'\n[cu]\ncount = " + LEAF % 40)
    (tmp_path / "mine.toml").write_text("extends = 'base.toml'\n[l2]\nmshrs = " + LEAF % 7)
    machine = load_preset(tmp_path / "mine.toml").machine
    assert (machine.cu.count, machine.l2.mshrs) == (40, 7)


@pytest.mark.parametrize("again", ["a.toml", "sub/../a.toml", "same.toml"])
def test_circle_of_files_is_named(again, tmp_path):
    """However it spells a path."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "same.toml").symlink_to("a.toml")
    (tmp_path / "a.toml").write_text("extends = 'b.toml'")
    (tmp_path / "b.toml").write_text(f"extends = '{again}'")
    with pytest.raises(PresetError, match=r"a circle of a\.toml, b\.toml$"):
        load_preset(tmp_path / "a.toml")


def test_unknown_name_lists_the_presets():
    with pytest.raises(PresetError, match="v100"):
        load_preset("v101")
    with pytest.raises(PresetError, match="no such preset file"):
        load_preset("missing/v100.toml")
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(presets())


@pytest.mark.parametrize("value", ["[1]", "{a = 1}", "[]", "true", "1.5"])
def test_a_named_value_that_is_none(value):
    with pytest.raises(PresetError, match=r"hbm\.index: found .*; allowed are interleave, hash"):
        load_preset("v100", [f"hbm.index={value}"])
