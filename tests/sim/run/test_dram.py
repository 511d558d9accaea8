"""The stand-alone channel: stream files, results, mistakes."""

import csv
import gzip
import lzma
import math

import numpy as np
import pytest

from sim.hw.request import Op
from sim.run.dram import channel_spec, run_stream, timing_sets
from sim.run.dram_stream import Stream, read_stream
from tests.support.paths import ROOT
from traces.errors import UserError

REFERENCE = ROOT / "validation" / "references" / "hbm_timings.csv"
TEXT = b"# a stream\nR 0x40 0\n\n w 128 10  # a write\r\nU 0xfC0\n\tR\t0x40\t20"


@pytest.mark.slow
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_a_stream_file_plain_or_compressed(tmp_path, pack):
    path = tmp_path / "stream"
    path.write_bytes(pack(TEXT))
    stream = read_stream(path)
    assert stream.op.tolist() == [Op.READ, Op.WRITE, Op.UPDATE, Op.READ]
    assert stream.address.tolist() == [0x40, 128, 0xFC0, 0x40]
    assert stream.earliest_ns.tolist() == [0, 10, 0, 20]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("X 0x40 0", "starts with R, W or U"),
        ("R", "expected"),
        ("R zero 0", "expected"),
        ("R 0x 0", "expected"),
        ("R -64 0", "expected"),
        ("R 0x40 1.5", "nothing after"),
        ("R 0x40 0 7", "nothing after"),
        ("R 0x40 abc", "expected"),
        ("R 0xffffffffffffffffff 0", "expected"),
        ("\x00\xff", "starts with"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "bad.trace"
    path.write_bytes(b"R 0x0 0\nW 0x40 0\n" + line.encode("latin-1") + b"\nR 0 0\n")
    with pytest.raises(UserError, match=rf"bad\.trace:3: .*{message}"):
        read_stream(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n"])
def test_an_empty_stream(tmp_path, content):
    path = tmp_path / "empty"
    path.write_bytes(content)
    with pytest.raises(UserError, match="no requests"):
        read_stream(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_damaged_file(tmp_path, pack):
    path = tmp_path / "cut"
    path.write_bytes(pack(TEXT * 100)[:-20])
    with pytest.raises(UserError, match="damaged"):
        read_stream(path)
    with pytest.raises(UserError, match="nowhere"):
        read_stream(tmp_path / "nowhere")


@pytest.mark.slow
def test_a_stamp_holds_back_all_that_follow(tmp_path):
    path = tmp_path / "back"
    path.write_bytes(b"R 0 500\nR 64 4\n")
    assert run_stream(path).cycles > 500


def test_unknown_names():
    with pytest.raises(UserError, match="must be one of G, D, R, P"):
        channel_spec("X")
    with pytest.raises(UserError, match="must be one of RO, BG"):
        channel_spec("G", "XY")
    with pytest.raises(UserError, match="queue_entry"):
        channel_spec("G", "RO", queue_entry=3)


def test_one_read_takes_an_activate_a_column_pair_and_its_data(tmp_path):
    path = tmp_path / "one"
    path.write_bytes(b"R 0x1000 100\n")
    result = run_stream(path, log=True)
    t = channel_spec().timing
    assert result.p50_latency_ns == t.RCD_rd + t.CCD_L + t.CL + t.burst
    assert result.cycles == 100 + result.p50_latency_ns
    assert result.acts == 1 and result.log.size == 3
    assert result.row_hit_rate == 0


@pytest.mark.parametrize("name", timing_sets())
def test_a_new_row_for_each_request_is_no_hit(name):
    """A refresh can close a row before its column moves; its second activation is no negative hit."""
    stride = 1 << 15  # the same bank in all sets
    rows = Stream(np.zeros(2000, np.uint8), np.arange(2000) * stride, np.zeros(2000, np.int64))
    result = run_stream(rows, name)
    assert result.row_hit_rate == 0 and result.acts >= 2000


@pytest.mark.parametrize("name", timing_sets())
@pytest.mark.parametrize("bank_map", ["RO", "BG", "RG"])
def test_every_set_runs(tmp_path, name, bank_map):
    path = tmp_path / "some"
    path.write_text("".join(f"{'RW'[n % 3 == 0]} {n * 64}\n" for n in range(500)))
    result = run_stream(path, name, bank_map)
    peak = {"G": 32, "D": 32, "R": 16, "P": 16, "HBM2e": 25.6, "HBM3": 25.6, "HBM3e": 32}[name]
    assert 0 < result.bandwidth_GBps <= peak
    channel = result.channel
    assert channel["read_columns"].sum() + channel["write_columns"].sum() == 2 * 500


def test_the_sets_of_today_are_the_published_times_in_whole_clocks():
    sets = timing_sets()
    with REFERENCE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["set"] for row in rows} == {"HBM2e", "HBM3", "HBM3e"} and len(rows) > 45
    for row in rows:
        timing = sets[row["set"]]["timing"]
        clocks = math.ceil(int(row["published_ps"]) * sets[row["set"]]["clock_MHz"] / 1e6 - 1e-9)
        if row["parameter"] == "RC":
            clocks = max(clocks, timing["RAS"] + timing["RP"])
        assert timing[row["parameter"]] == clocks, row


def test_writes_as_updates_of_one_group_wait(tmp_path):
    path = tmp_path / "writes"
    path.write_text("".join(f"W {n * 64}\n" for n in range(3000)))
    plain = run_stream(path, "G", "RO")
    updates = run_stream(path, "G", "RO", nmc_updates=True)
    assert updates.bandwidth_GBps < 0.6 * plain.bandwidth_GBps
    assert updates.channel["update_columns"].sum() == 6000
    assert updates.avg_read_latency_ns == 0
