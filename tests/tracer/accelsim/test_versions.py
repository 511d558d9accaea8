"""Every tracer version says the same thing in its own columns; raw and grouped text give the same events."""

import lzma

import numpy as np
import pytest

from tests.support.accelsim_texts import HEADER, kernel_text, read, write
from tracer.accelsim.problems import TraceError
from tracer.accelsim.writer import same_events

BLOCKS, WARPS = 3, 2


def lines_of(block, warp, extra=lambda line: line):
    """A warp's lines without immediates."""
    base = 0x7F4000000000 + 0x10000 * block + 0x1000 * warp
    return [
        extra("0000 ffffffff 1 R1 MOV 0 0 "),
        extra(f"0010 ffffffff 1 R8 LDG.E.64 1 R2 8 1 {base:#x} 8 "),
        extra(f"0020 0000ffff 1 R10 LDG.E 1 R2 4 2 {base:#x} {'8 ' * 15}"),
        extra("0030 ffffffff 1 R12 DADD 2 R8 R10 0 "),
        extra("0040 ffffffff 0 EXIT 0 0 "),
    ]


def grouped(version, prefix=lambda block, warp: "", suffix="", extra=""):
    text = HEADER.format(version=version, grid=f"{BLOCKS},1,1", block=f"{32 * WARPS},1,1", architecture=70, extra=extra)
    for block in range(BLOCKS):
        text += f"#BEGIN_TB\n\nthread block = {block},0,0\n"
        for warp in range(WARPS):
            lines = lines_of(block, warp, lambda line, b=block, w=warp: prefix(b, w) + line + suffix)
            text += f"\nwarp = {warp}\ninsts = {len(lines)}\n" + "\n".join(lines) + "\n"
        text += "\n#END_TB\n\n"
    return text


@pytest.fixture
def plain(tmp_path):
    return read(write(tmp_path, grouped(5, suffix="0 ")))[0]


@pytest.mark.parametrize(
    ("version", "options"),
    [
        ("1.2", {"prefix": lambda b, w: f"{b} 0 0 {w} "}),
        ("2", {"prefix": lambda b, w: f"{b} 0 0 {w} "}),
        ("3", {}),
        ("4", {}),
        ("4", {"extra": "-enable lineinfo = 0\n"}),
        ("4", {"extra": "-enable lineinfo = 1\n", "prefix": lambda b, w: "117 "}),
        ("5", {"suffix": "-845247145 "}),
        ("5", {"suffix": "18446744073709551615 "}),
        ("5", {"suffix": "7 -845247145 "}),
        ("6", {"suffix": "0 0 NoVal "}),
        ("6", {"suffix": "0 0 Val 1 ff 1 ff "}),
    ],
)
def test_versions_agree(tmp_path, plain, version, options):
    workgroups, problems = read(write(tmp_path, grouped(version, **options)))
    assert problems == []
    for one, other in zip(plain, workgroups, strict=True):
        assert same_events(one, other)


def test_lines_of_another_warp_are_damage(tmp_path):
    text = grouped("1.2", prefix=lambda b, w: f"{b} 0 0 {1 - w} ")
    with pytest.raises(Exception, match="not the one announced"):
        read(write(tmp_path, text))


def test_cluster_lines_are_read_over(tmp_path, plain):
    text = grouped("6", suffix="0 0 NoVal ").replace(
        "thread block = 1,0,0\n", "thread block = 1,0,0\ncluster id = 1,0,0\ncluster cta = 0,0,0\ncluster rank = 0\n"
    )
    workgroups, problems = read(write(tmp_path, text))
    assert problems == []
    assert same_events(workgroups[1], plain[1])


def raw(version, suffix, more="", seed=1):
    """The same kernel as the tracer writes it: warps interleaved at random."""
    text = HEADER.format(version=version, grid=f"{BLOCKS},1,1", block=f"{32 * WARPS},1,1", architecture=70, extra="")
    queues = {
        (b, w): [f"{b} 0 0 {w} {more}{line}{suffix}" for line in lines_of(b, w)]
        for b in range(BLOCKS)
        for w in range(WARPS)
    }
    rng = np.random.default_rng(seed)
    while queues:
        key = list(queues)[rng.integers(len(queues))]
        text += queues[key].pop(0) + "\n"
        if not queues[key]:
            del queues[key]
    return text


