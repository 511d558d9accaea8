"""Headings: links, MCA and GEMM kernel of a result, and where their values come from."""

import pytest

from sim.presets import borrowed, load_preset
from sim.results import ResultsArchive
from sim.scenario.scenario import Scenario
from sim.view.heading import gemm_text, links_text, measured_text, origins_text, run_heading, runs_heading
from tests.support.result_samples import sample_results
from tracer.gemm.source import GemmKernel
from tracer.workloads import aligned_problem
from traces.schema import Cache


def scenario_of(preset, **kernel):
    return Scenario(load_preset(*preset), aligned_problem(256, 256, 64), GemmKernel(**kernel), 2)


def test_links_and_mca_with_the_kinds_of_their_values():
    assert links_text(load_preset("t3_2024"), 4).splitlines() == [
        "link: ring, 150 GB/s each way, 500 ns (8 values: 5 assumed, 3 paper)",
        "MCA: thresholds 5, 10, 30 entries (8 values: 8 assumed)",
    ]
    other = load_preset("h200", ["link.GB_per_s=300", "link.topology=fully_connected", "hbm.arbiter=mca_fixed"])
    link, mca = links_text(other, 4).splitlines()
    assert (
        link
        == "link: fully connected, 300 GB/s each way, 500 ns (8 values: 3 borrowed, 2 override, 2 standard, 1 assumed)"
    )
    assert mca == "MCA: thresholds 10 entries (8 values: 8 borrowed)"


def test_a_link_whose_credits_hold_it_below_its_rate_says_so():
    fast = links_text(load_preset("t3_2024", ["link.GB_per_s=450"]), 4)
    assert fast.startswith("link: ring, 450 GB/s each way, at most 262 GB/s with 2,048 credits, 500 ns (8 values: ")
    enough = links_text(load_preset("t3_2024", ["link.GB_per_s=450", "link.credits=4096"]), 4)
    assert enough.startswith("link: ring, 450 GB/s each way, 500 ns ")


@pytest.mark.parametrize(("per_node", "nodes"), [(2, "nodes of 2 GPUs"), (1, "nodes of 1 GPU"), (4, None), (0, None)])
def test_the_network_is_named_where_not_all_gpus_are_in_one_node(per_node, nodes):
    lines = links_text(load_preset("t3_2024", [f"network.node_gpus={per_node}", "network.GB_per_s=25"]), 4).splitlines()
    words = f"network: {nodes}, 25 GB/s each way, 2 us (6 values: 4 assumed, 2 override)"
    assert lines[1:-1] == ([words] if nodes else [])


def test_the_kernel_of_a_gemm():
    described = scenario_of(["v100"], tile_m=64, warps_m=2, split_k=2, load_cache=Cache.BYPASS_L1).input()
    first, second = gemm_text(described).splitlines()
    assert first.startswith("GEMM kernel: tile 64 x 128 x 32, 2 x 2 warps, pipeline depth 2, copy ldg, epilogue direct")
    assert first.endswith("order row, split_k 2, load_cache bypass_l1")
    assert second == "    (17 of its 21 values are defaults, which are assumed)"


def test_assumed_and_borrowed_values():
    assert "borrowed" not in origins_text(load_preset("t3_2024"))
    words = origins_text(load_preset("h200"))
    count = len(borrowed(load_preset("h200")))
    assert f"values of h200 are assumed\n{count} more are borrowed from the machine of the T3 paper: " in words


def test_headings_of_runs():
    one, two = sample_results(), sample_results()
    assert run_heading(one) == []
    two.preset = load_preset("h200")
    two.input = scenario_of(["h200"]).input()
    assert [line.split()[0] for line in run_heading(two)] == ["link:", "MCA:", "GEMM"]
    two.input |= {"plan_sha256": "0" * 64}
    assert run_heading(two)[0].startswith("link: those of the plan, 450 GB/s each way")
    del two.input["plan_sha256"]
    three = sample_results()
    three.preset, three.input = load_preset("h200", ["link.topology=ring"]), two.input
    lines = runs_heading(ResultsArchive([one, two, three, one, two]))
    assert [line.split()[0] for line in lines[:4]] == ["link:", "MCA:", "GEMM", "link:"]
    assert len(lines) == 8 and " values of v100 are assumed" in lines[4] and " of h200 are assumed" in lines[5]
    assert lines[6:] == [measured_text(one.preset), measured_text(two.preset)]
