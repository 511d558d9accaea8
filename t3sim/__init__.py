"""t3sim: simulate kernels, GEMMs with their collectives, and studies of many of them.

    import t3sim
    layer = t3sim.scenario("gemm:m=512,n=512,k=128", gpus=4)
    print(layer.speedup("T3-MCA"))                                     # over Sequential

    run = t3sim.run("gemm:m=512,n=512,k=256", machine="v100")          # one simulation
    run.headline()["time_ns"], run.frame("hbm")                        # figures, counters as a pandas frame

    layer = t3sim.scenario("gemm:workload=t-nlg/op/tp8", machine="t3_2024")
    layer.configurations["T3-MCA"].time_ps, layer.runs["t3_mca"]       # figures of one, and its run

    found = t3sim.collective("all_gather", gpus=4, bytes=65536, machine="a100_80g")   # as NCCL runs it
    found.time_ns, found.protocol, found.bus_GBps

    archive = t3sim.study("study.toml", workers=2)                     # many runs: their tables and their file
    archive = t3sim.open("result.h5")                                  # a results archive of any t3sim command
    t3sim.plot("rates", archive, to="rates.svg")

Every finished run is kept in the store (`Store`, `T3SIM_STORE`), so this computer simulates the same run only once.
Wrong input raises `UserError`; its text names the field, the given value and the allowed values.
"""

from t3sim_packages import check_packages

check_packages()

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from sim.gemm_facts import gpu_facts
from sim.host.team import use_threads
from sim.presets import Preset, load_preset, presets
from sim.results import Failure, ResultsArchive, RunResult, write_results
from sim.results import open as open
from sim.run.accuracy import EXACT, accuracy_of
from sim.run.run import KernelRun
from sim.run.runner import Progress as StudyProgress
from sim.run.store import Store, run_or_get
from sim.scenario.asked import ALL, asked_configurations
from sim.scenario.collective import Collective, CollectiveResult, simulate_collective
from sim.scenario.result import ALL_CONFIGURATIONS, CONFIGURATIONS, ScenarioResult
from sim.scenario.scenario import Progress, Scenario, simulate_scenario
from sim.study import load_study, run_study
from sim.view.figures import draw
from sim.view.style import save
from t3sim.given import changes_of, count_of, interval_ps_of, names_of, path_of, store_of, switch_of, text_of
from tracer.kernels import KERNELS, describe_kernels, make_gemm, make_kernel, make_kernels
from tracer.sequence import CommandSequence
from tracer.trace_file import open_trace
from traces.errors import UserError
from traces.source import KernelSource, TraceSource
from traces.version import VERSION as __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "CONFIGURATIONS",
    "CollectiveResult",
    "Failure",
    "Preset",
    "ResultsArchive",
    "RunResult",
    "ScenarioResult",
    "Store",
    "UserError",
    "__version__",
    "collective",
    "kernel",
    "kernels",
    "machine",
    "machines",
    "open",
    "plot",
    "run",
    "scenario",
    "study",
    "trace",
    "write_results",
]

Machine = str | Preset
"""Name of a preset, path of a .toml file, or a machine that `machine` returned."""


def machines() -> list[str]:
    """Names of the machines that come with t3sim."""
    return presets()


def machine(name: Machine = "v100", changes: Mapping[str, object] | Sequence[str] = ()) -> Preset:
    """Load a machine; every value has its source.

    Args:
        name: name of a preset (`machines()`), or path of a .toml file.
        changes: values that replace those of the preset: {"hbm.queue_entries": 32} or ["hbm.queue_entries=32"].

    Raises:
        UserError: an unknown machine or field, a value that is not allowed.
    """
    if isinstance(name, Preset):
        if changes:
            raise UserError("machine: found a loaded machine and changes; allowed is a name with changes")
        return name
    if not isinstance(name, str):
        raise UserError(f"machine: found {name!r}, allowed is a name, a .toml file or a loaded machine")
    return load_preset(name, changes_of("changes", changes))


def kernels() -> str:
    """A text that lists the kernels that t3sim can make, with fields, types and defaults; for printing."""
    return describe_kernels()


def kernel(text: str, /, machine: Machine = "v100", **fields: object) -> KernelSource:
    """Make a kernel by name: `kernel("gemm:m=512,n=512,k=256")`, `kernel("layernorm", rows=4096, cols=8192)`.

    Args:
        text: NAME, or NAME:field=value,...; `kernels` lists the names and their fields.
        machine: as `machine`. A GEMM that names no field of its kernel has the choice of the machine's library, as in
            `run` with a text; warps have the machine's width.
        fields: added to the fields of the text.

    Raises:
        UserError: an unknown kernel or field, a value that is not allowed, a missing field.
    """
    return make_kernel(text_of("kernel", text), gpu_facts(_machine(machine).machine), **fields)


