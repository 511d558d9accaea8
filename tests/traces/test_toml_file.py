"""TOML files with a byte-order mark are read by every door."""

import pytest

from sim.energy import DEFAULT, FOLDER, load_energy
from sim.presets import load_preset
from sim.study.study import load_study
from traces.errors import UserError
from traces.toml_file import read_toml

MARK = b"\xef\xbb\xbf"


def test_a_byte_order_mark_is_skipped(tmp_path):
    machine, energies, study = (tmp_path / f"{name}.toml" for name in ("machine", "energies", "study"))
    machine.write_bytes(MARK + b'extends = "v100"\r\ntitle = "mine"\r\n')
    assert load_preset(machine).title == "mine"
    energies.write_bytes(MARK + (FOLDER / f"{DEFAULT}.toml").read_bytes())
    assert load_energy(energies).title == load_energy(DEFAULT).title
    study.write_bytes(MARK + b'kernel = "chase:buffer_bytes=65536,loads=50"\r\n')
    assert len(load_study(study).points) == 1


INTEGER, DEPTH = "found an integer of more than 4300 digits", "found values nested too deep"
ODD = {"9" * 5000: INTEGER, "0x" + "f" * 5000: INTEGER, "[" * 3000: DEPTH, "{a = " * 3000: DEPTH}
"""Value -> what the message says. Python refuses to read or to print it."""


@pytest.mark.parametrize(("value", "words"), ODD.items(), ids=["integer", "hexadecimal", "lists", "tables"])
def test_values_that_no_message_could_show_are_refused_by_every_door(value, words, tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text(f"l2.bytes = {value}\n")
    doors = {load_preset: path, load_study: path, lambda text: load_preset("v100", [text]): f"l2.bytes={value}"}
    for door, given in doors.items():
        with pytest.raises(UserError, match=rf"(odd\.toml|--set l2\.bytes): {words}, allowed are "):
            door(given)


@pytest.mark.parametrize("content", [b"[cu\n", b"\xff", MARK + MARK])
def test_the_message_names_the_file(tmp_path, content):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.toml: not a TOML file: "):
        read_toml(path)
