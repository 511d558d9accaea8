"""Study files: which points they name, what decides their digest, and every mistake with file and field."""

import sys

import pytest

from sim.hw.policy import MODULE
from sim.study import StudyError, load_study
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from traces.archive import write_archive
from traces.errors import UserError

BASE = "kernel = 'gemm:m=64,n=64,k=32'\n"
T3 = 'run = "t3"\n' + BASE
T3_USER = 'run = "t3"\nkernel = "gemm:m=256,n=256,k=64"\nset.hbm.arbiter = "user"\nt3.gpus = 2\n'
POLICY = "def pick(channel, now_ps):\n    return -1\n"


@pytest.fixture
def study(tmp_path):
    """Write a study file and read it."""

    def load(text, name="study"):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        return load_study(path)

    return load


def test_axes_are_cartesian_and_the_last_is_fastest(study):
    found = study(BASE + "[axes]\nhbm.queue_entries = [16, 32]\nkernel.tile_m = [64, 128, 256]\n")
    assert [tuple(point.coordinates.values()) for point in found.points] == [
        (entries, tile) for entries in (16, 32) for tile in (64, 128, 256)
    ]
    assert found.points[4].settings["kernel.tile_m"] == 128


def test_axes_of_one_unit_stand_together(study):
    """TOML keeps them in one table, at the place of the first."""
    found = study(BASE + "[axes]\nl2.mshrs = [64, 96]\nhbm.queue_entries = [16, 32]\nl2.ways = [8, 16]\n")
    assert [[*point.coordinates.values()] for point in found.points[:3]] == [[64, 8, 16], [64, 8, 32], [64, 16, 16]]
    assert [*found.points[0].coordinates] == ["l2.mshrs", "l2.ways", "hbm.queue_entries"]


@pytest.mark.slow
def test_kernels_are_swept_whole_or_by_field(study):
    """A field in an axis or a listed point is added to the text of the kernel, or replaces what it says."""
    whole = study('[[points]]\nkernel = "gemm:m=64,n=64,k=32"\n[[points]]\nkernel = "layernorm:rows=8,cols=64"\n')
    by_field = study(BASE + "axes.kernel.k = [32, 64]\n")
    keys = [point.runs[0].key for point in by_field.points]
    assert keys[0] == whole.points[0].runs[0].key != keys[1]
    assert whole.points[1].runs[0].key not in keys


def test_listed_points_go_with_every_point_of_the_axes(study):
    found = study(
        BASE + '[axes]\nl2.mshrs = [64, 96]\n[[points]]\nhbm.queue = "split"\n[[points]]\npreset = "t3_2024"\n'
    )
    assert [point.coordinates for point in found.points] == [
        {"hbm.queue": "split", "l2.mshrs": 64},
        {"hbm.queue": "split", "l2.mshrs": 96},
        {"preset": "t3_2024", "l2.mshrs": 64},
        {"preset": "t3_2024", "l2.mshrs": 96},
    ]


def test_accuracy_is_a_field(study):
    exact, part = study(BASE + 'axes.accuracy = ["exact", "1%"]\n').points
    assert [point.runs[0].accuracy for point in (exact, part)] == [0.0, 0.01]
    assert exact.runs[0].key != part.runs[0].key
    with pytest.raises(UserError, match="accuracy: found '60%', allowed are exact"):
        study(BASE + 'accuracy = "60%"\n')