def trace(path: str | PathLike[str]) -> TraceSource:
    """Open a stored trace: a trace archive (.h5), or an Accel-Sim kernelslist.g, .traceg or .tracez file or
    folder.

    Raises:
        UserError: the file does not exist, or is not a trace.
    """
    return open_trace(path_of("trace", path))


def run(
    what: str | PathLike[str] | KernelSource | TraceSource,
    machine: Machine = "v100",
    changes: Mapping[str, object] | Sequence[str] = (),
    *,
    flush_l2: bool = True,
    accuracy: str = EXACT,
    interval_ns: int = 0,
    threads: int | None = None,
    fresh: bool = False,
    store: Store | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Simulate one kernel, or all kernels of a trace, on one GPU. A run that is in the store is not simulated again.

    Args:
        what: a kernel by name ("gemm:m=512,n=512,k=256") or from `kernel`; a trace by path or from `trace`.
        machine, changes: as in `machine`.
        flush_l2: write back and empty L2 after every kernel.
        accuracy: "1%": simulate a long kernel in part, if its time has at most this error; "exact": in whole.
        interval_ns: of the time series, 0 = none.
        threads: None = all cores, at most 8 for one GPU. The result does not depend on it.
        fresh: simulate even if the store has the result.
        store: None = the user's store.
        progress: called with (kernel, workgroups done, workgroups).

    Returns:
        A `RunResult`: `headline()`, `ratios()`, `frame(unit)`, `series_frame()`, and the machine with its sources.

    Raises:
        UserError: a wrong name, field or file; a kernel that does not fit the machine; a deadlock.
    """
    preset = _machine(machine, changes)
    description = KernelRun(
        preset=preset,
        source=_source(what, preset),
        flush_l2=switch_of("run: flush_l2", flush_l2),
        accuracy=accuracy_of(accuracy),
        interval_ps=interval_ps_of("run: interval_ns", interval_ns),
    )
    with use_threads(threads):
        kept, fresh = store_of("run: store", store), switch_of("run: fresh", fresh)
        return run_or_get(description, kept, fresh=fresh, progress=progress).result


def scenario(
    gemm: str,
    gpus: int | None = None,
    machine: Machine = "t3_2024",
    changes: Mapping[str, object] | Sequence[str] = (),
    *,
    configurations: Sequence[str] = CONFIGURATIONS,
    explicit: bool = False,
    interval_ns: int = 0,
    threads: int | None = None,
    fresh: bool = False,
    store: Store | None = None,
    progress: Progress | None = None,
) -> ScenarioResult:
    """Simulate a GEMM and its all-reduce on many GPUs, in the configurations of the paper. Stored runs are reused.

    Args:
        gemm: the GEMM of one GPU, "gemm:m=2048,n=2048,k=512" or "gemm:workload=t-nlg/fc2/tp8".
        gpus: number of GPUs; None for a workload, which has its own number.
        machine, changes: as in `machine`.
        configurations: their names, as for `t3sim t3`; "all" = all that the machine has.
        explicit: simulate every GPU; else one GPU represents all where that is exact.
        interval_ns, threads, fresh, store, progress: as in `run`; progress names the run.

    Returns:
        A `ScenarioResult`: `configurations[name]` (times, traffic), `speedup(name)` over Sequential, `runs[name]`.

    Raises:
        UserError: `gpus` is missing, or is given with a workload; as `run`.
    """
    preset = _machine(machine, changes)
    names = names_of("scenario: configurations", configurations, (*ALL_CONFIGURATIONS, ALL))
    names = asked_configurations(names, preset)
    named = make_gemm(text_of("scenario: gemm", gemm), gpu_facts(preset.machine))
    description = Scenario.of_gemm(
        preset,
        named,
        count_of("scenario: gpus", named.gpus_or(gpus, "scenario: gpus")),
        explicit=switch_of("scenario: explicit", explicit),
        interval_ps=interval_ps_of("scenario: interval_ns", interval_ns),
    )
    with use_threads(threads):
        kept, fresh = store_of("scenario: store", store), switch_of("scenario: fresh", fresh)
        return simulate_scenario(description, names, store=kept, fresh=fresh, progress=progress)


def collective(
    kind: str,
    gpus: int,
    bytes: int,
    machine: Machine = "a100_80g",
    changes: Mapping[str, object] | Sequence[str] = (),
    *,
    library: str | None = None,
    algorithm: str | None = None,
    protocol: str | None = None,
    channels: int | None = None,
    whole: bool = False,
    threads: int | None = None,
    fresh: bool = False,
    store: Store | None = None,
    progress: Progress | None = None,
) -> CollectiveResult:
    """Simulate one collective on idle GPUs, as a library runs it. Stored runs are reused.

    Args:
        kind: all_reduce, reduce_scatter, all_gather, all_to_all, broadcast or send_recv.
        gpus: number of GPUs.
        bytes: buffer of a GPU.
        machine, changes: as in `machine`.
        library: plain, nccl or rccl; None = that of the machine (`collective.library`).
        algorithm, protocol, channels: instead of the library's choice.
        whole: simulate all bytes; else two smaller sizes give the time of a large collective.
        threads, fresh, store, progress: as in `run`.

    Returns:
        A `CollectiveResult`: time, choice, bandwidth, and the traffic of one GPU.

    Raises:
        UserError: an unknown name, a number of GPUs or channels that the machine does not have; as `run`.
    """
    preset = _machine(machine, changes)
    asked = Collective(
        *(preset, text_of("collective: kind", kind)),
        *(count_of("collective: gpus", gpus), count_of("collective: bytes", bytes)),
        library=library,
        algorithm=algorithm,
        protocol=None if protocol is None else text_of("collective: protocol", protocol),
        channels=None if channels is None else count_of("collective: channels", channels),
    )
    kept, fresh = store_of("collective: store", store), switch_of("collective: fresh", fresh)
    with use_threads(threads):
        return simulate_collective(asked, kept, fresh, switch_of("collective: whole", whole), progress)


def study(
    file: str | PathLike[str],
    folder: str | PathLike[str] = ".",
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    threads: int = 1,
    fresh: bool = False,
    store: Store | None = None,
    progress: StudyProgress | None = None,
) -> ResultsArchive:
    """Simulate every point of a study file. Runs in the store are not simulated again.

    Args:
        file: path of the study file (docs/studies.md).
        folder: folder of the archive. The name of the archive follows from the content of the study.
        workers: processes of a local Dask cluster; 0 or 1 = this process, without Dask; None = one per core.
        scheduler: address of a Dask scheduler that is used instead of a local cluster.
        threads: of each run.
        fresh, store: as in `run`.
        progress: called with (runs done, runs to do).

    Returns:
        A `ResultsArchive`: `runs_frame()`, `dataset()` and more; `path` of the file.

    Raises:
        UserError: an error in the file; a folder that cannot be written; Dask is not installed; lost workers (call
            again to simulate the rest).
    """
    kept = store_of("study: store", store)
    outcome = run_study(
        *(load_study(path_of("study: file", file)), path_of("study: folder", folder), workers, scheduler),
        threads=threads,
        store=kept,
        fresh=switch_of("study: fresh", fresh),
        progress=progress,
    )
    if outcome.lost:
        raise UserError(f"{file}: lost {len(outcome.lost)} runs, call again to simulate them: {outcome.lost[0]}")
    return open(outcome.archive)


def plot(
    kind: str,
    what: RunResult | ResultsArchive | str | PathLike[str],
    to: str | PathLike[str] | None = None,
    **settings: object,
) -> "Figure":
    """Draw a figure of results.

    Args:
        kind: traffic, queue (both need a time series), rates, roofline, study or speedups.
        what: a run, an archive, or the path of an archive.
        to: .png, .svg or .pdf file to write; None = do not write a file.
        settings: number (of the run), figure, over, relative, theme; see `sim.view.figures.draw`.

    Returns:
        The matplotlib figure; a notebook displays it.

    Raises:
        UserError: an unknown kind, results without the values of the figure, a file that cannot be written.
    """
    if isinstance(what, RunResult):
        archive = ResultsArchive([what])
    else:
        archive = what if isinstance(what, ResultsArchive) else open(path_of("plot", what))
    figure = draw(kind, [archive], **settings)  # type: ignore[arg-type]
    if to is not None:
        save(figure, path_of("plot: to", to))
    return figure


_machine = machine
"""For functions that have a parameter of this name."""


def _source(what: str | PathLike[str] | KernelSource | TraceSource, preset: Preset) -> TraceSource:
    if isinstance(what, str) and what.partition(":")[0] in KERNELS:
        return CommandSequence(make_kernels(what, gpu_facts(preset.machine)), what)
    if isinstance(what, str | PathLike):
        return trace(what)
    if isinstance(what, TraceSource):
        return what
    if isinstance(what, KernelSource):
        return CommandSequence([what])
    raise UserError(f"run: found {what!r}, allowed is a kernel or a trace, by name or as an object")
