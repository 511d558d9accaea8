"""Damaged binaries: a UserError with the file's name or a list of kernels, never anything else."""

import random
from pathlib import Path

import pytest

from tests.support.elf_listing import describe_elf
from tracer.elf.image import Image
from tracer.elf.line_table import line_table
from traces.errors import UserError

BINARIES = Path(__file__).parent / "binaries"
FILES = sorted(p.name for p in BINARIES.iterdir() if p.suffix in (".cubin", ".o", ".so", ".co", ".fatbin"))
FLIPS = 100
RANGES = 30


def survives(data, path):
    """Whether the description came through; any exception but a UserError that names the file fails the test."""
    path.write_bytes(data)
    try:
        described = describe_elf(path)
    except UserError as error:
        assert path.name in str(error)
        assert "\n" not in str(error)
        return False
    assert isinstance(described, list)
    return True


@pytest.mark.slow
def test_truncated_at_every_offset(tmp_path):
    """The section table of a cubin lies at the end but for the program headers, so nearly every cut is an error."""
    data = (BINARIES / "wide_sm90.cubin").read_bytes()
    path = tmp_path / "cut.cubin"
    outcomes = [survives(data[:size], path) for size in range(len(data))]
    assert not any(outcomes[: len(data) // 2])


def test_a_truncated_fat_binary_is_never_taken_for_a_shorter_one(tmp_path):
    data = (BINARIES / "wide.fatbin").read_bytes()
    for size in (*range(200), *range(200, len(data), 61), len(data) - 1):
        assert not survives(data[:size], tmp_path / "cut.fatbin")


@pytest.mark.parametrize("file", FILES)
def test_truncated_at_many_offsets(file, tmp_path):
    data = (BINARIES / file).read_bytes()
    for size in range(0, len(data), max(1, len(data) // 150)):
        survives(data[:size], tmp_path / file)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_flipped_bits(file, tmp_path):
    data = (BINARIES / file).read_bytes()
    chance = random.Random(file)
    for _ in range(FLIPS):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        survives(bytes(damaged), tmp_path / file)


@pytest.mark.parametrize("file", FILES)
def test_overwritten_ranges(file, tmp_path):
    data = (BINARIES / file).read_bytes()
    chance = random.Random(file)
    for _ in range(RANGES):
        damaged = bytearray(data)
        start, size = chance.randrange(len(data)), chance.randrange(1, 65)
        damaged[start : start + size] = chance.randbytes(len(damaged[start : start + size]))
        survives(bytes(damaged), tmp_path / file)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["lines_sm90.cubin", "kernels_sm70.cubin", "kernels_gfx942.co"])
def test_damaged_line_program(file, tmp_path):
    """Every byte of the line program is overwritten once."""
    data = (BINARIES / file).read_bytes()
    section = Image(data, file).section(".debug_line").data
    start = data.index(section)
    path = tmp_path / file
    chance = random.Random(file)
    for at in range(start, start + len(section)):
        damaged = bytearray(data)
        damaged[at] ^= chance.randrange(1, 256)
        path.write_bytes(damaged)
        try:
            line_table(path, "promised")
        except UserError as error:
            assert path.name in str(error)
            assert "\n" not in str(error)
