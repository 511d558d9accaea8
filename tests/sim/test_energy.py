"""Energy of a run: every event counted once, its figure written out; presets whole, sourced, with a spread."""

import pytest

from sim.counters import COUNTERS
from sim.energy import EVENTS, FOLDER, energy_of, energy_presets, load_energy
from tests.support.result_samples import sample_results
from traces.errors import UserError

TEXT = (FOLDER / "hbm2_12nm.toml").read_text(encoding="utf-8")


def no_events(*units):
    """Of one GPU by itself, without bulk copies: it counts nothing of links. units: that it has further."""
    counters = (counter for event in EVENTS.values() for counter in event.counters)
    return {counter: 0 for counter in counters if counter.split(".")[0] in ("hbm", "l2", "l1", "noc", "cu", *units)}


def pJ_of(counts, row_bytes=1024, energies="hbm2_12nm"):
    counted = no_events(*(counter.split(".")[0] for counter in counts)) | counts
    return sum(part.pJ for part in energy_of(counted, row_bytes, load_energy(energies)).parts)


@pytest.mark.parametrize("counter", sorted({counter for event in EVENTS.values() for counter in event.counters}))
def test_events_are_counters_of_the_machine(counter):
    unit, name = counter.split(".")
    assert name in COUNTERS[unit]


@pytest.mark.parametrize(
    ("counter", "pJ"),
    [
        ("hbm.acts", 909.0),
        ("hbm.read_columns", 891.0),
        ("hbm.write_columns", 891.0),
        ("hbm.update_columns", 1284.0),
        ("hbm.refreshes", 60840.0),
        ("l2.read_sectors", 1620.0),
        ("l2.read_miss_sectors", 1620.0),
        ("l2.flush_sectors", 1620.0),
        ("l2.write_sectors", 1620.0),
        ("l2.atomic_sectors", 1620.0),
        ("l2.atomic_miss_sectors", 1620.0),
        ("l2.writeback_sectors", 1620.0),
        ("l1.read_sectors", 749.0),
        ("l1.write_sectors", 749.0),
        ("cu.shared_bytes", 21.3),
        ("copies.copy_miss_sectors", 2 * 1620.0),
        ("bulk.read_sectors", 749.0),
        ("bulk.write_sectors", 749.0),
        ("bulk.sent_sectors", 749.0),
        ("noc.request_bytes", 11.2),
        ("noc.cu_bytes", 11.2),
        ("peers.packet_bytes", 11.2),
        ("peers.answer_bytes", 11.2),
        ("link.bytes", 80.0),
        ("dma.read_bytes", 4.0),
        ("cu.tensor_macs", 0.86),
    ],
)
def test_one_event_costs_its_figure(counter, pJ):
    assert pJ_of({counter: 1}) == pytest.approx(pJ)
    assert pJ_of({counter: 7}) == pytest.approx(7 * pJ)


def test_a_longer_row_costs_more_to_activate():
    assert pJ_of({"hbm.acts": 1}, row_bytes=2048) == pytest.approx(2 * 909.0)


def test_waiting_costs_nothing():
    """D27."""
    assert pJ_of({"cu.slot_stall_ps": 10**12, "hbm.bus_busy_ps": 10**9, "l2.blocked_ps": 10**12}) == 0


def test_published_dram_figures_follow_from_their_parts():
    """MICRO 2017, Table 3, and the currents of DRAMsim3 (mA x V x ns = pJ; two clocks move 64 bytes)."""
    figures = load_energy("hbm2_12nm").figures
    assert figures["dram.read_pJ"].value == pytest.approx(256 * (1.51 + 1.17 + 0.80), rel=1e-3)
    assert figures["dram.read_pJ"].low == pytest.approx(1.2 * (390 - 55) * 2 / 2, rel=1e-3)
    assert figures["dram.write_pJ"].low == pytest.approx(1.2 * (500 - 55) * 2 / 2, rel=1e-3)
    assert figures["dram.activate_pJ_per_KiB"].low == pytest.approx(1.2 * (65 * 48 - 55 * 34 - 40 * 14), rel=1e-3)
    assert figures["dram.refresh_pJ"].value == pytest.approx(1.2 * (250 - 55) * 260, rel=1e-3)
    written = figures["dram.write_pJ"].value
    assert figures["dram.update_pJ"].value == pytest.approx(written + 256 * 1.51 + 16 * 0.4, rel=1e-3)


def test_sums_by_unit_and_per_byte():
    results = sample_results()
    energy = energy_of(results.totals, 2048, load_energy())
    found = energy.as_dict()
    for key in ("uJ", "low_uJ", "high_uJ"):
        assert found[key] == pytest.approx(sum(unit[key] for unit in found["units"].values()))
    assert found["low_uJ"] < found["uJ"] < found["high_uJ"]
    assert sum(unit["share"] for unit in found["units"].values()) == pytest.approx(1)
    columns = sum(results.totals[f"hbm.{kind}_columns"] for kind in ("read", "write", "update"))
    assert energy.dram_bytes == found["units"]["dram"]["bytes"] == 32 * columns
    assert found["pJ_per_dram_byte"] == pytest.approx(found["uJ"] * 1e6 / (32 * columns))
    assert found["units"]["noc"]["pJ_per_byte"] == pytest.approx(11.2)
    assert found["units"]["mac"]["pJ_per_byte"] is None


@pytest.mark.parametrize("name", energy_presets())
def test_presets_are_whole(name):
    preset = load_energy(name)
    assert list(preset.figures) == list(EVENTS)
    for field, figure in preset.figures.items():
        assert figure.low <= figure.value <= figure.high, field
        assert len(figure.source) > 10, field


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[mac]", "[mac", "not a TOML file"),
        ("op_pJ", "opp_pJ", "mac.opp_pJ: unknown field"),
        ("[mac]", "kind = 3\n[mac]", "unknown field"),
        ("value = 0.86, ", "", "mac.op_pJ"),
        ("value = 0.86", "value = 9.0", "low 0.43, value 9.0, high 2.1"),
        ("value = 0.86", 'value = "much"', "mac.op_pJ"),
        ('high = 2.1, kind = "assumed"', 'high = 2.1, kind = "guessed"', "found 'guessed'"),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, words):
    assert old in TEXT
    path = tmp_path / "own.toml"
    path.write_text(TEXT.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=r"own\.toml") as caught:
        load_energy(path)
    assert words in str(caught.value)


def test_a_missing_figure_and_an_unknown_name(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(TEXT.partition("[mac]")[0], encoding="utf-8")
    with pytest.raises(UserError, match=r"mac\.op_pJ: missing"):
        load_energy(path)
    with pytest.raises(UserError, match="gpujoule_k40, hbm2_12nm"):
        load_energy("hbm5")
