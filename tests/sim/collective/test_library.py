"""What a library chooses, and the plans that it runs: traffic, ledger, order of the pieces."""

import re

import pytest

from sim.collective.kernel import Pieces, Step, in_rounds
from sim.collective.library import KINDS, PROTOCOLS, Choice, choose, estimate_us, row_of, tables
from sim.presets import load_preset
from sim.run.library_preset import library_preset
from sim.run.library_run import LibraryRun, buffer_shape, flat_buffer
from sim.scenario.collective import Collective, CollectiveResult, result_of, simulate_collective
from tests.support.checkout import ROOT
from traces.errors import UserError
from traces.schema import SECTOR_BYTES
from validation.csv_file import read_csv

TUNING = ROOT / "validation" / "references" / "nccl_tuning_tables.csv"
COUNTERS = ROOT / "validation" / "references" / "memory_counters_mi300x.csv"
DERIVED = "derived: switches of ring"


def simulated(kind, gpus, data_bytes, *overrides, **chosen) -> CollectiveResult:
    asked = Collective(load_preset("a100_80g", overrides), kind, gpus, data_bytes, **chosen)
    return simulate_collective(asked)


def test_the_protocol_is_that_of_the_tables_of_nccl():
    """The reference derives the sizes from which NCCL takes the next protocol; ours are within 2 %."""
    switches = {row["key"]: row["value"] for row in read_csv(TUNING) if row["table"].startswith(DERIVED)}
    for name, preset in (("V100", "v100"), ("A100", "a100_80g"), ("H100", "h200")):
        row = load_preset(preset).machine.collective.library
        for protocol, size in re.findall(r"(LL128|Simple) from (\d+) B", switches[name]):
            before, after = (choose(row, "all_gather", 8, round(int(size) * far)) for far in (0.98, 1.02))
            assert (before.protocol, after.protocol) == {"LL128": ("ll", "ll128"), "Simple": ("ll128", "simple")}[
                protocol
            ]


def test_the_tables_are_those_of_the_reference():
    found = {(row["table"], row["key"]): row["value"] for row in read_csv(TUNING)}
    for name, label in zip(PROTOCOLS, ("LL", "LL128", "Simple"), strict=True):
        assert tables().tuning[name].base_us == float(found["baseLatency", f"Ring/{label}"])
        assert tables().tuning[name].hop_us == float(found["hwLatency", f"NVLINK/Ring/{label}"])


def test_an_all_reduce_has_twice_the_steps_of_a_reduce_scatter():
    row = row_of("nccl_a100")
    once, twice = (estimate_us(row, kind, 4, 1 << 20, "ll") for kind in ("reduce_scatter", "all_reduce"))
    assert twice == pytest.approx(2 * once - 6.6)


def test_a_message_to_one_gpu_chooses_the_protocol_of_an_all_to_all():
    assert choose("nccl_a100", "all_to_all", 4, 4 * 16384).protocol == "ll"
    assert choose("nccl_a100", "all_to_all", 4, 4 * 16384 + 1).protocol == "simple"


@pytest.mark.parametrize(
    ("row", "kind", "data_bytes", "algorithm"),
    [
        ("nccl_h100", "all_reduce", 1 << 20, "ring"),
        ("nccl_h100", "all_reduce", 1 << 22, "nvls"),
        ("nccl_b200", "all_reduce", 1 << 26, "nvls"),
        ("nccl_h100", "all_gather", 1 << 26, "ring"),
        ("nccl_a100", "all_reduce", 1 << 26, "ring"),
    ],
)
def test_nvls_is_chosen_by_the_estimate_of_nccl(row, kind, data_bytes, algorithm):
    """25 us and 1 / (0.85 x 15/16 x 2) of the ring's time on the links; only a switch that adds has it."""
    assert choose(row, kind, 8, data_bytes).algorithm == algorithm


