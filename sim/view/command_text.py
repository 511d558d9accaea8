"""The command that makes a result again, from the input, options and machine in the result."""

import shlex
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from sim.collective import software
from sim.collective.chunks import even_chunks
from sim.presets import Preset, load_preset
from sim.presets.preset import OVERRIDE
from sim.results import RunResult
from sim.run.accuracy import accuracy_text
from sim.run.software import FUSED_IN_SWITCH
from sim.scenario.result import CONFIGURATIONS, COPY_ENGINES, DECOMPOSED, FLUX, T3, T3_MCA, T3_NVLS
from tracer.kernels import kernel_text
from traces.errors import UserError
from traces.units import PS_PER_NS

TRACE, POLICY, PLAN = "TRACE", "POLICY.py", "PLAN.py"
"""Stand for files of the user, which a result knows only by their digests."""
BY_SOFTWARE = {
    software.DECOMPOSED: DECOMPOSED,
    software.COPY_ENGINES: COPY_ENGINES,
    software.FLUX: FLUX,
    FUSED_IN_SWITCH: T3_NVLS,
}
"""Kind of a software run with a GEMM -> its configuration."""


class Again(NamedTuple):
    """How to make a result again.

    Attributes:
        command: one line for a shell.
        files: what each file of the user is, one line each.
    """

    command: str
    files: tuple[str, ...]


def again(run: RunResult) -> Again | None:
    """The command that makes a run or a scenario again; None = no verb makes it alone (a collective of a scenario)."""
    kind = run.input.get("software")
    if "collective" in run.input or (kind and kind not in BY_SOFTWARE):
        return None
    words, files = _t3_words(run) if "edges" in run.input else _run_words(run)
    if not words:
        return None
    preset = ["--preset", run.preset.name, *_options("--set", _changes(run.preset))]
    if policy := run.options.get("policy_sha256"):
        preset += ["--policy", POLICY]
        files += [f"{POLICY}: the policy with SHA-256 {policy}"]
    if run.interval_ps:
        preset += ["--interval-ns", str(run.interval_ps // PS_PER_NS)]
    return Again(shlex.join([*words, *preset]), tuple(files))


def command_of(run: RunResult) -> str | None:
    """The command of `again`, without its files."""
    made = again(run)
    return made.command if made else None


def _run_words(run: RunResult) -> tuple[list[str], list[str]]:
    """Words of `t3sim run`, and its files."""
    files: list[str] = []
    words = ["t3sim", "run"]
    if kernels := run.input.get("kernels"):
        first, *others = map(kernel_text, kernels)
        cus = ",".join(map(str, run.options["cus"])) or "shared"
        words += ["--kernel", first, *_options("--beside", others), "--cus", cus]
    elif text := kernel_text(run.input) or run.input.get("text", ""):
        words += ["--kernel", text]
    else:
        words.append(TRACE)
        files.append(f"{TRACE}: the trace with SHA-256 {run.trace_fingerprint}")
    if run.options.get("kernels") is not None:
        words += ["--kernels", ",".join(map(str, run.options["kernels"]))]
    words += [] if run.options.get("flush_l2", True) else ["--keep-l2"]
    accuracy = run.options.get("accuracy", 0.0)
    return words + (["--accuracy", accuracy_text(accuracy)] if accuracy else []), files


def _t3_words(run: RunResult) -> tuple[list[str], list[str]]:
    """Words of `t3sim t3`, and its files. A GEMM of one configuration alone is that configuration."""
    gpus, edges = run.input["gpus"], run.input["edges"]
    by_library = "piece_kernel" in run.input  # it chooses them again
    described = {"problem": run.input["problem"]} if by_library else run.input
    words = ["t3sim", "t3", "--kernel", kernel_text(described), "--gpus", str(gpus)]
    if run.input.get("fused"):
        chosen = [T3 if run.options.get("arbiter") == "round_robin" else T3_MCA]
    elif kind := run.input.get("software"):
        chosen = [BY_SOFTWARE[kind]]
    else:
        chosen = run.options["configurations"]
    if list(chosen) != list(CONFIGURATIONS):
        words += _options("--configuration", chosen)
    kernel = run.input["kernel"]
    together = kernel.get("cluster_m", 1) * kernel.get("cluster_n", 1)
    if list(even_chunks(edges[-1], gpus, together).edges) != edges:
        words += ["--chunks", ",".join(str(end - begin) for begin, end in pairwise(edges))]
    words += ["--explicit"] if run.options["explicit"] else []
    words += ["-o", "again.h5"] if run.interval_ps else []
    if plan := run.input.get("plan_sha256"):
        return [*words, "--plan", PLAN], [f"{PLAN}: the plan with SHA-256 {plan}"]
    return words, []


def _changes(preset: Preset) -> list[str]:
    """field=value of every value that differs from those of the preset's name."""
    try:
        named: Mapping[str, Any] = load_preset(preset.name).values()
    except UserError:  # the user's file is not here
        named = {field: value for field, value in preset.values().items() if preset.sources[field].kind != OVERRIDE}
    changed = {field: value for field, value in preset.values().items() if named.get(field) != value}
    return [f"{field}={str(value).lower() if isinstance(value, bool) else value}" for field, value in changed.items()]


def _options(name: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (name, value)]
