"""Fused attention beside measurements: the cases, their kernels, the page."""

from collections import Counter
from itertools import chain

import pytest

from sim.gemm_facts import gpu_facts
from tests.support.paths import ROOT
from tracer.kernels import make_kernels
from validation.against import attention
from validation.against.attention import MACHINES, TABLE, cases, errors, measured
from validation.csv_file import read_csv
from validation.errors import mean_errors


def words(*path):
    return " ".join(ROOT.joinpath(*path).read_text(encoding="utf-8").split())


def test_every_case_has_a_measurement_and_a_blind_time():
    assert [case.id for case in cases()] == list(measured()) and len(cases()) == 114
    assert all(case.blind_us > 0 and case.today_us > 0 for case in cases())
    assert len({case.id for case in cases()}) == 114


def test_the_page_is_made_of_predictions_and_measurements():
    assert TABLE.read_text(encoding="utf-8") == attention.table()


def test_rates_and_times_of_a_measurement_agree():
    """4 operations for each query, key and element of a head; with causality half, backward 2.5 times as many."""
    for case in cases():
        fields = dict(field.split("=") for field in case.kernel.partition(":")[2].split(","))
        sizes = [int(fields[name]) for name in ("batch", "heads", "seq", "head_dim")]
        queries = int(fields.get("queries", fields["seq"]))
        half = fields["causal"] == "true" and "queries" not in fields
        flop = 4 * queries * sizes[0] * sizes[1] * sizes[2] * sizes[3] / (2 if half else 1)
        flop *= 2.5 if case.direction == "backward" else 1
        found = measured()[case.id]
        assert flop / found.time_us / 1e6 == pytest.approx(found.tera_flop_per_s, rel=2e-3)


def test_software_has_its_version():
    versions = {
        row["software"].split(" ")[1]: {
            kernel.shape.version
            for kernel in make_kernels(case.kernel, gpu_facts(case.preset.machine))
            if hasattr(kernel, "shape")
        }
        for case, row in zip(cases(), read_csv(attention.REFERENCE), strict=True)
        if row["software"].startswith("FlashAttention") and case.gpu not in attention.HOPPER
    }
    assert versions == {"2": {2}, "4": {4}}


def test_words_say_what_the_page_says():
    """Forward and backward, Hopper and Blackwell."""
    means = {
        (direction, hopper, today): mean_errors(errors(direction, hopper, "", today))[0] * 100
        for direction in ("forward", "backward")
        for hopper in (True, False)
        for today in (False, True)
    }
    shares = [
        [f"{means[direction, hopper, today]:.0f}" for hopper in (True, False)]
        for today in (False, True)
        for direction in ("forward", "backward")
    ]
    said = (
        "blind: {} and {} % forward, {} and {} % backward in the mean. "
        "Today, with the times in view: {} and {} % forward, {} and {} % backward"
    )
    assert said.format(*chain(*shares)) in words("docs", "trust.md")
    notes = words("validation", "against", "attention_notes.md")
    assert f"{means['forward', False, True]:.1f} % forward and {means['backward', False, True]:.1f} % backward" in notes
    hopper = "**Hopper, forward**: {:.1f} % (", "**Hopper, backward**: {:.1f} % too fast ("
    assert hopper[0].format(means["forward", True, True]) in notes
    assert hopper[1].format(means["backward", True, True]) in notes
    others = mean_errors(errors("forward", True, "FlashAttention 3", today=True))[0]
    assert f"the other 21 of FlashAttention 3 are {others:.1%} off".replace("%", " %") in notes


def test_times_of_products_and_softmax_in_the_notes():
    """Of FlashAttention 3 on an H100 with 16,384 tokens, without causality."""
    found = {}
    for case in cases():
        if "seq=16384" in case.kernel and "causal=false,stats" in case.kernel and case.gpu == "H100 at 1830 MHz":
            (kernel,) = make_kernels(case.kernel, gpu_facts(case.preset.machine))
            shape, (queries, keys) = kernel.shape, kernel.tiles
            tiles = kernel.info.workgroups * -(-shape.keys // keys) / 132
            products_us = tiles * 2 * queries * keys * shape.head_dim / 2048 / 1830
            softmax_us = tiles * queries * (13 * keys + shape.head_dim) / 128 / 1830
            measured_us = measured()[case.id].time_us
            found[shape.head_dim] = (products_us, softmax_us, measured_us, (measured_us - products_us) / softmax_us)
    for head_dim, (*times, share) in found.items():
        row = f"| {head_dim} | " + " | ".join(f"{time_us:,.0f}" for time_us in times) + f" | {share:.2f} |"
        assert row in attention.NOTES.read_text(encoding="utf-8")
    assert set(found) == {64, 128, 256}


def test_machines_and_kinds():
    assert {case.gpu for case in cases()} == set(MACHINES)
    kinds = Counter((case.direction, case.gpu in attention.HOPPER) for case in cases())
    assert sum(kinds.values()) == 114
    for (direction, hopper), number in kinds.items():
        calibrates = direction == "forward" and hopper
        assert len(errors(direction, hopper, "", today=True)) == number - calibrates
        assert len(errors(direction, hopper, "", today=False)) == number
    (one,) = [case for case in cases() if case.id == attention.CALIBRATES]
    assert one.today_us == pytest.approx(measured()[one.id].time_us, rel=0.002), "the share of D66 is from this call"
