"""`t3sim elf info` and `t3sim trace info --by-line`, as a user calls them."""

import json
from pathlib import Path

import pytest

from tests.support.one_kernel import OneKernel, Trace
from tests.support.schemas import check_other
from traces.archive import write_archive
from traces.command.cli import DONE, MISTAKE, main

BINARIES = Path(__file__).parents[2] / "tracer" / "elf" / "binaries"


@pytest.fixture
def archive(tmp_path):
    def write(*kernels):
        path = tmp_path / "trace.h5"
        write_archive(path, Trace(*kernels))
        return str(path)

    return write


def call(capsys, *arguments):
    """(status, stdout, stderr) of one command."""
    status = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_info_as_json(capsys):
    status, out, _ = call(capsys, "elf", "info", BINARIES / "host_zstd.o", "--json")
    found = json.loads(out)
    assert status == DONE
    check_other("elf_info", found)
    assert [image["architecture"] for image in found["images"]] == ["sm_75", "sm_90", "compute_90"]
    bounded = found["images"][1]["kernels"][1]
    assert (bounded["name"], bounded["registers"], bounded["shared_static_bytes"]) == ("bounded", 10, 1424)
    assert "occupancy" not in bounded


def test_info_with_a_machine(capsys):
    arguments = ("elf", "info", BINARIES / "kernels_sm70.cubin", "--preset", "v100")
    status, out, _ = call(capsys, *arguments, "--threads", 128, "--dynamic-shared", 40000, "--json")
    kernels = json.loads(out)["images"][0]["kernels"]
    assert status == DONE
    assert {kernel["occupancy"]["workgroups"] for kernel in kernels} == {2}
    assert {kernel["occupancy"]["limiter"] for kernel in kernels} == {"shared_bytes"}
    status, out, _ = call(capsys, *arguments)
    assert status == DONE
    assert "states no workgroup size" in out  # of the kernels without launch bounds
    assert "warps" in out


def test_mistakes_are_one_line(capsys, tmp_path):
    status, out, err = call(capsys, "elf", "info", tmp_path / "absent.cubin", "--json")
    assert (status, out, err.count("\n")) == (MISTAKE, "", 1)
    status, _, err = call(capsys, "elf", "info", __file__)
    assert status == MISTAKE
    assert "no ELF file" in err


@pytest.mark.parametrize("option", ["--threads", "--dynamic-shared"])
def test_what_is_for_a_machine_needs_one(option, capsys):
    status, out, err = call(capsys, "elf", "info", BINARIES / "kernels_sm70.cubin", option, 64)
    assert (status, out) == (MISTAKE, "") and "give --preset" in err


@pytest.mark.parametrize("attributes", [{"architecture": "sm_90"}, {}])
def test_traffic_by_line(capsys, archive, attributes):
    path = archive(OneKernel("promised", attributes), OneKernel("unknown", attributes))
    arguments = ("trace", "info", path, "--by-line", "--binary", BINARIES / "lines_sm90.cubin")
    status, out, _ = call(capsys, *arguments, "--json")
    first, second = json.loads(out)["kernels"]
    assert status == DONE
    assert [(line["file"], line["line"], line["stores"], line["store_sectors"]) for line in first["lines"]] == [
        ("/src/kernels.cu", 52, 2, 8),
        ("/src/kernels.cu", 53, 0, 0),
    ]
    assert (second["lines"], "no kernel unknown" in second["reason"]) == ([], True)
    status, out, _ = call(capsys, *arguments)
    assert status == DONE
    assert "/src/kernels.cu:52" in out
    assert "no kernel unknown" in out


def test_by_line_without_anything_to_say(capsys, archive):
    path = archive(OneKernel("promised", {"architecture": "sm_80"}))
    status, out, err = call(capsys, "trace", "info", path, "--by-line", "--binary", BINARIES / "lines_sm90.cubin")
    assert (status, out) == (MISTAKE, "")
    assert "no kernel promised for sm_80" in err
    status, _, err = call(capsys, "trace", "info", path, "--by-line")
    assert status == MISTAKE
    assert "--binary" in err
    status, _, err = call(capsys, "trace", "info", path, "--architecture", "sm_80")
    assert status == MISTAKE
    assert "--by-line" in err