def test_layout_does_not_decide_the_digest_but_content_does(study):
    first = study(BASE + "[axes]\nl2.mshrs = [64, 96]\n")
    same = study('# a remark\ntitle = "other words"\nrun = "kernel"\nkernel = "gemm: n=64, k=32, m=64"\n'
                 "axes.l2.mshrs = [64, 96]\n")  # fmt: skip
    assert first.digest == same.digest and first.archive_name == same.archive_name
    others = [
        BASE + "[axes]\nl2.mshrs = [96, 64]\n",
        BASE + "[axes]\nl2.mshrs = [64, 97]\n",
        BASE + "[set]\nhbm.queue_entries = 63\n[axes]\nl2.mshrs = [64, 96]\n",
        "interval_ns = 1\n" + BASE + "[axes]\nl2.mshrs = [64, 96]\n",
        'preset = "t3_2024"\n' + BASE + "[axes]\nl2.mshrs = [64, 96]\n",
    ]
    digests = {study(text).digest for text in others}
    assert len(digests) == len(others) and first.digest not in digests


def test_the_text_of_a_policy_decides_and_its_name_does_not(study, tmp_path):
    digests = []
    for name, text in (("a.py", POLICY), ("b.py", POLICY), ("a.py", POLICY + "# other\n")):
        (tmp_path / name).write_text(text)
        digests.append(study(f'policy = "{name}"\n' + BASE).digest)
    assert digests[0] == digests[1] != digests[2]


def test_the_place_of_a_study_does_not_decide(tmp_path):
    """Nor does it stand in the reason of a point that fails."""
    digests = set()
    for folder in (tmp_path / "a", tmp_path / "elsewhere"):
        folder.mkdir()
        (folder / "odd.toml").write_text('extends = "v100"\ncolour = 3\n')
        (folder / "study.toml").write_text(BASE + '[axes]\npreset = ["v100", "odd.toml"]\n')
        study = load_study(folder / "study.toml")
        digests.add(study.digest)
        assert study.points[1].asked.startswith("odd.toml: colour: ")
    assert len(digests) == 1


@pytest.mark.parametrize("here", [True, False])
def test_all_runs_but_that_of_mca_have_the_arbiter_of_the_users_machine(here, tmp_path, monkeypatch):
    """Wherever the command runs."""
    (tmp_path / "own.toml").write_text(
        'extends = "t3_2024"\nhbm.arbiter = { value = "fcfs", kind = "assumed", source = "a test" }\n'
    )
    (tmp_path / "study.toml").write_text(
        'run = "t3"\npreset = "own.toml"\nkernel = "gemm:m=256,n=256,k=32"\n'
        'set.hbm.arbiter = "mca_fixed"\nt3.gpus = 2\n'
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path if here else tmp_path / "elsewhere")
    runs = load_study(tmp_path / "study.toml").points[0].asked.runs
    assert {name: run.arbiter().name for name, run in runs.items()} == {
        **dict.fromkeys(("gemm", "rs", "rs_nmc", "ag"), "FCFS"),
        "t3": "ROUND_ROBIN",
        "t3_mca": "MCA_FIXED",
    }


