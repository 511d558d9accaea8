"""SASS lines to events: kinds, spaces, widths, patterns, waits, copy groups, folded arithmetic."""

from itertools import pairwise

import pytest

from tests.support.accelsim_texts import events_of, kernel_text, read, write
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.writer import export_accelsim
from traces.schema import ARRIVE_ONLY, EXPLICIT, NO_SLOT, PLAIN_STRIDE, Cache, Kind, Pipe, Space

EXIT = "0f00 ffffffff 0 EXIT 0 0 0 "


def kinds(events):
    return [Kind(kind).name for kind in events["kind"]]


@pytest.mark.parametrize(
    "result",
    [
        "0 {} 3 R8 R2 R5 4 1 0x7f4000000000 4",  # tracers 3 to 5: R8 stands behind a predicate
        "2 P0 R8 {} 2 R2 R5 4 1 0x7f4000000000 4",  # tracer 6
        "1 R8 {} 2 R2 R5 4 1 0x7f4000000000 4",
    ],
)
@pytest.mark.parametrize("opcode", ["ATOMG.E.ADD.STRONG.GPU", "ATOM.E.CAS.STRONG.GPU"])
def test_a_reader_of_an_atomic_waits_for_it(tmp_path, opcode, result):
    events = events_of(tmp_path, [
        f"0000 ffffffff {result.format(opcode)} 0 ",
        "0010 ffffffff 1 R20 IADD3 2 R2 R5 0 0 ",
        "0020 ffffffff 1 R21 IADD3 2 R8 R5 0 0 ",
        EXIT,
    ])  # fmt: skip
    assert kinds(events) == ["ATOMIC", "COMPUTE", "COMPUTE", "EXIT"]
    assert events["slot"][0] == 0
    assert list(events["wait"]) == [0, 0, 1, 0]


@pytest.mark.parametrize("opcode", ["SHFL.BFLY", "MATCH.ALL", "LOP3.LUT"])
def test_a_result_behind_a_predicate_is_waited_for(tmp_path, opcode):
    """The warp takes as long as if the predicate were not there. A comparison has no such result."""

    def clocks(line):
        lines = [line, "0010 ffffffff 1 R3 IADD3 2 R9 R5 0 0 ", "0020 ffffffff 1 R4 IADD3 2 R3 R5 0 0 ", EXIT]
        return int(events_of(tmp_path, [f"0000 ffffffff {lines[0]} 0 ", *lines[1:]])["cycles"].sum())

    behind, first = clocks(f"0 {opcode} 2 R9 R8 0"), clocks(f"1 R9 {opcode} 1 R8 0")
    unread = clocks(f"0 {opcode} 2 R255 R8 0")
    assert behind == first > unread == clocks("0 ISETP.NE.AND 2 R9 R8 0")


def test_a_load_waits_for_nothing_and_its_reader_for_the_load(tmp_path):
    events = events_of(tmp_path, [
        "0000 ffffffff 1 R2 S2R 0 0 0 ",
        "0010 ffffffff 1 R8 LDG.E.128 1 R2 16 1 0x7f4000000000 16 0 ",
        "0020 ffffffff 1 R20 IADD3 2 R2 R3 0 0 ",
        "0030 ffffffff 0 STG.E.64 2 R4 R10 8 1 0x7f4000001000 8 0 ",
        "0040 ffffffff 1 R21 IADD3 2 R8 R3 0 0 ",
        EXIT,
    ])  # fmt: skip
    assert kinds(events) == ["COMPUTE", "LOAD", "COMPUTE", "STORE", "COMPUTE", "EXIT"]
    load, store = events[1], events[3]
    assert (load["slot"], load["wait"], load["width_bytes"]) == (0, 0, 16)
    assert (load["inner"], load["stride"], load["base"]) == (PLAIN_STRIDE, 16, 0x7F4000000000)
    assert (store["wait"], store["width_bytes"], store["slot"]) == (1, 8, NO_SLOT)  # R10 is part of R8..R11
    assert events[4]["wait"] == 0  # the store has waited already
    assert events["count"].sum() == 6


def test_a_second_load_into_the_register_waits_for_the_first(tmp_path):
    line = "{:04x} ffffffff 1 R8 LDG.E 1 R2 4 1 0x7f4000000000 4 0 "
    events = events_of(tmp_path, [line.format(0), line.format(16), EXIT])
    assert list(events["wait"][:2]) == [0, 1]
    assert list(events["slot"][:2]) == [0, 0]


