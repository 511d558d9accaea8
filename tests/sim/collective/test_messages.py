"""Messages to one GPU: how many channels the library gives them, and that all of them work."""

import pytest

from sim.collective.library import choose
from sim.presets import load_preset
from sim.run.library_preset import library_preset
from sim.run.library_run import LibraryRun
from sim.scenario.beside import kept_cus
from sim.scenario.collective import Collective, simulate_collective
from tracer.models.schedule import Exchange

KIB = 1024


@pytest.mark.parametrize(
    ("gpus", "message", "each"),
    [
        (2, 64 * KIB, 1),
        (2, 64 * KIB + 128, 2),  # divUp in addP2pToPlan
        (4, 96 * KIB, 2),
        (2, 1 << 30, 16),
        (3, 1 << 30, 8),  # 32 channels per peer are halved until they fit for all ranks
        (5, 1 << 30, 4),
        (7, 1 << 30, 4),
        (8, 1 << 30, 4),
    ],
)
def test_a_message_has_the_channels_that_nccl_gives_it(gpus, message, each):
    assert choose("nccl_a100", "all_to_all", gpus, gpus * message).channels == gpus * each


def test_a_message_between_two_gpus_has_no_channels_for_one_to_itself():
    """All its channels send: in an all-to-all of two GPUs the other half copies."""
    small = choose("nccl_a100", "send_recv", 2, 2 * 4 * KIB)
    assert (small.protocol, small.channels) == ("ll", 1)
    choice = choose("nccl_a100", "send_recv", 2, 2 << 20)
    assert choice.channels == 16
    preset = library_preset(load_preset("a100_80g"), choice)
    run = LibraryRun(preset=preset, kind="send_recv", gpus=2, data_bytes=2 << 20, choice=choice)
    launches = run.launches(run.plans()[0])
    assert [launch.cus for launch in launches] == [(0, 16)] * 2
    assert {launch.source.info.workgroups for launch in launches} == {16}
    assert kept_cus(preset, Exchange("send_recv", 1 << 20, 2)) == 16


def test_a_message_takes_as_long_as_the_same_part_of_an_all_to_all_with_half_of_the_launch():
    sent, both = (
        simulate_collective(Collective(load_preset("a100_80g"), kind, 2, data_bytes))
        for kind, data_bytes in (("send_recv", 1 << 20), ("all_to_all", 2 << 20))
    )
    assert both.channels == 2 * sent.channels == 32
    assert both.time_ns - sent.time_ns == pytest.approx(16 * 260, rel=0.15)


def test_bytes_on_links_have_the_header_that_the_user_sets():
    """LL sends 128 bytes of flags with each line, unless the user says otherwise."""
    machines = [load_preset("a100_80g", given) for given in ([], ["link.header_bytes=16"])]
    asked = [Collective(machine, "send_recv", 2, 4096) for machine in machines]
    assert [simulate_collective(each).link_bytes for each in asked] == [2 * 4096, 4096 // 128 * 144]


@pytest.mark.parametrize("machine", ["a100_80g", "t3_2024"])
def test_the_size_that_was_simulated_is_that_of_the_message(machine):
    found = simulate_collective(Collective(load_preset(machine), "send_recv", 2, 65536))
    assert found.simulated_bytes == (65536,) == (found.padded_bytes,)


def test_the_padded_size_on_a_line_is_that_of_the_run():
    """Two channels for messages of 2 MiB and half a byte: 16385 lines in four tiles of 4097."""
    found = simulate_collective(Collective(load_preset("a100_80g"), "all_to_all", 2, (4 << 20) + 1, channels=2))
    assert found.simulated_bytes == (2 << 20, 4 << 20) and found.padded_bytes == 2 * 4 * 4097 * 128


def test_a_large_message_lies_on_the_line_of_two_and_four_pieces_of_a_channel():
    asked = Collective(load_preset("a100_80g"), "send_recv", 2, 1 << 28)
    assert list(asked.runs()) == [2 * 16 * pieces * (512 * KIB) for pieces in (2, 4)]


def test_lines_of_a_collective_that_leave_l2_later_are_written():
    """A plain all-reduce on a ring: three chunks and the sum arrive, then three chunks."""
    preset = load_preset("t3_2024", ["collective.cache=allocate"])
    found = simulate_collective(Collective(preset, "all_reduce", 4, 65536))
    assert found.dram_write_bytes == 65536 + 3 * 65536 // 4