def test_a_point_that_cannot_run_does_not_stop_the_others(study):
    found = study(BASE + "[axes]\nl2.ways = [24, 5]\n")
    assert len(found.points) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gemm\n", ["not a TOML file", "line 1"]),
        ("title = 3\n", ["title", "3"]),
        (BASE + "[axes]\nl2.mshr = [1]\n", ["axes", "l2.mshr", "l2.mshrs"]),
        (BASE + "[axes]\nl2.mshrs = 5\n", ["l2.mshrs", "5", "list"]),
        (BASE + "[axes]\nl2.mshrs = []\n", ["l2.mshrs", "[]"]),
        (BASE + "[axes]\nl2.mshrs = [5, 5]\n", ["l2.mshrs", "each value once"]),
        (BASE + "[axes]\nhbm.clock_MHz = [500, 500.0]\n", ["hbm.clock_MHz", "each value once"]),
        (BASE + "[axes]\nkernel.m = [1, true]\n", ["gemm: m: found True", "a whole number"]),
        (BASE + '[axes]\n"l2.ways" = [16]\nl2.ways = [8]\n', ["axes: l2.ways: found [16] and [8]"]),
        (BASE + '[[points]]\n"l2.ways" = 16\nl2.ways = 8\n', ["points[0]: l2.ways: found 16 and 8"]),
        (BASE + '"l2.ways" = 16\n[set]\nl2.ways = 8\n', ["toml: l2.ways: found 16 and 8", "one of them"]),
        (BASE + '[set]\nl2.ways = 8\n"l2.ways" = 8\n', ["toml: l2.ways: found 8 and 8"]),
        (T3 + "t3.gpus = 4\nset.t3.gpus = 8\n", ["toml: t3.gpus: found 8 and 4"]),
        (BASE + "set." + "a." * 3000 + "a = 1\n", ["allowed are "]),
        ('run = "replay"\ntrace = "a.h5"\n[axes]\nkernels = [[0, 1], [0, 1]]\n', ["kernels", "each value once"]),
        (BASE + '[axes]\nl2.mshrs = [1, "many"]\n', ["l2.mshrs", "'many'", "int"]),
        (BASE + "[set]\nl2.mshrs = -1\n", ["l2.mshrs", "-1", "1 to 8,192: "]),
        (BASE + '[set]\nhbm.queue = "both"\n', ["hbm.queue", "'both'", "unified, split"]),
        (BASE + '[axes]\nkernel.order = ["spiral"]\n', ["gemm: order", "'spiral'", "grouped"]),
        (BASE + "[axes]\nkernel.colour = [1]\n", ["kernel.colour", "unknown"]),
        (BASE + "[axes]\nkernel.rows = [1]\n", ["gemm: rows", "unknown"]),
        (BASE + "[axes]\nkernel.m = [1.5]\n", ["kernel.m", "1.5"]),
        (BASE + '[axes]\nkernel.m = ["x"]\n', ["gemm: m", "'x'"]),
        ('kernel = "gem:m=3"\n', ["'gem'", "did you mean gemm"]),
        ('kernel = "gemm:m=3,m=4"\n', ["gemm: m", "twice"]),
        ("[kernel]\nm = 3\n", ["[kernel]", "kernel is a text"]),
        ("[axes]\nkernel.m = [3]\n", ["no point can run", "kernel: missing"]),
        (BASE + "kernels = [0]\n", ['kernels: not with run = "kernel"']),
        ("interval = 3\n" + BASE, ["interval", "interval_ns"]),
        (BASE + "[l2]\nmshrs = 3\n", ["[l2]", "[set]"]),
        (BASE + "[axes]\nl2.mshrs = [1, 2]\n[[points]]\nl2.mshrs = 3\n", ["l2.mshrs", "axes and in points"]),
        (BASE + "[points]\nl2.mshrs = 3\n", ["points", "[[points]]"]),
        ("axes = 3\n" + BASE, ["axes", "3"]),
        ("kernel = 3\n", ["kernel", "3"]),
        (f"{BASE}[axes]\nl2.mshrs = {[*range(1, 201)]}\nl1.mshrs = {[*range(1, 201)]}\n", ["40,000 points"]),
        ('kernel = "gemm:m=64"\n', ["no point can run", "gemm: n: missing", "workload"]),
        ('kernel = "gemm:workload=t-nlg/fc2/tp8,m=64"\n', ["no point can run", "workload", "gives m"]),
        ('kernel = "gemm:workload=t-nlg/fc2/8"\n', ["model/layer/tpN"]),
        ('run = "fly"\n', ["run", "'fly'", "replay, kernel, t3"]),
        ('run = "replay"\n', ["no point can run", "trace"]),
        ('run = "replay"\ntrace = "none.h5"\n', ["trace: no file none.h5"]),
        ('preset = "none.toml"\n' + BASE, ["preset: no file none.toml"]),
        (BASE + '[axes]\npreset = ["v100", "none.toml"]\n', ["preset: no file none.toml"]),
        ('trace = "study.toml"\n' + BASE, ["no point can run", 'trace: not with run = "kernel"']),
        ('run = "replay"\ntrace = "study.toml"\n' + BASE, ['kernel: not with run = "replay"']),
        ("t3.gpus = 4\n" + BASE, ['t3.gpus: not with run = "kernel"']),
        (T3, ["t3.gpus: give it with a GEMM without workload="]),
        (T3 + "[t3]\ngpus = 1\n", ["t3.gpus", "1", "2 to 64: "]),
        (T3 + '[t3]\ngpus = 4\nconfigurations = ["T4"]\n', ["t3.configurations", "T4", "T3-MCA"]),
        (
            'run = "t3"\nkernel = "gemm:workload=t-nlg/fc2/tp8"\n[t3]\ngpus = 4\n',
            ["t3.gpus", "a workload has its own"],
        ),
        ('run = "t3"\nkernel = "layernorm:rows=8,cols=8"\n[t3]\ngpus = 4\n', ["found layernorm", "gemm"]),
        ("flush_l2 = true\n" + T3 + "[t3]\ngpus = 4\n", ['flush_l2: not with run = "t3"']),
        ('preset = "v10"\n' + BASE, ["preset: found 'v10'", "v100"]),
        (BASE + '[axes]\npreset = ["v100", "v1000"]\n', ["axes: preset: found 'v1000'", "did you mean v100", ".toml"]),
        (BASE + '[axes]\naccuracy = ["exact", "1"]\n', ["axes: accuracy: found '1'", "exact"]),
        (T3 + '[t3]\ngpus = 4\n[[points]]\nt3.configurations = ["T3", "T4"]\n', ["points[0]: t3.conf", "T4", "FLUX"]),
        (T3 + "[[points]]\nt3.gpus = 4\n[[points]]\nt3.gpus = 4\nt3.configurations = []\n", ["points[1]: t3.c", "[]"]),
        ('policy = "none.py"\n' + BASE, ["policy: no file none.py"]),
        (BASE + '[[points]]\nhbm.queue_entries = 16\n[[points]]\npolicy = "bad.py"\n', ["policy: ", "bad.py:2: Syn"]),
        ('policy = "study.toml"\n' + BASE, ["policy: ", "study.toml: found the ending '.toml', allowed is .py"]),
        (BASE + '[axes]\nhbm.arbiter = ["user"]\n', ["no point can run: hbm.arbiter: found user without a policy"]),
        (T3_USER, ["no point can run: hbm.arbiter: found user without"]),
        ("kernels = [-1]\n" + BASE, ["kernels", "[-1]"]),
    ],
)
def test_mistakes(text, words, study, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, MODULE, raising=False)  # another test may have bound a policy
    (tmp_path / "bad.py").write_text("# no colon\ndef pick(channel, now_ps)\n    return -1\n")
    with pytest.raises(StudyError) as caught:
        study(text)
    message = str(caught.value)
    assert "study.toml: " in message and "\n" not in message.strip()
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("kernels", "words"), [([], "one number or more"), ([0, 0], "each once"), ([5], "0 to 0: the trace has 1 kernels")]
)
def test_a_replay_of_kernels_that_are_not_there(kernels, words, study, tmp_path):
    write_archive(tmp_path / "a.h5", CommandSequence([make_kernel("gemm:m=64,n=64,k=32")]))
    axis = f'run = "replay"\ntrace = "a.h5"\naxes.kernels = [{kernels}]\n'
    with pytest.raises(StudyError, match=rf"no point can run: kernels: found .*, allowed are .*{words}"):
        study(axis)


def test_the_arbiter_user_without_a_policy_where_no_run_reads_it(study):
    """It is the arbiter of T3-MCA only."""
    assert study(T3_USER + 't3.configurations = ["Sequential"]\n').points[0].runs


def test_no_such_file(tmp_path):
    with pytest.raises(StudyError, match=r"none\.toml: no such file"):
        load_study(tmp_path / "none.toml")
    with pytest.raises(StudyError, match="is a folder"):
        load_study(tmp_path)