def test_a_fixed_latency_write_over_a_pending_load_waits(tmp_path):
    events = events_of(
        tmp_path, ["0000 ffffffff 1 R8 LDG.E 1 R2 4 1 0x7f40 4 0 ", "0010 ffffffff 1 R8 MOV 0 0 0 ", EXIT]
    )
    assert list(events["wait"]) == [0, 1, 0]


def test_the_sixty_fifth_pending_load_takes_the_oldest_slot_and_waits_for_it(tmp_path):
    lines = [f"{16 * k:04x} ffffffff 1 R{8 + k} LDG.E 1 R2 4 1 0x7f4000000000 4 0 " for k in range(66)]
    events = events_of(tmp_path, [*lines, "0500 ffffffff 1 R4 IADD3 2 R8 R10 0 0 ", EXIT])
    assert list(events["slot"][:64]) == list(range(64))
    assert [(e["slot"], e["wait"]) for e in events[64:66]] == [(0, 1), (1, 2)]
    assert events[66]["wait"] == 1 << 2  # the load of R8 has been waited for, that of R10 is in slot 2


def test_loads_without_a_destination_take_no_slot(tmp_path):
    events = events_of(tmp_path, ["0000 ffffffff 1 R255 LDS 1 R2 4 1 0x0 4 0 ", EXIT])
    assert events[0]["slot"] == NO_SLOT
    assert events[0]["space"] == Space.SHARED


def test_no_active_lane_makes_no_request(tmp_path):
    events = events_of(tmp_path, [
        "0000 00000000 1 R28 LDG.E.64 1 R28 8 1 0x0 0 0 ",
        "0010 00000000 0 LDGSTS.E.BYPASS.LTC128B.128 2 R1 R2 16 1 0x0 0 0 ",
        "0020 00000000 0 BAR.SYNC 0 0 0 ",
        "0030 ffffffff 1 R5 IADD3 1 R28 0 0 ",
        EXIT,
    ])  # fmt: skip
    assert kinds(events) == ["COMPUTE", "EXIT"]
    assert (events[0]["count"], events[0]["wait"], events[0]["pc"]) == (4, 0, 0)


def test_arithmetic_folds_by_pipe_and_splits_at_waits(tmp_path):
    events = events_of(tmp_path, [
        "0000 ffffffff 1 R20 IADD3 0 0 0 ",
        "0010 ffffffff 1 R21 FFMA 1 R20 0 0 ",
        "0020 000000ff 1 R22 IADD3 1 R21 0 0 ",
        "0030 ffffffff 1 R8 LDG.E 1 R2 4 1 0x7f40 4 0 ",
        "0040 ffffffff 1 R23 IADD3 0 0 0 ",
        "0050 ffffffff 1 R24 IADD3 1 R8 0 0 ",
        "0060 ffffffff 1 R25 MUFU.EX2 1 R24 0 0 ",
        EXIT,
    ])  # fmt: skip
    rows = [(Kind(e["kind"]).name, Pipe(e["pipe"]).name, e["count"], e["wait"], e["pc"]) for e in events]
    assert rows == [
        ("COMPUTE", "ALU", 2, 0, 0), ("COMPUTE", "FMA", 1, 0, 0x10), ("LOAD", "ALU", 1, 0, 0x30),
        ("COMPUTE", "ALU", 1, 0, 0x40), ("COMPUTE", "ALU", 1, 1, 0x50), ("COMPUTE", "SFU", 1, 0, 0x60),
        ("EXIT", "ALU", 1, 0, 0xF00),
    ]  # fmt: skip
    assert events[0]["mask"] == 0xFFFFFFFF
    # the chain IADD3 (4) - FFMA (4) - IADD3 issues at 0, 4, 8; the load, which needs none of it, at 9
    assert events["cycles"][:2].sum() == 9
    # 0x50 issues at 11, MUFU 4 later, EXIT next: the result of MUFU is needed by nobody
    assert events["cycles"][4:6].sum() == 5


def test_a_memory_event_lengthens_the_run_whose_result_it_needs(tmp_path):
    lines = ["0000 ffffffff 1 R20 DFMA 0 0 0 ", "0010 ffffffff 0 STG.E.64 2 R2 R20 8 1 0x7f40 8 0 ", EXIT]
    assert events_of(tmp_path, lines)[0]["cycles"] == 8


