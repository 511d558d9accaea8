"""`t3sim collective`: its figures as a table and as JSON, padding and lines said so, and mistakes."""

import json
from dataclasses import asdict

import pytest
from click.testing import CliRunner

import t3sim
from sim.collective.library import choice_on
from sim.presets import load_preset
from sim.verbs.collective import collective
from traces.errors import UserError


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))


def called(text):
    return CliRunner().invoke(collective, text.split())


@pytest.mark.slow
def test_json_is_what_python_gets():
    done = called("all_gather --gpus 2 --bytes 8192 --json")
    found = t3sim.collective("all_gather", gpus=2, bytes=8192)
    assert json.loads(done.stdout) == asdict(found) | {"simulated_bytes": [8192]}
    assert (found.algorithm, found.protocol, found.channels) == ("ring", "ll", 2)
    assert found.bus_GBps == pytest.approx(0.5 * 8192 / found.time_ns)


@pytest.mark.slow
def test_csv_has_one_number_for_each_simulated_size():
    done = called("send_recv --gpus 2 --bytes 8192 --format csv")
    assert "\nsimulated_bytes,8192\n" in done.stdout and "(" not in done.stdout


@pytest.mark.slow
def test_padding_is_said():
    done = called("all_to_all --gpus 3 --bytes 1000 --channels 4")
    assert "padded from 1000 to 1152 bytes: equal chunks" in done.stdout and "all_to_all on 3 GPUs" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("all_gathr --gpus 2 --bytes 1", "did you mean all_gather"),
        ("all_gather --gpus 2 --bytes 1 --library ncl", "did you mean nccl"),
        ("all_gather --gpus 2 --bytes 1 --protocol ll12", "did you mean ll128"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(text, said):
    done = called(text)
    assert done.exit_code == 2 and said in done.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("all_gather --gpus 2 --bytes 0", "bytes: found 0"),
        ("all_gather --gpus 12 --bytes 64", "gpus: found 12, allowed are 2 to 8, or 8 in each of 2 to 8 nodes"),
        ("all_gather --gpus 2 --bytes 64 --channels 500", "channels: found 500, allowed are 1 to 108"),
        ("all_gather --gpus 2 --bytes 64 --preset t3_2024 --library nccl", "t3_2024 has collective.library = plain"),
        (
            "broadcast --gpus 2 --bytes 64 --preset t3_2024",
            "found broadcast with the library plain, allowed are",
        ),
    ],
)
def test_mistakes_are_one_sentence(text, said):
    done = called(text)
    assert isinstance(done.exception, UserError) and said in str(done.exception)


@pytest.mark.parametrize(
    ("changes", "algorithm"),
    [((), "nvls"), (("link.in_switch=false",), "ring"), (("link.topology=fully_connected",), "ring")],
)
def test_without_a_switch_that_adds_the_library_has_rings(changes, algorithm):
    machine = load_preset("h100_sxm", changes).machine
    assert choice_on(machine, "all_reduce", 8, 1 << 22).algorithm == algorithm
    assert choice_on(machine, "all_reduce", 8, 1 << 22, algorithm="nvls").algorithm == "nvls"  # asked for