def test_the_estimate_of_nvls_has_the_constants_of_the_reference():
    found = {(row["table"], row["key"]): row["value"] for row in read_csv(TUNING)}
    assert tables().tuning["nvls"].hop_us == float(found["hwLatency", "NVLINK/NVLS/Simple"])
    for name, key in (("nccl_h100", "Hopper"), ("nccl_b200", "Blackwell")):
        assert row_of(name).tuned_nvls_share == float(found["nvlsEfficiency", key])
    assert estimate_us(row_of("nccl_h100"), "all_reduce", 8, 8_000_000, "simple", "nvls") == pytest.approx(
        25 + 8e6 * 14 / 8 / (370.8e3 * 0.85 * 15 / 16 * 2)
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gpus": 9}, "gpus: found 9, allowed are 2 to 8, or 8 in each of 2 to 8 nodes"),
        ({"algorithm": "direct"}, "algorithm: found 'direct' for all_gather on nccl_a100, allowed is ring"),
        ({"algorithm": "nvls"}, "algorithm: found 'nvls' for all_gather on nccl_a100, allowed is ring"),
        ({"name": "nccl_h100", "algorithm": "nvls", "protocol": "ll"}, "protocol: found 'll' for nvls on nccl_h100"),
        ({"protocol": "lll"}, "protocol: found 'lll' for ring on nccl_a100; did you mean ll"),
        ({"name": "nccl_a10"}, "collective.library: found 'nccl_a10'; did you mean nccl_a100"),
    ],
)
def test_what_a_library_cannot_do_is_refused(given, said):
    with pytest.raises(UserError, match=re.escape(said)):
        choose(**{"name": "nccl_a100", "kind": "all_gather", "gpus": 4, "data_bytes": 4096} | given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "all_gathr"}, "collective: found 'all_gathr'; did you mean all_gather"),
        ({"gpus": 1}, "gpus: found 1, allowed are 2 and more"),
        ({"kind": "send_recv", "gpus": 4}, "gpus: found 4, allowed are 2"),
        ({"data_bytes": 0}, "bytes: found 0, allowed are 1 to"),
        (
            {"library": "rccl"},
            "library: found 'rccl', allowed are plain, nccl: a100_80g has collective.library = nccl_a100",
        ),
        (
            {"library": "plain", "channels": 2},
            "channels: found 2 with the library plain, which has no choice: leave",
        ),
        ({"library": "plain", "protocol": "ll"}, "protocol: found ll with the library plain"),
    ],
)
def test_impossible_questions_are_refused(given, said):
    asked = {"preset": load_preset("a100_80g"), "kind": "all_gather", "gpus": 2, "data_bytes": 4096}
    with pytest.raises(UserError, match=re.escape(said)):
        Collective(**asked | given)


@pytest.mark.parametrize("channels", [0, 109])
def test_a_channel_needs_a_cu(channels):
    choice = choose("nccl_a100", "all_gather", 2, 4096)
    with pytest.raises(UserError, match=f"channels: found {channels}, allowed are 1 to 108"):
        library_preset(load_preset("a100_80g"), type(choice)(choice.row, "ring", "ll", channels))


def test_values_that_the_user_sets_stay():
    changed = load_preset("a100_80g", ["link.efficiency=0.5"])
    found = library_preset(changed, choose("nccl_a100", "all_gather", 2, 4096))
    assert found.machine.link.efficiency == 0.5 and found.sources["link.efficiency"].kind == "override"
    assert found.machine.link.GB_per_s == 300 and "library.toml" in found.sources["link.GB_per_s"].source


@pytest.mark.parametrize(("gpus", "channels"), [(4, 32), (24, 24), (32, 32), (33, 32), (64, 32)])
def test_messages_share_channels_if_there_are_more(gpus, channels):
    assert choose("nccl_h100", "all_to_all", gpus, 1 << 28, node_gpus=gpus).channels == channels


@pytest.mark.parametrize("size", [1, 512, 100_000, 1 << 20, 5_000_001])
@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_a_buffer_is_padded_to_equal_chunks_of_whole_lines(size, gpus):
    tiles = flat_buffer(*buffer_shape(size, gpus, 24))
    padded = int((tiles["runs"] * tiles["run_bytes"]).sum())
    assert size <= padded and len(tiles) % gpus == 0
    assert padded - size <= gpus * int(tiles["runs"][0]) * 128
    assert (tiles["address"][1:] - tiles["address"][:-1] == tiles["runs"][0] * 128).all()


