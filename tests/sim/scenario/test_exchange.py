"""An exchange of a schedule as a run: its buffer, its time and its traffic."""

from dataclasses import replace
from itertools import pairwise

import pytest

from sim.presets import load_preset
from sim.scenario import exchange
from sim.scenario.collective import Collective, simulate_collective
from sim.scenario.exchange import LINE_ERROR, buffer_of, exchange_run, launch_of, messages, simulated, together
from sim.scenario.model import ModelScenario
from sim.scenario.scheduled import work_figures
from tracer.models.catalogue import load_model
from tracer.models.deployment import Deployment, ModelPhase
from tracer.models.schedule import Exchange
from traces.errors import UserError


@pytest.mark.parametrize("gpus", [2, 3, 8])
@pytest.mark.parametrize("data_bytes", [1, 5000, 100_000, 1 << 20, 3 << 20])
def test_a_buffer_has_at_least_its_bytes_and_a_tile_for_each_gpu(gpus, data_bytes):
    source = buffer_of(data_bytes, gpus)
    assert source.tiles >= gpus
    assert data_bytes <= source.problem.output_bytes <= max(1.25 * data_bytes, data_bytes + gpus * 512)


@pytest.mark.parametrize(("gpus", "most"), [(8, 1 << 32), (6, (1 << 32) - (1 << 16))])
def test_a_buffer_of_a_plain_collective_has_so_many_bytes_at_most(gpus, most):
    assert buffer_of(most, gpus).problem.output_bytes == most
    with pytest.raises(UserError, match=f"bytes of a collective: found {most + 1}, allowed are 1 to {most} with plain"):
        buffer_of(most + 1, gpus)


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_larger_plain_collective_takes_longer_and_not_much_longer(gpus):
    """Its time rises with the size, and by less than the size, across all sizes of tiles."""
    preset = load_preset("t3_2024")
    sizes = [1 << shift for shift in range(10, 22)]
    times_ps = [exchange_run(preset, Exchange("all_reduce", size, gpus)).execute().time_ps for size in sizes]
    for smaller_ps, larger_ps in pairwise(times_ps):
        assert 0.99 * smaller_ps <= larger_ps <= 2 * smaller_ps
    link_ps = 2 * (gpus - 1) / gpus * sizes[-1] / 150e9 * 1e12
    assert link_ps < times_ps[-1] < 2 * link_ps


def test_an_all_to_all_moves_each_byte_once():
    preset = load_preset("t3_2024", ["link.topology=fully_connected"])
    result = exchange_run(preset, Exchange("all_to_all", 1 << 18, 4)).execute()
    assert result.exactly_once
    assert result.dram_bytes.tolist() == [0, 0, 1 << 18, 1 << 18]  # the own chunk is copied too
    assert result.link_bytes == 3 * (1 << 18) // 4


def test_a_send_moves_its_bytes_both_ways():
    result = exchange_run(load_preset("t3_2024"), Exchange("send_recv", 1 << 17, 2)).execute()
    assert result.exactly_once
    assert result.dram_bytes.tolist() == [0, 0, 1 << 17, 1 << 17]
    assert result.link_bytes == 1 << 17


def test_an_all_to_all_needs_a_link_between_all_gpus():
    with pytest.raises(UserError, match="topology ring of 4 GPUs: no link to the GPU 2 ahead"):
        exchange_run(load_preset("t3_2024"), Exchange("all_to_all", 1 << 18, 4)).execute()


@pytest.mark.parametrize(
    ("gpus", "stride", "near"),
    [(8, 1, 8), (16, 1, 8), (4, 8, 1), (8, 2, 4), (4, 3, 3), (2, 6, 2), (2, 8, 1), (3, 16, 1)],
)
def test_a_node_has_so_many_gpus_of_a_group(gpus, stride, near):
    """A node of an H100 has GPUs 0 to 7; the group has 0, stride, 2 stride, ..."""
    exchange = Exchange("all_reduce", 1 << 20, gpus, stride)
    assert together(load_preset("h100_sxm"), exchange) == near
    assert together(load_preset("h100_sxm", ["network.node_gpus=1"]), exchange) == 1
    assert together(load_preset("t3_2024"), exchange) == gpus


@pytest.mark.parametrize(
    ("name", "kind", "gpus", "stride", "error"),
    [
        ("h100_sxm", "all_reduce", 4, 8, 0.01),
        ("a100_80g", "all_gather", 8, 2, 0.08),
        ("mi300x", "all_reduce", 2, 8, 0.01),
    ],
)
def test_alike_links_stand_for_those_of_several_nodes(name, kind, gpus, stride, error):
    """One GPU represents all. The collective with every GPU simulated, on the same nodes, takes as long."""
    size, nodes = 1 << 18, f"network.node_gpus={8 // stride}"
    alike = exchange_run(load_preset(name), Exchange(kind, size, gpus, stride))
    every = simulate_collective(Collective(load_preset(name, [nodes]), kind, gpus, size, algorithm="ring"), whole=True)
    assert alike.simulated_gpus() == 1
    assert alike.execute().time_ps == pytest.approx(1000 * every.time_ns, rel=error)


