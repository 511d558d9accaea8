"""The same sources built now, where a compiler is installed, against what that compiler reports itself."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.elf_listing import kernel_resources
from tracer.elf.line_table import line_table

BINARIES = Path(__file__).parent / "binaries"
CLANG = shutil.which("clang-19") or shutil.which("clang")
NVCC = shutil.which("nvcc")


def build(command, folder):
    """What the compiler printed; skips where it cannot build for the target."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{Path(command[0]).name} cannot build this: {done.stderr.strip().splitlines()[0]}")
    return done.stderr + done.stdout


@pytest.mark.skipif(NVCC is None, reason="no nvcc on this machine")
@pytest.mark.parametrize("capability", [75, 80, 90, 100, 120])
def test_cubin_says_what_ptxas_says(capability, tmp_path):
    cubin = tmp_path / "kernels.cubin"
    source = str(BINARIES / "kernels.cu")
    report = build([NVCC, "-cubin", f"-arch=sm_{capability}", "-Xptxas", "-v", source, "-o", str(cubin)], tmp_path)
    expected = {}
    for name, rest in re.findall(r"Compiling entry function '(\w+)'.*?\n(.*?Used .*?)\n", report, re.DOTALL):
        stated = [
            re.search(pattern, rest)
            for pattern in (r"Used (\d+) reg", r"(\d+) barr", r"(\d+) bytes smem", r"(\d+) bytes stack")
        ]
        expected[name] = tuple(int(match[1]) if match else 0 for match in stated)
    assert expected
    found = {k.name: (k.registers, k.barriers, k.shared_variable_bytes, k.local_bytes) for k in kernel_resources(cubin)}
    assert found == expected


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc on this machine")
@pytest.mark.parametrize("mode", ["none", "size", "speed", "balance"])
def test_every_compression_of_a_host_object(mode, tmp_path):
    host = tmp_path / "host.o"
    architectures = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90"]
    options = [f"--compress-mode={mode}", "-Xfatbin=-compress-all"]
    build([NVCC, "-c", *options, *architectures, str(BINARIES / "kernels.cu"), "-o", str(host)], tmp_path)
    found = kernel_resources(host)
    assert sorted({kernel.architecture for kernel in found}) == ["sm_80", "sm_90"]
    assert len(found) == 8


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc on this machine")
def test_host_executable(tmp_path):
    program, binary = tmp_path / "main.cu", tmp_path / "main"
    program.write_text("__global__ void one(float *data) { *data = 1; }\nint main() { one<<<1, 1>>>(nullptr); }\n")
    build([NVCC, "-arch=sm_80", str(program), "-o", str(binary)], tmp_path)
    assert [(k.plain_name, k.architecture, k.parameters) for k in kernel_resources(binary)] == [
        ("one", "sm_80", ((0, 8),))
    ]


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc on this machine")
def test_line_table_of_a_fresh_cubin_names_the_stores(tmp_path):
    cubin = tmp_path / "kernels.cubin"
    source = BINARIES / "kernels.cu"
    build([NVCC, "-cubin", "-arch=sm_80", "-lineinfo", str(source), "-o", str(cubin)], tmp_path)
    store = source.read_text().splitlines().index("    data[threadIdx.x] = 0.0f;") + 1
    rows = line_table(cubin, "promised").rows()
    assert store in {line for _, file, line in rows if file.endswith("kernels.cu")}


@pytest.mark.skipif(CLANG is None, reason="no clang on this machine")
@pytest.mark.parametrize("machine", ["gfx90a", "gfx942"])
def test_code_object_says_what_clang_says(machine, tmp_path):
    target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={machine}", "-nogpulib", "-O2", "-gline-tables-only"]
    remarks = "-Rpass-analysis=kernel-resource-usage"
    built = tmp_path / "kernels.co"
    source = str(BINARIES / "kernels.cl")
    report = build([CLANG, "-x", "cl", "-cl-std=CL2.0", *target, remarks, source, "-o", str(built)], tmp_path)
    expected = {}
    for part in report.split("Function Name: ")[1:]:
        vector, accumulation, scratch, lds = (
            int(re.search(rf"{label}: (\d+)", part)[1])
            for label in (" VGPRs", "AGPRs", r"ScratchSize \[bytes/lane\]", r"LDS Size \[bytes/block\]")
        )
        # the unified file holds accumulation registers from the next multiple of four on
        registers = (vector + 3) // 4 * 4 + accumulation if accumulation else vector
        expected[part.split()[0]] = (registers, accumulation, scratch, lds)
    if not expected:
        pytest.skip("this clang does not report resource usage (LLVM 15 and newer do)")
    found = kernel_resources(built)
    assert {k.name: (k.registers, k.agprs, k.local_bytes, k.shared_static_bytes) for k in found} == expected
    assert {k.architecture for k in found} == {machine}
    assert line_table(built, "scale").rows()[0][2] > 0