@pytest.mark.parametrize(
    ("version", "suffix", "more"),
    [
        ("1.2", "", ""),
        ("3", "", ""),
        ("5", "0 ", ""),
        ("5", "0 ", "12 3 "),
        ("5", "0 0 ", "0 0 0 1 0 0 0 "),
        ("6", "0 0 NoVal ", "0 0 0 1 0 0 0 "),
    ],
)
@pytest.mark.parametrize("buckets", [1, 3])
def test_raw_traces_are_grouped(tmp_path, plain, monkeypatch, version, suffix, more, buckets):
    text = raw(version, suffix, more)
    monkeypatch.setattr("tracer.accelsim.ungrouped.BUCKET_BYTES", len(text) // buckets)
    workgroups, problems = read(write(tmp_path, text, "kernel-1.trace"))
    assert problems == []
    for one, other in zip(plain, workgroups, strict=True):
        assert same_events(one, other)
    workgroups, _ = read(write(tmp_path, lzma.compress(text.encode()), "kernel-1.trace.xz"))
    assert len(workgroups) == BLOCKS


def raw_text(lines):
    """A raw trace of one warp."""
    return kernel_text([[]]).split("#BEGIN_TB")[0] + "".join(f"0 0 0 0 {line}\n" for line in lines)


def test_raw_copies_take_two_lines(tmp_path):
    copies = [
        "0000 ffffffff 0 LDGSTS.E.BYPASS.128 2 R1 R2 16 1 0x100 16 0 ",
        "0000 ffffffff 0 LDGSTS.E.BYPASS.128 2 R1 R2 16 1 0x7f4000000000 16 0 ",
        "0010 ffffffff 0 LDGDEPBAR 0 0 0 ",
        "0020 ffffffff 0 DEPBAR.LE 0 0 0 ",
        "0030 ffffffff 0 EXIT 0 0 0 ",
    ]
    workgroups, problems = read(write(tmp_path, raw_text(copies), "kernel-1.trace"))
    assert problems == []
    events = workgroups[0].events
    assert events["base"][0] == 0x7F4000000000
    assert events["count"].sum() == 4


@pytest.mark.parametrize(("lost", "lone"), [(0, 0), (1, 0), (4, 4), (5, 4)])
def test_half_a_copy_of_a_raw_trace_is_damage(tmp_path, lost, lone):
    """The other line of the pair is lost. A lenient reader leaves out the one that is left."""
    pairs = [
        f"{16 * k:04x} ffffffff 0 LDGSTS.E.BYPASS.128 2 R1 R2 16 1 {place + 512 * k:#x} 16 0 "
        for k in range(3)
        for place in (0x100, 0x7F4000000000)
    ]
    lines = [*pairs[:lost], *pairs[lost + 1 :], "0030 ffffffff 0 EXIT 0 0 0 "]
    text = raw_text(lines)
    number = text[: text.index(f"0 0 0 0 {lines[lone]}")].count("\n") + 1
    path = write(tmp_path, text, "kernel-1.trace")
    with pytest.raises(TraceError, match=rf"kernel-1\.trace:{number}: LDGSTS of which one line is missing"):
        read(path)
    (workgroup,), problems = read(path, lenient=True)
    whole = [k for k in range(3) if k != lost // 2]
    assert list(workgroup.events["base"][:-1]) == [0x7F4000000000 + 512 * k for k in whole]
    assert len(problems) == 1 and problems[0].startswith(f"kernel-1.trace:{number}: skipped: LDGSTS")


def test_missing_blocks_of_a_raw_trace_are_told_at_its_last_line(tmp_path):
    text = raw_text(["0000 ffffffff 0 EXIT 0 0 0 "]).replace("grid dim = (1,1,1)", "grid dim = (4,1,1)") + "# the end\n"
    _, (problem,) = read(write(tmp_path, text, "kernel-1.trace"))
    assert problem.startswith(f"kernel-1.trace:{text.count(chr(10))}: 3 of 4 thread blocks are missing")


def test_errors_of_raw_traces_name_the_raw_line(tmp_path):
    lines = raw("5", "0 ").split("\n")
    number = next(n for n, line in enumerate(lines) if "LDG.E.64" in line)
    lines[number] = lines[number].replace(" 8 1 0x", " 8 9 0x")
    path = write(tmp_path, "\n".join(lines), "kernel-1.trace")
    with pytest.raises(Exception, match=rf"kernel-1\.trace:{number + 1}: address mode"):
        read(path)
    lines[number] = "nothing that belongs here"
    path = write(tmp_path, "\n".join(lines), "kernel-1.trace")
    with pytest.raises(Exception, match=rf"kernel-1\.trace:{number + 1}: a raw trace line begins with"):
        read(path)