@pytest.mark.parametrize(
    ("kind", "gpus", "stride", "far"),
    [
        ("send_recv", 2, 8, 1.0),
        ("all_to_all", 16, 1, 8 / 16),
        ("all_to_all", 4, 4, 2 / 4),
        ("all_to_all", 12, 1, 8 / 12),
    ],
)
def test_what_a_gpu_sends_to_other_nodes_passes_its_card(kind, gpus, stride, far):
    """50 GB/s and 2 us. far: share of the bytes that the GPU with most of them sends to other nodes."""
    size = 1 << 22
    result = exchange_run(load_preset("h100_sxm"), Exchange(kind, size, gpus, stride)).execute()
    assert result.exactly_once
    card_ps = 2_000_000 + far * size / 50e9 * 1e12
    assert card_ps + 10_000_000 < result.time_ps < card_ps + 20_000_000  # NCCL's software, as in a node


def test_a_group_over_nodes_is_slower_and_a_user_decides_its_card():
    def time_ps(stride, *overrides):
        return (
            exchange_run(load_preset("h100_sxm", overrides), Exchange("all_reduce", 1 << 22, 4, stride))
            .execute()
            .time_ps
        )

    near, far, slow = time_ps(1), time_ps(8), time_ps(8, "network.GB_per_s=5")
    assert 2 * near < far and 5 * far < slow


@pytest.mark.parametrize(
    ("kind", "gpus", "cards"), [("all_reduce", 16, 8), ("all_to_all", 16, 15 / 8), ("send_recv", 2, 1)]
)
def test_a_ring_has_the_cards_of_a_node_and_other_exchanges_one(kind, gpus, cards):
    """A card has 25 GB/s by the library's row, or what the user says. An all-to-all sends 8 of 15 parts over it."""
    exchange = Exchange(kind, 1 << 20, gpus, 8 if gpus == 2 else 1)
    presets = [load_preset("a100_80g", overrides) for overrides in ((), ("network.GB_per_s=5",))]
    rates = [exchange_run(preset, exchange).preset.machine.link.GB_per_s for preset in presets]
    assert rates == pytest.approx([25 * cards, 5 * cards])


def test_a_group_that_leaves_a_node_partly_empty_is_a_ring_too():
    """The node with fewest GPUs decides: its cards carry the ring. 8 MiB, by the library's own software."""
    runs = {gpus: exchange_run(load_preset("h100_sxm"), Exchange("all_reduce", 1 << 23, gpus)) for gpus in (9, 12, 16)}
    assert all(run.choice.algorithm == "ring" for run in runs.values())
    assert [run.preset.machine.link.GB_per_s for run in runs.values()] == [50, 200, pytest.approx(450)]
    nine, twelve, sixteen = (run.execute() for run in runs.values())
    assert nine.exactly_once and twelve.exactly_once
    assert nine.time_ps > 2 * 8 / 9 * (1 << 23) / 50e9 * 1e12 > sixteen.time_ps and nine.time_ps > twelve.time_ps


def test_a_machine_without_a_library_simulates_every_gpu_of_several_nodes():
    def result(node_gpus, stride):
        preset = load_preset("t3_2024", [f"network.node_gpus={node_gpus}"])
        return exchange_run(preset, Exchange("all_reduce", 1 << 16, 4, stride)).execute()

    found = result(4, 2)
    assert found.figures["simulated_gpus"] == 4 and found.time_ps == result(2, 1).time_ps > result(4, 1).time_ps