def test_tensor_work_comes_from_the_shape(tmp_path):
    events = events_of(tmp_path, [
        "0000 ffffffff 1 R20 HMMA.16816.F32 3 R4 R8 R20 0 0 ",
        "0010 ffffffff 1 R24 HMMA.1688.F32 3 R4 R8 R24 0 0 ",
        "0020 00000000 1 R24 HMMA.16816.F32 3 R4 R8 R24 0 0 ",
        EXIT,
    ])  # fmt: skip
    assert (events[0]["pipe"], events[0]["work"], events[0]["count"]) == (Pipe.TENSOR, 2048 + 1024, 3)


def test_matrix_operands_wait_for_all_their_registers(tmp_path):
    loads = [f"{16 * k:04x} ffffffff 1 R{4 + k} LDS 1 R2 4 1 0x0 4 0 " for k in range(6)]
    events = events_of(tmp_path, [*loads, "0100 ffffffff 1 R20 HMMA.16816.F32 3 R4 R8 R20 0 0 ", EXIT])
    assert events[6]["wait"] == 0b111111


def test_copy_groups_and_their_waits(tmp_path):
    copy = "{:04x} ffffffff 0 LDGSTS.E.BYPASS.LTC128B.128 2 R1 R2 16 1 0x7f4000000000 16 0 "
    events = events_of(tmp_path, [
        copy.format(0), copy.format(16), "0020 ffffffff 0 LDGDEPBAR 0 0 0 ",
        copy.format(48), "0040 ffffffff 0 LDGDEPBAR 0 0 0 ",
        "0050 ffffffff 0 LDGDEPBAR 0 0 0 ",  # an empty group counts
        "0060 ffffffff 0 DEPBAR.LE 0 0 2 ",
        "0070 ffffffff 0 DEPBAR.LE 0 0 2 ",  # nothing left to wait for
        "0080 ffffffff 0 DEPBAR.LE 0 0 0 ",
        EXIT,
    ])  # fmt: skip
    rows = [(Kind(e["kind"]).name, int(e["slot"]), int(e["wait"]), int(e["count"])) for e in events]
    assert rows == [
        ("ASYNC_COPY", 0, 0, 1), ("ASYNC_COPY", 0, 0, 1), ("WAIT", NO_SLOT, 0, 1),
        ("ASYNC_COPY", 1, 0, 1), ("WAIT", NO_SLOT, 0, 1), ("WAIT", NO_SLOT, 0, 1),
        ("WAIT", NO_SLOT, 1, 1), ("COMPUTE", NO_SLOT, 0, 1), ("WAIT", NO_SLOT, 2, 1), ("EXIT", NO_SLOT, 0, 1),
    ]  # fmt: skip
    assert events[0]["cache"] == Cache.BYPASS_L1


@pytest.mark.parametrize(
    ("opcode", "kind", "space", "width", "cache"),
    [
        ("LDG.E", Kind.LOAD, Space.GLOBAL, 4, Cache.DEFAULT),
        ("LDG.E.64.SYS", Kind.LOAD, Space.GLOBAL, 8, Cache.DEFAULT),
        ("LDG.E.CG", Kind.LOAD, Space.GLOBAL, 4, Cache.BYPASS_L1),
        ("LDG.E.128.STRONG.GPU", Kind.LOAD, Space.GLOBAL, 16, Cache.BYPASS_L1),
        ("LDG.E.STRONG.SYS", Kind.LOAD, Space.GLOBAL, 4, Cache.BYPASS_L1),
        ("LDG.E.U8.CONSTANT", Kind.LOAD, Space.GLOBAL, 1, Cache.DEFAULT),
        ("LDG.E.EF.64", Kind.LOAD, Space.GLOBAL, 8, Cache.STREAM),
        ("LDL.64", Kind.LOAD, Space.LOCAL, 8, Cache.DEFAULT),
        ("LDS.U.128", Kind.LOAD, Space.SHARED, 16, Cache.DEFAULT),
        ("LDSM.16.M88", Kind.LOAD, Space.SHARED, 4, Cache.DEFAULT),  # 32 lanes get a matrix of 128 bytes
        ("LDSM.16.M88.2", Kind.LOAD, Space.SHARED, 8, Cache.DEFAULT),
        ("LDSM.16.MT88.4", Kind.LOAD, Space.SHARED, 16, Cache.DEFAULT),
        ("STSM.16.M88.2", Kind.STORE, Space.SHARED, 8, Cache.DEFAULT),
        ("ATOMG.E.ADD.64", Kind.ATOMIC, Space.GLOBAL, 8, Cache.DEFAULT),
        ("ATOMS.ADD", Kind.ATOMIC, Space.SHARED, 4, Cache.DEFAULT),
        ("STG.E.CS.U16", Kind.STORE, Space.GLOBAL, 2, Cache.STREAM),
        ("STL", Kind.STORE, Space.LOCAL, 4, Cache.DEFAULT),
        ("STS.64", Kind.STORE, Space.SHARED, 8, Cache.DEFAULT),
        ("RED.E.ADD.F16x2.RN.STRONG.GPU", Kind.REDUCE, Space.GLOBAL, 4, Cache.DEFAULT),
        ("RED.E.ADD.F64.RN", Kind.REDUCE, Space.GLOBAL, 8, Cache.DEFAULT),
    ],
)
def test_what_an_access_is(tmp_path, opcode, kind, space, width, cache):
    event = events_of(tmp_path, [f"0000 ffffffff 0 {opcode} 2 R2 R4 16 1 0x7f4000000000 16 0 ", EXIT])[0]
    assert (event["kind"], event["space"], event["width_bytes"], event["cache"]) == (kind, space, width, cache)


