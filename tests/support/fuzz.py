"""Look for inputs that hurt: damaged archives, texts, machines, studies and plans, given to the verbs that read them.

    python -m tests.support.fuzz --minutes 30 --out found --seed 1
    python -m tests.support.fuzz --fields --out found --seed 1
    python -m tests.support.fuzz --only result

Each input is a good one with a few bytes or values changed. A verb gets it in a process of its own, with limits on time
and memory. It must end by itself, with a result (status 0) or one line that says what is wrong (status 2); whatever
ends in a signal, in a traceback or not at all is kept in the folder `--out` with the command that shows it again. What
was found and mended goes into tests/corpus. With `--fields` the inputs are machines of which one number has its lowest,
its highest or a random allowed value (`tests.support.fields`).
"""

import argparse
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from sim.run.store import VARIABLE
from tests.support import fields
from tests.support.fuzz_targets import make_targets
from traces.command.cli import main as main_of_t3sim

LIMIT_S = 60
"""Of CPU time of a verb; five times as much of wall-clock time, for a verb that sleeps."""
MEMORY_BYTES = 4 << 30
MIXED = 100
"""Machines of which several numbers are changed at once."""
CRASHED = 99
DIFFERENT = 1
"""Status of `t3sim diff` for two archives that are not equal."""


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
    expected = (0, 2, DIFFERENT) if words[0] == "diff" else (0, 2)
    return ("", text) if code in expected else (f"status {code}", text)


def words_of(verb, path, place):
    """The words of a command line about the input at `path`."""
    text = path.read_text(encoding="utf-8", errors="replace") if "TEXT" in verb else ""
    return [text if word == "TEXT" else word.replace("IN", str(path)).replace("OUT", f"{place}/out") for word in verb]


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
        words = words_of(verb, path, place)
        os.environ[VARIABLE] = str(folder if target.store else target.file.parent / "runs")
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
    parser.add_argument("--only", default="", help="kinds of inputs with this text in their name")
    given = parser.parse_args()
    if given.fields:
        return 1 if try_fields(given.seed, given.out) else 0
    tried, bad = Counter(), Counter()
    with tempfile.TemporaryDirectory() as place:
        os.environ[VARIABLE] = f"{place}/runs"
        targets = [target for target in make_targets(Path(place)) if given.only in target.name]
        (Path(place) / "out").mkdir()
        with redirect_stdout(io.StringIO()):
            for target in targets:  # loads and compiles once, here, what the verbs need
                for verb in target.verbs:
                    main_of_t3sim(words_of(verb, target.file, place))
        end_s = time.monotonic() + 60 * given.minutes
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
