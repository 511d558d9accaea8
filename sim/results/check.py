"""Check that a run that was read has the form that tables, figures and comparisons expect.

A file of an older version has no seal, and whoever wrote a seal can have written anything before it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sim.host.recorded import Recorded
from sim.hw.request import STREAMS
from sim.hw.spans import SPAN
from sim.machine.stalls import STALL
from sim.run.result import KernelResult, ResultsError, RunResult
from sim.scenario.result import ALL_CONFIGURATIONS, COLUMN, TRAFFIC, WHOLE

LATEST_PS = (1 << 63) - 1
OF_CONFIGURATION = (
    *("time_ns", "gemm_ns", "rs_ns", "ag_ns", "link_bytes", "exactly_once"),
    *(f"dram_{kind}_bytes" for kind in TRAFFIC),
)
"""Figures that each configuration of a scenario has (`sim.scenario.archive.scenario_figures`)."""
OF_FUSED = (
    *("link_busy_ps", "dma_descriptors", "mca_occupancy"),
    *("tracker_live_max", "tracker_stalls", "tracker_spilled", "tracker_triggers"),
)
"""Figures that a fused kernel has (`sim.run.cluster_result`), besides mca_threshold."""
ROW, GEMM, *FUSED = ({COLUMN: name} for name in (WHOLE, "gemm", "t3", "t3_mca"))
"""`point` of the row of a scenario, and of runs that its tables compare."""


def check_run(run: RunResult, where: str) -> None:
    """Refuse a run with impossible values.

    Args:
        run: as read.
        where: group of the run, for the message.

    Raises:
        ResultsError: names the first impossible value, and what is allowed.
    """
    for fits, name, allowed in _rules(run):
        if not fits:
            raise ResultsError(f"{where}: {name}: allowed is {allowed}")
    for number, kernel in enumerate(run.kernels):
        _check_kernel(kernel, f"{where}: kernel {number}")


def _rules(run: RunResult) -> Iterator[tuple[bool, str, str]]:
    """(True if the rule holds, what it is about, what is allowed) for every rule."""
    for name in ("input", "options", "figures", "point"):
        yield isinstance(getattr(run, name), dict), name, "a JSON object"
    yield from _rules_of_figures(run)
    flops = run.input.get("flops", [None] * len(run.kernels))
    fits = isinstance(flops, list) and len(flops) == len(run.kernels)
    yield fits and all(flop is None or isinstance(flop, int) for flop in flops), "flops of input", "one for each kernel"
    for name in ("wrong", "warnings"):
        yield all(isinstance(text, str) for text in getattr(run, name)), name, "a list of texts"
    timed = bool(run.series) or len(run.spans) > 0
    yield run.interval_ps >= int(timed), "interval_ps", "0, and 1 and more with a time series"
    yield from _rules_of_records(run)
    for other in run.others:
        yield from _rules_of_records(other)
    mean = run.mean_dram_bytes
    yield mean is None or (mean.dtype == np.int64 and mean.shape == (STREAMS,)), "mean_dram_bytes", f"i8 [{STREAMS}]"


def _rules_of_figures(run: RunResult) -> Iterator[tuple[bool, str, str]]:
    """The same for the figures: numbers, and all that each configuration and each fused kernel has."""
    for name, value in run.figures.items():
        fits = value is None or _is_number(value, -LATEST_PS)
        yield fits, f"figures: {name}", f"a number of 64 bits or null, found {value!r}"
    named = {name.partition(".")[0] for name in run.figures}
    needed = [f"{name}.{figure}" for name in ALL_CONFIGURATIONS if name in named for figure in OF_CONFIGURATION]
    for name in (*needed, *(OF_FUSED if run.point in FUSED else ())):
        value = run.figures.get(name, "nothing")
        yield _is_number(value, 0), f"figures: {name}", f"a number from 0, found {value}"
    limited = run.point not in FUSED or "mca_threshold" in run.figures
    yield limited, "figures: mca_threshold", "a number or null, found nothing"
    yield run.point != ROW or bool(needed), "figures", f"one or more of {', '.join(ALL_CONFIGURATIONS)}"
    timed = run.time_ps > 0 and run.kernel_ps != 0
    yield run.point not in (GEMM, *FUSED) or timed, "time", "more than 0 ps for a run of a GEMM"


def _is_number(value: Any, least: int) -> bool:
    return type(value) in (int, float) and least <= value <= LATEST_PS


def _rules_of_records(run: RunResult | Recorded) -> Iterator[tuple[bool, str, str]]:
    """The same for what a GPU has recorded."""
    lengths = {values.shape for values in run.series.values()}
    yield len(lengths) <= 1 and all(len(shape) == 1 for shape in lengths), "series", "columns of one length"
    yield all(values.dtype == np.int64 for values in run.series.values()), "series", "64-bit integers"
    channels, rows = run.channel_bytes, next((shape[0] for shape in lengths), 0)
    yield channels.dtype == np.int64 and channels.ndim == 2, "channel_bytes", "i8 [time, channels]"
    yield len(channels) in (0, rows), "channel_bytes", "a row per interval of the series"
    yield run.spans.dtype == SPAN and run.spans.ndim == 1, "spans", "a column of spans"
    yield run.stalls.dtype == STALL and run.stalls.ndim == 1, "stalls", "a column of samples"
    triggers = run.triggers
    yield triggers.dtype == np.int64 and triggers.ndim == 2 and triggers.shape[1] == 3, "triggers", "i8 [tiles, 3]"


def check_text(text: str, where: str) -> None:
    """Refuse a text that no file can hold: h5py reads bytes that are no UTF-8 as unpaired surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ResultsError(f"{where}: found {text!a}, allowed is UTF-8") from None


def _check_kernel(kernel: KernelResult, where: str) -> None:
    check_text(kernel.name, f"{where}: name")
    if not 0 <= kernel.start_ps <= kernel.end_ps <= LATEST_PS:
        raise ResultsError(f"{where}: found {kernel.start_ps} to {kernel.end_ps} ps, allowed are rising times from 0")
    for unit, counters in kernel.units.items():
        names = counters.dtype.names or ()
        if counters.ndim != 1 or not names or not all(_is_counter(counters.dtype[name]) for name in names):
            raise ResultsError(f"{where}: units/{unit}: allowed is a row of integer counters per instance")
    _check_totals(kernel.totals, f"{where}: totals")
    if kernel.time_ps == 0 and kernel.totals.get("cu.tensor_macs", 0):
        raise ResultsError(f"{where}: found a time of 0 ps, allowed is more, because it multiplies")


def _is_counter(kind: np.dtype) -> bool:
    return kind.base == np.int64 and kind.shape in ((), (STREAMS,))


def _check_totals(totals: dict[str, int], where: str) -> None:
    if not all(type(value) is int for value in totals.values()):
        raise ResultsError(f"{where}: allowed are whole numbers")
    if not all(1 <= name.count(".") <= 2 for name in totals):
        raise ResultsError(f"{where}: allowed names are unit.counter and unit.counter.stream")