@pytest.mark.parametrize(
    ("address", "space"),
    [
        (0x7F0000000000, Space.SHARED),
        (0x7F0000FFFFFF, Space.SHARED),
        (0x7F0001000000, Space.GLOBAL),
        (0x7EFFFE000000, Space.LOCAL),
        (0x7EFFFDFFFFFF, Space.GLOBAL),
        (0x7F4000000000, Space.GLOBAL),
    ],
)
def test_generic_accesses_go_by_their_window(tmp_path, address, space):
    assert events_of(tmp_path, [f"0000 ffffffff 1 R4 LD.E 1 R2 4 1 {address:#x} 4 0 ", EXIT])[0]["space"] == space


def test_generic_accesses_are_shared_where_a_window_is_unknown(tmp_path):
    text = kernel_text([["0000 ffffffff 1 R4 LD.E 1 R2 4 1 0x7f4000000000 4 0 ", EXIT]])
    text = text.replace("0x00007efffe000000", "0x0000000000000000")
    workgroups, (problem,) = read(write(tmp_path, text))
    assert workgroups[0].events[0]["space"] == Space.SHARED
    number = text[: text.index("0000 ffffffff")].count("\n") + 1
    assert problem.startswith(f"kernel-1.traceg:{number}: a generic access, and the header lacks `shmem base_addr`")


