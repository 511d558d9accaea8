"""Opcode tables: shapes, widths, latencies with a source for every number."""

import pytest

from tracer.accelsim.latency import TABLE_OF, TABLES, Latency, latency_table, table_version
from tracer.accelsim.opcodes import Action, access_bytes, classify
from tracer.accelsim.tensor import mac_cost, tensor_shape
from traces.schema import Pipe


@pytest.mark.parametrize(
    ("opcode", "macs", "registers"),
    [
        ("HMMA.16816.F32", 16 * 8 * 16, (4, 2, 4)),
        ("HMMA.16816.F16", 16 * 8 * 16, (4, 2, 2)),
        ("HMMA.1688.F32", 16 * 8 * 8, (2, 1, 4)),
        ("HMMA.1684.F32.TF32", 16 * 8 * 4, (2, 1, 4)),
        ("HMMA.884.F32.F32.STEP2", 256, (2, 2, 2)),
        ("HMMA.884.F16.F16.STEP1", 512, (2, 2, 2)),
        ("IMMA.8816.S8.S8", 8 * 8 * 16, (1, 1, 2)),
        ("IMMA.16832.U8.S8", 16 * 8 * 32, (4, 2, 4)),
        ("IMMA.16864.S4.S4", 16 * 8 * 64, (4, 2, 4)),
        ("DMMA.884", 8 * 8 * 4, (2, 2, 4)),
        ("BMMA.168256.XOR.POPC", 16 * 8 * 256, (4, 2, 4)),
        ("HGMMA.64x256x16.F32", 64 * 256 * 16 // 4, (1, 1, 1)),
        ("HMMA", 0, (1, 1, 1)),
    ],
)
def test_matrix_shapes(opcode, macs, registers):
    base, *tokens = opcode.split(".")
    assert tensor_shape(base, tokens)[:2] == (macs, registers)


def test_a_warp_wide_multiply_of_volta_is_sixteen_steps():
    assert 16 * tensor_shape("HMMA", ["884", "F32", "F32", "STEP0"])[0] == 16 * 16 * 16


@pytest.mark.parametrize(
    ("opcode", "width"),
    [("LDG.E.128", 16), ("LDG.E.U8.SYS", 1), ("LDG.E.S16", 2), ("LDG.E", 4), ("LDS.U.64", 8), ("LDG.E.LTC128B.64", 8)],
)
def test_widths(opcode, width):
    assert access_bytes(opcode.split(".")[1:]) == width


@pytest.mark.parametrize(
    ("opcode", "pipe"),
    [
        ("IADD3.X", Pipe.ALU), ("IMAD.MOV.U32", Pipe.FMA), ("FFMA.FTZ", Pipe.FMA), ("HFMA2.MMA", Pipe.FMA),
        ("DFMA", Pipe.FP64), ("MUFU.EX2.F16", Pipe.SFU), ("HMMA.16816.F32", Pipe.TENSOR), ("BRA", Pipe.BRANCH),
        ("BSSY", Pipe.BRANCH), ("ULDC.64", Pipe.UNIFORM), ("LDC", Pipe.UNIFORM), ("UIADD3", Pipe.UNIFORM),
        ("S2R", Pipe.ALU), ("F2F.F16.F32", Pipe.ALU), ("SHFL.BFLY", Pipe.ALU),
    ],
)  # fmt: skip
def test_pipes(opcode, pipe):
    found = classify(opcode)
    assert (found.action, found.pipe, found.lacks) == (Action.COMPUTE, pipe, "")


def test_unknown_opcodes_are_alu_work():
    found = classify("FROBNICATE.64")
    assert (found.action, found.pipe) == (Action.COMPUTE, Pipe.ALU)
    assert found.lacks == "unknown opcode FROBNICATE.64, taken as ALU work"


def test_accesses_without_addresses_say_that_their_traffic_is_left_out():
    for opcode in ("TEX.SCR.LL", "TLD4.R", "SULD.D.2D.STRONG.GPU", "SUST.P.1D", "CCTL.E.PF2"):
        found = classify(opcode)
        assert (found.action, found.pipe) == (Action.COMPUTE, Pipe.ALU)
        assert found.lacks == f"{opcode}, taken as ALU work: its memory traffic is left out"
    for opcode in ("CCTL.IVALL", "TXQ", "SUQUERY"):
        assert not classify(opcode).lacks


@pytest.mark.parametrize("architecture", TABLES)
def test_every_latency_has_a_source(architecture):
    table = latency_table(architecture)
    assert set(table) == set(Latency)
    for cycles, source in table.values():
        assert 1 <= cycles <= 64
        assert source.startswith(("assumed", "Jia et al. 2018", "Accel-Sim tested-cfgs/")), source


def test_architectures_between_tables_take_the_older_one():
    assert {version: table_version(version) for version in TABLE_OF} == TABLE_OF
    assert latency_table(86) is TABLES[80]
    assert latency_table(89) is TABLES[80]
    assert latency_table(100) is TABLES[90]
    assert latency_table(61) is TABLES[60]
    assert latency_table(35) is TABLES[70]


@pytest.mark.parametrize(
    ("opcode", "cost"),
    [
        ("HMMA.16816.F32", 1), ("HMMA.884.F32.F32.STEP0", 1), ("HMMA.1688.F32.TF32", 2), ("HMMA.16816.F32.BF16", 1),
        ("DMMA.884", 16), ("IMMA.16832.S8.S8", 0.5), ("IMMA.8832.S4.S4", 0.25), ("HMMA.SP.16832.F32", 0.5),
        ("HGMMA.64x128x16.F32", 1), ("QGMMA.64x128x32.F32.E4M3.E4M3", 0.5), ("IGMMA.64x128x32.S8.S8", 0.5),
    ],
)  # fmt: skip
def test_matrix_instructions_take_the_time_of_their_type(opcode, cost):
    base, *tokens = opcode.split(".")
    assert mac_cost(base, tokens) == cost
    effect = classify(opcode)
    assert effect.work == cost * effect.macs > 0
