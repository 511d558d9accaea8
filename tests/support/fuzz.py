"""Look for inputs that hurt: damaged archives, texts, machines and studies, given to the verbs that read them.

    python -m tests.support.fuzz --minutes 30 --out found --seed 1
    python -m tests.support.fuzz --fields --out found --seed 1

Each input is a good one with a few bytes or values changed. A verb gets it in a process of its own, with limits on time
and memory. It must end by itself, with a result (status 0) or one line that says what is wrong (status 2); whatever
ends in a signal, in a traceback or not at all is kept in the folder `--out` with the command that shows it again. What
was found and mended goes into tests/corpus. With `--fields` the inputs are machines of which one number has its lowest,
its highest or a random allowed value (`tests.support.fields`).
"""

import argparse
import io
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from sim.presets import load_preset
from sim.results import write_results
from sim.run.one_gpu import simulate
from tests.support import fields
from tests.support.hostile import ordinary_kernel
from tests.support.paths import ROOT
from tests.support.programs import SMALL
from tests.support.trace_samples import ListSource
from tracer.accelsim.writer import export_accelsim
from traces.archive import open_archive, write_archive
from traces.command.cli import main as main_of_t3sim
from traces.source import Prefill

LIMIT_S = 60
"""Of CPU time of a verb; five times as much of wall-clock time, for a verb that sleeps."""
MEMORY_BYTES = 4 << 30
MIXED = 100
"""Machines of which several numbers are changed at once."""
CRASHED = 99
VALUES = (0, 1, -1, 2, 16, 63, 64, 255, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
WORDS = ("nan", "inf", "-1", "0", "1e12", "1e-6", "[1]", "{}", '""', "true", "99999999999999999999", '"\\u001b[2J"')


class Target(NamedTuple):
    """A kind of input.

    Attributes:
        name: of the kind.
        file: a good one.
        damage: (content or path, random) -> changes the file at the path.
        verbs: that read it; IN is the file, OUT a name to write.
    """

    name: str
    file: Path
    damage: object
    verbs: tuple[tuple[str, ...], ...]


def flip_bytes(path, random):
    """Up to four bytes, anywhere."""
    content = bytearray(path.read_bytes())
    for place in random.integers(0, len(content), random.integers(1, 5)):
        content[place] ^= 1 << int(random.integers(8)) if random.random() < 0.5 else 0xFF
    if random.random() < 0.1:
        del content[int(random.integers(len(content))) :]
    path.write_bytes(content)


def change_values(path, random):
    """A value of a dataset or an attribute, the rest of the file being whole."""
    with h5py.File(path, "r+") as file:
        names = []
        file.visititems(lambda name, found: names.append(name) if isinstance(found, h5py.Dataset) else None)
        for _ in range(random.integers(1, 4)):
            dataset = file[names[random.integers(len(names))]]
            if dataset.size and dataset.dtype.kind in "iuf":
                low = np.iinfo(dataset.dtype) if dataset.dtype.kind in "iu" else None
                value = VALUES[random.integers(len(VALUES))]
                value = min(max(value, low.min), low.max) if low else float(value)
                dataset[tuple(int(random.integers(n)) for n in dataset.shape)] = value
        if random.random() < 0.3:
            group = file[names[random.integers(len(names))]].parent
            if len(group.attrs):
                name = list(group.attrs)[random.integers(len(group.attrs))]
                group.attrs[name] = [VALUES[random.integers(10)], "text", -1.5, [1, 2]][random.integers(4)]


def change_text(path, random, numbers=VALUES):
    """A number, a word, a line or a few bytes of a text. numbers: that take the place of others."""
    text, choice = path.read_text(encoding="utf-8", errors="replace"), random.random()
    places = list(re.finditer(r"0x[0-9a-f]+|-?\d+(\.\d+)?", text))
    if choice < 0.5 and places:
        found = places[random.integers(len(places))]
        values = [*map(str, numbers), *WORDS]
        text = text[: found.start()] + values[random.integers(len(values))] + text[found.end() :]
    elif choice < 0.75:
        lines = text.split("\n")
        one, other = random.integers(0, len(lines), 2)
        lines[one] = lines[other] if random.random() < 0.7 else ""
        text = "\n".join(lines)
    path.write_text(text, encoding="utf-8", errors="replace")
    if choice >= 0.75:
        flip_bytes(path, random)


def make_targets(folder):
    """Good inputs of every kind in the folder."""
    trace, result = folder / "trace.h5", folder / "result.h5"
    write_archive(trace, ListSource([Prefill(1 << 20, 4096), ordinary_kernel()]))
    preset = load_preset("t3_2024", SMALL)
    with open_archive(trace) as source:
        write_results(result, simulate(source, preset, interval_ps=1_000_000))
        export_accelsim(source, folder / "text")
    machine, study = folder / "machine.toml", folder / "study.toml"
    shutil.copy(ROOT / "sim" / "presets" / "v100.toml", machine)
    study.write_text(
        'run = "kernel"\npreset = "t3_2024"\nkernel = "gemm:m=64,n=64,k=32"\n[set]\n"cu.count" = 4\n'
        '[[points]]\n"l2.mshrs" = 64\n[[points]]\n"l2.mshrs" = 128\n'
    )
    traces = (("trace", "info", "IN"), ("trace", "verify", "IN"), ("run", "IN", "--preset", "t3_2024"),
              ("trace", "export", "IN", "-o", "OUT"))  # fmt: skip
    results = (("show", "IN"), ("diff", "IN", str(result)), ("merge", "IN", str(result), "-o", "OUT.h5"),
               ("timeline", "IN", "-o", "OUT.html"))  # fmt: skip
    texts = (("trace", "import", "IN", "-o", "OUT.h5"), ("run", "IN", "--preset", "v100"))
    studies = (("study", "IN", "-o", "OUT", "--workers", "0"),)
    return [
        Target("trace bytes", trace, flip_bytes, traces),
        Target("trace values", trace, change_values, traces),
        Target("result bytes", result, flip_bytes, results),
        Target("result values", result, change_values, results),
        Target("list", folder / "text" / "kernelslist.g", change_text, texts),
        Target("text", next((folder / "text").glob("kernel-1*")), change_text, texts),
        Target("machine", machine, change_text, (("presets", "IN"), ("run", "--gemm", "64x64x32", "--preset", "IN"))),
        Target("study", study, partial(change_text, numbers=range(-2, 70)), studies),
    ]


def run_verb(words, folder, said):
    """In a process of its own, a copy of this one: nothing is imported or loaded again. Never returns."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S + 5))
    os.chdir(folder)
    with open(said, "w", encoding="utf-8", errors="replace") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        status = CRASHED
        try:
            status = main_of_t3sim(words)
        except BaseException:
            traceback.print_exc()
        file.flush()
        os._exit(status)


def verdict(words, folder):
    """How a verb ends: "" as it should, else what is wrong; and what it said."""
    said, end_s = folder / "said.txt", time.monotonic() + 5 * LIMIT_S
    child = os.fork()
    if child == 0:
        run_verb(words, folder, said)
    done = status = 0
    while not done and time.monotonic() < end_s:
        time.sleep(0.01)
        done, status = os.waitpid(child, os.WNOHANG)
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hang", ""
    text = said.read_text(encoding="utf-8", errors="replace")
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return "hang" if code == -signal.SIGXCPU else f"signal {-code}", text
    if "Traceback" in text:
        return "traceback " + text.strip().rpartition("\n")[2][:60], text
    return "" if code in (0, 2) else f"status {code}", text


def attempt(target, seed, out):
    """One damaged input and one verb. Returns the verdict; what is wrong is kept in `out`."""
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "in"
        (Path(place) / "out").mkdir()
        shutil.copytree(target.file.parent, folder)
        path = folder / target.file.name
        target.damage(path, random)
        verb = target.verbs[random.integers(len(target.verbs))]
        words = [word.replace("IN", str(path)).replace("OUT", f"{place}/out") for word in verb]
        found, said = verdict(words, Path(place))
        if found:
            kept = out / f"{target.name.replace(' ', '_')}-{seed}"
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, kept)
            (kept / "how.txt").write_text(f"{found}\nt3sim {' '.join(verb)}\n\n{said}")
            print(f"{kept}: {' '.join(verb)}: {found}", flush=True)
    return found


def children_s():
    """CPU time of all verbs so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def try_fields(seed, out):
    """Every case of `tests.support.fields`. Prints how each ended. Returns the number of bad ones."""
    bad, refused = 0, Counter()
    with tempfile.TemporaryDirectory() as place, redirect_stdout(io.StringIO()):
        for words in fields.RUNS.values():
            main_of_t3sim([*words])  # compiles here, once
    before_s = children_s()
    for case in (*fields.cases(seed), *fields.mixed_cases(seed, MIXED)):
        with tempfile.TemporaryDirectory() as place:
            found, said = verdict(case.words, Path(place))
        spent_s, before_s = children_s() - before_s, children_s()
        wrong = fields.what_is_wrong(found, said)
        bad += bool(wrong)
        ended = wrong or ("result" if fields.result_of(said) else said.strip())
        refused[case.run] += ended not in ("result", wrong)
        print(f"{case.run} {case.field} = {case.value}: {spent_s:.1f} s: {ended}", flush=True)
        if wrong:
            out.mkdir(parents=True, exist_ok=True)
            name = f"field-{case.run}-{case.field}-{case.value}.txt"
            (out / name).write_text(f"{wrong}\nt3sim {' '.join(case.words)}\n\n{said}")
    print(f"fields: {bad} bad, {refused.total()} refused before the run")
    return bad


def search():
    parser = argparse.ArgumentParser(description="Look for inputs that hurt.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, default=Path("fuzz_found"))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--fields", action="store_true", help="Try every number of a machine at its bounds.")
    given = parser.parse_args()
    if given.fields:
        return 1 if try_fields(given.seed, given.out) else 0
    end_s, tried, bad = time.monotonic() + 60 * given.minutes, Counter(), Counter()
    with tempfile.TemporaryDirectory() as place:
        targets = make_targets(Path(place))
        (Path(place) / "out").mkdir()
        with redirect_stdout(io.StringIO()):
            for target in targets:  # loads and compiles once, here, what the verbs need
                for verb in target.verbs:
                    main_of_t3sim([w.replace("IN", str(target.file)).replace("OUT", f"{place}/out") for w in verb])
        while time.monotonic() < end_s:
            number = sum(tried.values())
            target = targets[number % len(targets)]
            tried[target.name] += 1
            bad[target.name] += bool(attempt(target, given.seed + number, given.out))
    for name, count in tried.items():
        print(f"{name}: {count} tried, {bad[name]} bad")
    return 1 if sum(bad.values()) else 0


if __name__ == "__main__":
    raise SystemExit(search())
