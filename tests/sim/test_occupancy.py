"""Occupancy against the vendors' own calculators and one measured example (validation/references/occupancy.csv)."""

import csv
import random
import shutil
import subprocess

import pytest
from msgspec.structs import replace

from sim.occupancy import kernel_occupancy, occupancy
from sim.presets.load import load_preset, presets
from tests.support.elf_listing import kernel_resources
from tests.support.paths import ROOT
from traces.errors import UserError

TABLE = ROOT / "validation" / "references" / "occupancy.csv"
BINARIES = ROOT / "tests" / "tracer" / "elf" / "binaries"
V100 = load_preset("v100").machine.cu

# CUDA programming guide, "Technical Specifications per Compute Capability"; barriers from cuda_occupancy.h, which
# counts them from 9.0 on (16 per block before)
AMPERE = {"shared_granule_bytes": 128, "shared_reserved_bytes": 1024}
SMALL_AMPERE = {**AMPERE, "warps": 48, "threads": 1536, "shared_bytes": 100 << 10}
# "AMD Instinct MI200 / MI300 ISA" and LLVM's AMDGPU user guide: four SIMDs, 512 vector registers per lane in granules
# of 8, 800 scalar registers, LDS granules of 128 dwords, 16 barriers
CDNA2 = {
    "lanes_per_warp": 64,
    "warps": 32,
    "workgroups": 32,
    "registers_bytes": 512 << 10,
    "register_granule": 8,
    "scalar_registers": 800,
    "shared_bytes": 64 << 10,
    "shared_granule_bytes": 512,
    "barriers": 16,
}
MACHINES = {
    "cc7.0": V100,
    "cc7.5": replace(V100, warps=32, threads=1024, workgroups=16, shared_bytes=64 << 10, barriers=256),
    "cc8.0": replace(V100, **AMPERE, shared_bytes=164 << 10),
    "cc8.6": replace(V100, **SMALL_AMPERE, workgroups=16, barriers=256),
    "cc8.9": replace(V100, **SMALL_AMPERE, workgroups=24, barriers=384),
    "cc9.0": replace(V100, **AMPERE, shared_bytes=228 << 10, barriers=64),
    # LLVM lets ten wavefronts share a SIMD of gfx908, whose accumulation registers have a file of their own
    "gfx908": replace(
        V100, **{**CDNA2, "warps": 40, "threads": 2560, "registers_bytes": 256 << 10, "register_granule": 4}
    ),
    "gfx90a": replace(V100, **CDNA2),
    "gfx942": replace(V100, **CDNA2),
}
FIELDS = ("threads", "registers", "scalar_registers", "shared_bytes", "barriers", "workgroups")
ORACLE = """
#include <stdio.h>
#include <string.h>
#include <cuda_occupancy.h>
int main(void) {
    int major, minor, warps, shared_per_sm, reserved, threads, regs, shared, barriers;
    while (scanf("%d %d %d %d %d %d %d %d %d", &major, &minor, &warps, &shared_per_sm, &reserved, &threads, &regs,
                 &shared, &barriers) == 9) {
        cudaOccDeviceProp p; cudaOccFuncAttributes f; cudaOccDeviceState s; cudaOccResult r;
        memset(&p, 0, sizeof p); memset(&f, 0, sizeof f); memset(&s, 0, sizeof s); memset(&r, 0, sizeof r);
        p.computeMajor = major; p.computeMinor = minor; p.warpSize = 32; p.numSms = 1;
        p.maxThreadsPerBlock = f.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = warps * 32;
        p.regsPerBlock = p.regsPerMultiprocessor = 65536;
        p.sharedMemPerMultiprocessor = shared_per_sm; p.reservedSharedMemPerBlock = reserved;
        p.sharedMemPerBlock = 49152; p.sharedMemPerBlockOptin = shared_per_sm - reserved;
        f.numRegs = regs; f.numBlockBarriers = barriers; f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        f.maxDynamicSharedSizeBytes = p.sharedMemPerBlockOptin; s.carveoutConfig = 100;
        cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, threads, shared);
        printf("%d\\n", r.activeBlocksPerMultiprocessor);
    }
}
"""


def resident(cu, threads, registers, shared_bytes, **others):
    """Workgroups, 0 where not one fits (the vendors' calculators say 0, ours raises)."""
    try:
        return occupancy(cu, threads, registers, shared_bytes, **others).workgroups
    except UserError:
        return 0


def table():
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield pytest.param(
                row["machine"], *(int(row[name]) for name in FIELDS), id="-".join(list(row.values())[:6])
            )