def test_each_round_does_all_steps_slice_by_slice():
    steps = [Step(range(10 * k, 10 * k + 8), (0,), k, gates=tuple(range(8))) for k in range(3)]

    places = [(step.write, *step.gates) for step in in_rounds(steps, Pieces(2, 2))]
    first = [(k, *gates) for k in range(3) for gates in ((0, 1), (2, 3))]
    second = [(k, *gates) for k in range(3) for gates in ((4, 5), (6, 7))]
    assert places == first + second
    assert [step.gates for step in in_rounds([Step(range(4), (0,), 1)], Pieces(1, 2))] == [(), ()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "read", "written", "sent"),
    [
        ("reduce_scatter", 7 / 4, 1, 3 / 4),
        ("all_gather", 1, 7 / 4, 3 / 4),
        ("all_reduce", 10 / 4, 10 / 4, 6 / 4),
        ("all_to_all", 7 / 4, 7 / 4, 3 / 4),
    ],
)
def test_staged_buffers_read_and_write_what_the_plan_says(kind, read, written, sent):
    size = 4 * 24 * 1024
    for pulls in (True, False):
        found = simulated(kind, 4, size, f"collective.pulls={str(pulls).lower()}", protocol="simple")
        assert found.exactly_once and found.padded_bytes == size
        slices = 1 if kind == "all_to_all" else 2
        tiles = slices * (found.channels // 4 if kind == "all_to_all" else found.channels)  # of each chunk
        flags_bytes = SECTOR_BYTES * tiles * round(4 * sent) if pulls else 0
        assert (found.dram_read_bytes, found.dram_write_bytes) == (read * size, written * size + flags_bytes)
        assert found.link_bytes == sent * size + flags_bytes


def test_an_all_reduce_of_rccl_moves_the_measured_bytes_of_memory():
    """Its buffers leave nothing in the memory-side cache: 0.03 % of the measured accesses hit it."""
    measured = next(row for row in read_csv(COUNTERS) if row["kernel"] == "RCCL")
    size = 8 * 56 * 1024
    found = simulate_collective(Collective(load_preset("mi300x"), "all_reduce", 8, size, protocol="simple"))
    assert found.exactly_once and found.padded_bytes == size
    for name in ("read", "write"):
        moved = getattr(found, f"dram_{name}_bytes") / size
        assert moved == 2.75 == pytest.approx(float(measured[f"{name}_bytes_per_payload_byte"]), rel=0.005)


@pytest.mark.parametrize(
    ("kind", "read", "written", "sent"),
    [("reduce_scatter", 1, 1 / 4, 1), ("all_gather", 1 / 4, 1, 1 / 4), ("all_reduce", 5 / 4, 5 / 4, 5 / 4)],
)
def test_nvls_moves_what_the_plan_says(kind, read, written, sent):
    size = 4 * 16 * 1024
    found = simulate_collective(Collective(load_preset("h100_sxm"), kind, 4, size, algorithm="nvls"))
    assert found.exactly_once and (found.padded_bytes, found.protocol) == (size, "simple")
    assert (found.dram_read_bytes, found.dram_write_bytes) == (read * size, written * size)
    assert found.link_bytes == sent * size


@pytest.mark.slow
def test_send_recv_sends_the_message_and_ll_sends_it_with_flags():
    found = simulated("send_recv", 2, 8192)
    assert found.protocol == "ll" and found.link_bytes == 2 * 8192 and found.exactly_once
    assert (found.dram_read_bytes, found.dram_write_bytes) == (2 * 8192, 2 * 8192)


def software_ps(machine, kind, data_bytes):
    """What a software time of 100 us for each step adds to a collective on two GPUs and four channels."""
    times_ps = []
    for step_us in (0, 100):
        choice = choose(f"nccl_{machine}", kind, 2, data_bytes, protocol="simple", channels=4)
        values = [f"collective.step_ps={step_us * 1_000_000}"]
        preset = library_preset(load_preset({"a100": "a100_80g", "h100": "h100_sxm"}[machine], values), choice)
        run = LibraryRun(preset=preset, kind=kind, gpus=2, data_bytes=data_bytes, choice=choice)
        times_ps.append(run.execute().time_ps)
    return times_ps[1] - times_ps[0]


@pytest.mark.parametrize(("kind", "steps"), [("all_gather", 2), ("reduce_scatter", 2), ("all_to_all", 2)])
def test_a_channel_does_nothing_else_in_the_time_of_the_software(kind, steps):
    """Each slice of the steps of a ring adds its share, also if its data came long before. A message is one slice: it
    is sent, then received."""
    assert software_ps("a100", kind, 1 << 20) == pytest.approx(steps * 100_000_000, rel=0.05)


def test_a_channel_receives_while_it_sends():
    """Four pieces one after the other; the last one is received behind them."""
    assert software_ps("h100", "all_to_all", 8 << 20) == pytest.approx(5 * 100_000_000, rel=0.05)


def test_receivers_load_from_an_a100_in_rings_and_messages_of_simple():
    for row, kind, data_bytes, pulls in (
        ("nccl_a100", "all_gather", 1 << 24, True),
        ("nccl_a100", "all_to_all", 1 << 24, True),
        ("nccl_a100", "send_recv", 1 << 24, True),
        ("nccl_a100", "all_to_all", 1 << 10, False),  # LL
        ("nccl_h100", "all_to_all", 1 << 24, False),
        ("nccl_v100", "all_gather", 1 << 24, False),
    ):
        assert choose(row, kind, 2, data_bytes).pulls == pulls, (row, kind, data_bytes)


def test_a_channel_has_one_workgroup_for_each_slice_of_each_step():
    """A buffer of 8 MiB on four GPUs: chunks of one round. A message has a quarter of the channels."""
    for kind, channels, protocol, workgroups in (
        ("all_gather", 6, "simple", 4 * 2 * 6),
        ("reduce_scatter", 6, "ll128", 4 * 6),
        ("all_to_all", 8, "simple", (3 + 3 + 1) * 2),
    ):
        choice = choose("nccl_a100", kind, 4, 1 << 23, protocol=protocol, channels=channels)
        preset = library_preset(load_preset("a100_80g"), choice)
        run = LibraryRun(preset=preset, kind=kind, gpus=4, data_bytes=1 << 23, choice=choice)
        launches = run.launches(run.plans()[0])
        pieces = run.pieces.rounds
        assert sum(launch.source.info.workgroups for launch in launches) == workgroups * pieces, (kind, pieces)


def test_the_line_goes_through_whole_rounds_where_one_gpu_stands_for_all():
    ring = choose("nccl_a100", "all_gather", 8, 1 << 28, protocol="simple")
    round_bytes = 8 * ring.channels * (2 << 20)
    assert ring.line_bytes(8, alike=True) == (round_bytes, 2 * round_bytes)
    assert ring.line_bytes(8, alike=False) == (8 * (4 << 20), 8 * (8 << 20))
    for kind, gpus in (("broadcast", 8), ("all_gather", 16)):
        asked = Collective(load_preset("a100_80g"), kind, gpus, 1 << 28, protocol="simple")
        assert list(asked.runs()) == [gpus * (4 << 20), gpus * (8 << 20)]
    ll = choose("nccl_a100", "all_gather", 2, 1 << 28, protocol="ll")  # rounds of 768 KiB
    short = ll.line_bytes(2, alike=True)
    assert short == (2 * 6 * 24 * 32768, 2 * 12 * 24 * 32768)


@pytest.mark.slow
def test_a_large_collective_lies_on_a_line_and_says_so():
    """A chunk is 16 times as large as the larger one that is simulated. Launch and hops are not in the slope."""
    few = {"protocol": "simple", "channels": 4}
    low, high = choose("nccl_a100", "all_gather", 2, 1 << 28, **few).line_bytes(2, alike=True)
    found, *at = (simulated("all_gather", 2, size, **few) for size in (16 * high, low, high))
    assert found.simulated_bytes == (low, high)
    slope = (at[1].time_ns - at[0].time_ns) / (high - low)
    assert found.time_ns == pytest.approx(at[1].time_ns + 15 * high * slope)
    assert found.dram_read_bytes == pytest.approx(16 * high, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all"])
def test_the_line_is_what_a_whole_simulation_takes(kind):
    asked = Collective(load_preset("a100_80g"), kind, 2, 32 << 20, protocol="simple", channels=2)
    line, whole = (simulate_collective(asked, whole=whole) for whole in (False, True))
    assert len(line.simulated_bytes) == 2 and whole.simulated_bytes == (32 << 20,)
    assert line.time_ns == pytest.approx(whole.time_ns, rel=0.03)
    assert line.dram_write_bytes == pytest.approx(whole.dram_write_bytes, rel=0.01)


def test_figures_beyond_the_line_grow_by_its_slope(monkeypatch):
    monkeypatch.setattr(Choice, "line_bytes", lambda *_, **__: (1 << 16, 1 << 17))
    given = {"preset": load_preset("a100_80g"), "kind": "all_gather", "gpus": 2, "protocol": "simple", "channels": 2}
    *ends, beyond = (Collective(data_bytes=k << 16, **given) for k in (1, 2, 8))
    results = {size: run.execute() for size, run in beyond.runs().items()}
    low, high = (result_of(one, one.runs(), {one.data_bytes: results[one.data_bytes]}) for one in ends)
    far = result_of(beyond, beyond.runs(), results)
    assert (high.simulated_bytes, far.simulated_bytes) == ((1 << 17,), (1 << 16, 1 << 17))
    for name in ("time_ns", "link_bytes", "dram_read_bytes", "dram_write_bytes"):
        at_low, at_high = getattr(low, name), getattr(high, name)
        assert getattr(far, name) == pytest.approx(at_high + 6 * (at_high - at_low), rel=1e-9), name


@pytest.mark.slow
def test_a_library_is_not_the_plain_plan():
    plain, library = (simulated("all_reduce", 2, 65536, library=name) for name in ("plain", "nccl"))
    assert (plain.library, plain.algorithm, plain.protocol) == ("plain", "ring", "plain")
    assert plain.exactly_once and plain.time_ns != library.time_ns and library.protocol == "ll"
    assert set(KINDS) == {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv", "broadcast"}
