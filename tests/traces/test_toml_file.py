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


@pytest.mark.parametrize("content", [b"[cu\n", b"\xff", MARK + MARK])
def test_the_message_names_the_file(tmp_path, content):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.toml: not a TOML file: "):
        read_toml(path)