@pytest.mark.parametrize(("machine", *FIELDS), list(table()))
def test_vendors_numbers(machine, threads, registers, scalar_registers, shared_bytes, barriers, workgroups):
    found = resident(
        MACHINES[machine], threads, registers, shared_bytes, barriers=barriers, scalar_registers=scalar_registers
    )
    assert found == workgroups


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
def test_random_kernels_against_the_header(tmp_path):
    source, oracle = tmp_path / "oracle.c", tmp_path / "oracle"
    source.write_text(ORACLE)
    if subprocess.run(["nvcc", str(source), "-o", str(oracle)], capture_output=True, check=False).returncode:
        pytest.skip("nvcc cannot build the calculator: no cuda_occupancy.h")
    chance = random.Random(7)
    names = [name for name in MACHINES if name.startswith("cc")]
    cases = []
    for _ in range(3000):
        cu = MACHINES[chance.choice(names)]
        shared_bytes = chance.choice([0, chance.randrange(20_000), chance.randrange(cu.shared_bytes)])
        cases.append(
            (cu, chance.randrange(1, 1025), chance.randrange(1, 256), shared_bytes, chance.choice([0, 1, 4, 16]))
        )
    capability = {id(MACHINES[name]): name[2:].replace(".", " ") for name in names}
    lines = [
        f"{capability[id(cu)]} {cu.warps} {cu.shared_bytes} {cu.shared_reserved_bytes} "
        f"{threads} {registers} {shared_bytes} {barriers}"
        for cu, threads, registers, shared_bytes, barriers in cases
    ]
    said = subprocess.run([str(oracle)], input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    ours = [resident(cu, *demand, barriers=barriers) for cu, *demand, barriers in cases]
    assert ours == [int(line) for line in said.split()]


@pytest.mark.parametrize("name", presets())
def test_every_preset_holds_its_own_limits(name):
    cu = load_preset(name).machine.cu
    one_warp = occupancy(cu, cu.lanes_per_warp, 1, 0)
    assert one_warp.workgroups == min(cu.workgroups, cu.warps)
    full = occupancy(cu, min(cu.workgroup_threads, cu.threads), 1, 0)
    assert full.workgroups == cu.threads // min(cu.workgroup_threads, cu.threads)


def test_what_is_allocated_and_what_limits():
    found = occupancy(V100, 288, 33, 1000)
    assert (found.warps_per_workgroup, found.registers_per_workgroup, found.shared_per_workgroup) == (
        9,
        9 * 40 * 32,
        1024,
    )
    assert (found.workgroups, found.limiter, found.warps) == (5, "registers_bytes", 45)
    assert found.limits == {
        "workgroups": 32,
        "warps": 7,
        "threads": 7,
        "registers_bytes": 5,
        "shared_bytes": 96,
        "barriers": 512,
    }


def test_unknown_registers_limit_nothing():
    assert occupancy(V100, 256, 0, 0).limiter == "warps"


def test_a_warp_in_part_takes_the_threads_of_a_whole_one():
    """33 threads are 2 warps; 2048 / 64 = 32 workgroups. A part of the shared memory is rounded up with the rest."""
    found = occupancy(V100, 33, 0, 0)
    assert found.limits["threads"] == 32 and found.takes[:3] == (1, 2, 64)
    odd = replace(V100, shared_reserved_bytes=100, shared_granule_bytes=256)
    assert occupancy(odd, 64, 0, 156).shared_per_workgroup == 256
    assert occupancy(odd, 64, 0, 157).shared_per_workgroup == 512


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "message"),
    [
        (0, 32, 0, "0 threads, allowed are 1 to cu.workgroup_threads = 1024"),
        (1025, 32, 0, "1025 threads, allowed are 1 to cu.workgroup_threads = 1024"),
        (1024, 65, 0, "cu.registers_bytes = 262144"),
        (32, 32, 98305, "cu.shared_bytes = 98304"),
        (32, -1, 0, "neither may be negative"),
    ],
)
def test_what_does_not_fit_is_named(threads, registers, shared_bytes, message):
    with pytest.raises(UserError, match=message):
        occupancy(V100, threads, registers, shared_bytes)


def named(file, name):
    return next(kernel for kernel in kernel_resources(BINARIES / file) if kernel.name == name)


def test_occupancy_of_a_binary():
    """The reserved kilobyte is in the cubin's own count and in the machine's rule; it is taken once."""
    bounded = named("kernels_sm90.cubin", "bounded")
    found = kernel_occupancy(MACHINES["cc9.0"], bounded)
    assert found.shared_per_workgroup == 1536  # 400 + 1024, in granules of 128
    assert (found.workgroups, found.limiter) == (16, "warps")
    assert kernel_occupancy(MACHINES["cc9.0"], bounded, 64, 100_000).workgroups == 2
    spilled = named("kernels_sm90.cubin", "spilled")
    assert kernel_occupancy(MACHINES["cc9.0"], spilled, 64).limiter == "barriers"  # four each of 64
    promised = named("kernels_gfx90a.co", "promised")
    assert kernel_occupancy(MACHINES["gfx90a"], promised).workgroups == 16


@pytest.mark.parametrize(
    ("file", "name", "machine", "threads", "message"),
    [
        ("kernels_sm90.cubin", "spilled", "cc9.0", None, "states no workgroup size"),
        ("kernels_sm90.cubin", "bounded", "cc9.0", 256, "256 threads, the binary allows 128"),
        ("kernels_gfx90a.co", "promised", "gfx90a", 64, "64 threads, the binary requires 128"),
        ("kernels_gfx90a.co", "promised", "cc9.0", None, "gfx90a has 64 lanes per warp"),
    ],
)
def test_launches_that_the_binary_forbids(file, name, machine, threads, message):
    with pytest.raises(UserError, match=message):
        kernel_occupancy(MACHINES[machine], named(file, name), threads)