@pytest.mark.parametrize(
    ("name", "kind", "gpus", "stride", "size", "error"),
    [
        ("h100_sxm", "all_reduce", 32, 1, 1 << 22, 0.02),
        ("a100_80g", "all_reduce", 32, 1, 1 << 18, 0.02),  # the protocol of all GPUs: 16 of them would have another
        ("h100_sxm", "all_gather", 24, 2, 1 << 20, 0.02),
        ("h100_sxm", "all_to_all", 32, 1, 1 << 22, 0.18),
        ("t3_2024", "reduce_scatter", 32, 1, 1 << 20, 0.03),
    ],
)
def test_a_smaller_group_with_as_large_messages_stands_for_a_larger_one(
    name, kind, gpus, stride, size, error, monkeypatch
):
    """As if at most 16 GPUs could be simulated, beside all of them (D63)."""
    preset, asked = load_preset(name), Exchange(kind, size, gpus, stride)

    def time_ps():
        result = exchange_run(preset, asked).execute()
        launch_ps = launch_of(result)
        return float(launch_ps + (result.time_ps - launch_ps) * messages(preset, asked))

    assert simulated(preset, asked) == asked and messages(preset, asked) == 1
    whole_ps = time_ps()
    monkeypatch.setattr(exchange, "MAX_GPUS", 16)
    assert simulated(preset, asked).gpus == 16 and simulated(preset, asked).bytes == -(-size * 16 // gpus)
    assert time_ps() == pytest.approx(whole_ps, rel=error)


def test_figures_of_a_large_group_are_those_of_all_its_messages():
    """128 GPUs send 127 messages each, the 64 that are simulated 63. The launch is there once."""
    how = Deployment(phase=ModelPhase.TRAIN, dp=128, zero=1, sequence=64)
    scenario = ModelScenario(load_preset("h100_sxm"), load_model("bert-large"), how, 0.0, overlap=False)
    work = next(step.work for _, step in scenario.steps() if step.name == "new_weights")
    small = replace(work, bytes=128 << 10)
    (run,) = scenario.step_runs(small)
    result = run.execute()
    found = work_figures(scenario, small, {run.key: result})
    assert found.gaps_ps == launch_of(result) > 0
    assert found.time_ps - found.gaps_ps == pytest.approx(127 / 63 * (result.time_ps - found.gaps_ps))
    assert found.dram_bytes == pytest.approx(127 / 63 * int(result.dram_bytes.sum()), abs=1)


@pytest.mark.parametrize(("node_gpus", "gpus", "stands_in"), [(8, 512, 64), (6, 96, 60), (72, 144, 64)])
def test_the_smaller_group_has_whole_nodes(node_gpus, gpus, stands_in):
    preset = load_preset("h100_sxm", [f"network.node_gpus={node_gpus}"])
    run = exchange_run(preset, Exchange("all_gather", gpus << 10, gpus))
    assert run.gpus == stands_in and run.data_bytes == stands_in << 10
    assert run.choice.nodes == stands_in // min(node_gpus, 32) and run.plans()


@pytest.mark.parametrize(("gpus", "stands_in"), [(63, 63), (64, 63), (72, 63)])
def test_a_large_group_whose_switch_adds_has_the_whole_buffer(gpus, stands_in):
    """The switch is one of 64."""
    preset = load_preset("b200", ["network.node_gpus=72"])
    asked = Exchange("all_gather", 1 << 20, gpus)
    run = exchange_run(preset, asked)
    assert run.choice.algorithm == "nvls" and run.plans() and messages(preset, asked) == 1
    assert (run.gpus, run.data_bytes) == (stands_in, 1 << 20)


def test_fewer_gpus_take_as_long_if_the_switch_adds(monkeypatch):
    preset, asked = load_preset("b200", ["network.node_gpus=72"]), Exchange("all_gather", 1 << 20, 32)
    whole_ps = exchange_run(preset, asked).execute().time_ps
    monkeypatch.setattr(exchange, "MAX_GPUS", 16)
    run = exchange_run(preset, asked)
    assert run.gpus == 15 and run.execute().time_ps == pytest.approx(whole_ps, rel=0.02)


def test_the_largest_all_to_all_has_room_for_all_receive_buffers():
    """64 GPUs have 127 of them."""
    result = exchange_run(load_preset("h100_sxm"), Exchange("all_to_all", 1 << 16, 64)).execute()
    assert result.exactly_once and result.link_bytes >= 63 << 10


def test_a_group_has_a_largest_size():
    with pytest.raises(UserError, match="all_gather: found 1048577 GPUs, allowed are 2 to 1048576"):
        exchange_run(load_preset("h100_sxm"), Exchange("all_gather", 1 << 30, (1 << 20) + 1))


@pytest.mark.parametrize(("kind", "gpus", "dp"), [("reduce_scatter", 8, 8), ("all_gather", 16, 128)])
def test_a_long_exchange_goes_on_as_its_first_part(kind, gpus, dp, monkeypatch):
    """Of 128 MiB (of the GPUs that are simulated) from 64 and 32 MiB. With accuracy 0 all of it is simulated."""
    how = Deployment(phase=ModelPhase.TRAIN, dp=dp, zero=1, sequence=64)
    asked = Exchange(kind, 128 * dp // gpus << 20, dp)
    preset = load_preset("h100_sxm", ["network.node_gpus=8"])
    monkeypatch.setattr("sim.scenario.exchange.LONG_BYTES", 64 << 20)
    monkeypatch.setattr("sim.scenario.exchange.MAX_GPUS", 16)
    scenarios = [
        ModelScenario(preset, load_model("bert-large"), how, accuracy, overlap=False) for accuracy in (0.0, 0.01)
    ]
    runs = [scenario.step_runs(asked) for scenario in scenarios]
    assert [[run.data_bytes >> 20 for run in each] for each in runs] == [[128], [64, 32]]
    assert len({run.choice for each in runs for run in each}) == 1  # that of all bytes
    results = {run.key: run.execute() for each in runs for run in each}
    whole, line = (work_figures(scenario, asked, results) for scenario in scenarios)
    assert line.time_ps == pytest.approx(whole.time_ps, rel=0.03)  # so short ones are less even
    assert line.dram_bytes == pytest.approx(whole.dram_bytes, rel=1e-3)
    assert (whole.time_error, line.time_error) == (0.0, LINE_ERROR)
    assert line.gaps_ps == whole.gaps_ps == launch_of(results[runs[0][0].key])


def test_a_plain_exchange_has_the_buffer_that_is_asked_for():
    preset = load_preset("t3_2024")
    whole, part = (exchange_run(preset, Exchange("send_recv", 1 << 22, 2), size) for size in (0, 1 << 21))
    assert whole.source.problem.m == 4 * part.source.problem.m