def test_address_modes_give_the_same_pattern(tmp_path):
    lanes = [0x7F4000000000 + 16 * (k % 4) + 512 * (k // 4) for k in range(32)]
    listed = " ".join(f"{lane:#x}" for lane in lanes)
    deltas = " ".join(str(right - left) for left, right in pairwise(lanes))
    events = events_of(tmp_path, [
        f"0000 ffffffff 1 R4 LDG.E.128 1 R2 16 0 {listed} 0 ",
        f"0010 ffffffff 1 R8 LDG.E.128 1 R2 16 2 {lanes[0]:#x} {deltas} 0 ",
        EXIT,
    ])  # fmt: skip
    for event in events[:2]:
        assert (event["inner"], event["stride"], event["row_stride"], event["base"]) == (4, 16, 512, lanes[0])


def test_addresses_without_a_pattern_are_listed(tmp_path):
    lanes = [0x7F4000000000 + 7 * k * k for k in range(5)]
    listed = " ".join(f"{lane:#x}" for lane in lanes)
    line = f"{{:04x}} 0000001f 1 R4 LDG.E 1 R2 4 0 {listed} 0 "
    workgroups, _ = read(write(tmp_path, kernel_text([[line.format(0), line.format(16), EXIT]])))
    events = workgroups[0].events
    assert [(e["inner"], e["base"]) for e in events[:2]] == [(EXPLICIT, 0), (EXPLICIT, 5)]
    assert list(workgroups[0].addresses) == lanes * 2


def test_negative_strides_single_lanes_and_far_deltas(tmp_path):
    events = events_of(tmp_path, [
        "0000 ffffffff 1 R4 LDG.E 1 R2 4 1 0x7f4000001000 -4 0 ",
        "0010 00000010 1 R8 LDG.E 1 R2 4 2 0x7f4000001000 0 ",
        "0020 00000003 1 R12 LDG.E 1 R2 4 2 0x7f4000001000 -139912345678 0 ",
        EXIT,
    ])  # fmt: skip
    assert events[0]["stride"] == -4
    assert (events[1]["inner"], events[1]["stride"], events[1]["mask"]) == (PLAIN_STRIDE, 0, 0x10)
    assert events[2]["inner"] == EXPLICIT


def test_barriers(tmp_path):
    line = "{:04x} ffffffff 0 BAR.SYNC.DEFER_BLOCKING 0 0 {} "
    events = events_of(tmp_path, [line.format(0, 0), line.format(16, 3), line.format(32, 128), EXIT], block="128,1,1")
    assert [(e["slot"], e["work"]) for e in events[:3]] == [(0, 0), (3, 0), (4, 128)]


def test_barriers_with_different_numbers_of_threads_are_apart(tmp_path):
    """A trace does not say which barrier it is, but one barrier has one count at a time."""
    counts = range(32, 481, 32)
    line = "{:04x} ffffffff 0 BAR.SYNC.DEFER_BLOCKING 0 0 {} "
    lines = [*(line.format(16 * k, count) for k, count in enumerate(counts)), EXIT]
    events = events_of(tmp_path, lines, block="480,1,1")
    assert [int(event["slot"]) for event in events[:-1]] == [*range(1, 16)]


FENCED = [
    "0000 ffffffff 0 STG.E 2 R2 R4 4 1 0x7f0000001000 4 0 ",
    "0010 ffffffff 0 STS 2 R2 R4 4 1 0x7f0000000100 4 0 ",
    "0020 ffffffff 0 MEMBAR.SC.CTA 0 0 0 ",
    "0030 ffffffff 0 RED.E.ADD.STRONG.GPU 2 R2 R4 4 1 0x7f0000002000 4 0 ",
    "0040 ffffffff 0 MEMBAR.SC.GPU 0 0 0 ",
    "0050 ffffffff 0 MEMBAR.SC.SYS 0 0 0 ",
    "0060 ffffffff 0 STG.E 2 R2 R4 4 1 0x7f0000001000 4 0 ",
    "0070 ffffffff 0 EXIT 0 0 0 ",
]


def test_a_fence_waits_for_the_stores_since_the_last_one(tmp_path):
    """Not for stores to shared memory, and not within the workgroup. A fence without stores is plain work."""
    source = open_accelsim(write(tmp_path, kernel_text([FENCED])))
    export_accelsim(source, tmp_path / "out")
    for trace in (source, open_accelsim(tmp_path / "out")):
        (workgroup,) = next(trace.commands()).workgroups()
        rows = [(Kind(e["kind"]).name, int(e["slot"]), int(e["wait"]), int(e["count"])) for e in workgroup.events]
        assert rows == [
            ("STORE", 63, 0, 1),
            ("STORE", 255, 0, 1),
            ("COMPUTE", 255, 0, 1),
            ("REDUCE", 63, 0, 1),
            ("WAIT", 255, 1 << 63, 1),
            ("COMPUTE", 255, 0, 1),
            ("STORE", 255, 0, 1),
            ("EXIT", 255, 0, 1),
        ]


def test_an_arrival_does_not_wait_and_comes_back(tmp_path):
    line = "{:04x} ffffffff 0 BAR.{} 0 0 {} "
    text = kernel_text([[line.format(0, "ARV", 32), line.format(16, "SYNC.DEFER_BLOCKING", 32), EXIT]])
    source = open_accelsim(write(tmp_path, text))
    export_accelsim(source, tmp_path / "out")
    for trace in (source, open_accelsim(tmp_path / "out")):
        (workgroup,) = next(trace.commands()).workgroups()
        rows = [(Kind(e["kind"]).name, int(e["slot"]), int(e["work"]), int(e["space"])) for e in workgroup.events]
        assert rows == [("BARRIER", 1, 32, ARRIVE_ONLY), ("BARRIER", 1, 32, 0), ("EXIT", 255, 0, 0)]


def test_an_early_exit_of_some_lanes_is_a_branch(tmp_path):
    events = events_of(tmp_path, ["0000 fffffff8 0 EXIT 0 0 0 ", "0010 00000007 1 R4 IADD3 0 0 0 ", EXIT])
    assert kinds(events) == ["COMPUTE", "COMPUTE", "EXIT"]
    assert events[0]["pipe"] == Pipe.BRANCH
