"""Timeline of a run in the Chrome trace event format. The Perfetto UI and chrome://tracing can open it.

Tracks: workgroups per CU (one row per place), DMA transfers per engine, Tracker triggers per chunk, stages of the GEMM.
Counters: DRAM traffic per stream, link, queue occupancy, live tiles. Times in the file are microseconds.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from sim.hw.spans import SpanKind
from sim.run.result import RunResult
from traces.errors import UserError
from traces.units import PS_PER_US

Event = dict[str, Any]
STAGES, CUS, DMAS, TRACKER, COUNTERS = 1, 2, 3, 4, 5
PROCESSES = {STAGES: "stages", CUS: "CUs", DMAS: "DMA engines", TRACKER: "Tracker", COUNTERS: "memory and links"}
PLACES = 64
"""Thread numbers reserved for the rows of a CU."""
RATES = {
    "DRAM GB/s": {
        "compute reads": "dram_compute_read_bytes",
        "compute writes": "dram_compute_write_bytes",
        "communication reads": "dram_comm_read_bytes",
        "communication writes": "dram_comm_write_bytes",
    },
    "link GB/s": {"sent": "link_bytes"},
}
LEVELS = {"DRAM queue entries": "queue_columns", "live tiles": "tracker_live_tiles"}


def trace_events(run: RunResult) -> list[Event]:
    """All events of a run.

    Raises:
        UserError: the run has no time series.
    """
    if not len(run.spans):
        raise UserError("timeline: this run has none; repeat it with an output archive (and its time series)")
    names = [_name_event("process_name", process, 0, name) for process, name in PROCESSES.items()]
    return [*names, *_spans(run), *_triggers(run), *_stages(run), *_counters(run)]


def chrome_trace(run: RunResult, title: str) -> str:
    """The timeline as JSON text."""
    content = {
        "traceEvents": trace_events(run),
        "displayTimeUnit": "ns",
        "otherData": {"title": title, "time_us": run.time_ps / PS_PER_US},
    }
    return json.dumps(content, separators=(",", ":"))


def places(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """A row for each span: the lowest row that is free at its start. Spans in one row do not overlap."""
    free: list[int] = []
    row_of = np.zeros(len(starts), np.int64)
    for k in np.argsort(starts, kind="stable"):
        row = next((number for number, until in enumerate(free) if until <= starts[k]), len(free))
        if row == len(free):
            free.append(0)
        free[row], row_of[k] = int(ends[k]), row
    return row_of


def _name_event(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _complete(name: str, process: int, thread: int, start_ps: int, end_ps: int, **facts: int) -> Event:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": start_ps / PS_PER_US,
        "dur": (end_ps - start_ps) / PS_PER_US,
        "args": facts,
    }


def _spans(run: RunResult) -> Iterator[Event]:
    """Events of workgroups and DMA transfers."""
    for kind, process, unit_name, item in (
        (SpanKind.WORKGROUP, CUS, "CU", "workgroup"),
        (SpanKind.DMA, DMAS, "engine", "tile"),
    ):
        spans = run.spans[run.spans["kind"] == kind]
        for unit in np.unique(spans["unit"]):
            own = spans[spans["unit"] == unit]
            rows = places(own["start_ps"], own["end_ps"])
            for row in range(int(rows.max()) + 1):
                thread = int(unit) * PLACES + row
                yield _name_event("thread_name", process, thread, f"{unit_name} {unit}" + (f".{row}" if row else ""))
            for span, row in zip(own, rows, strict=True):
                tag, start_ps, end_ps = (int(span[name]) for name in ("tag", "start_ps", "end_ps"))
                yield _complete(f"{item} {tag}", process, int(unit) * PLACES + int(row), start_ps, end_ps, tag=tag)


def _triggers(run: RunResult) -> Iterator[Event]:
    for chunk in np.unique(run.triggers[:, 2]):
        yield _name_event("thread_name", TRACKER, int(chunk), f"chunk {chunk}")
    for tile, time_ps, chunk in run.triggers.tolist():
        yield {
            "ph": "i",
            "s": "t",
            "name": f"tile {tile}",
            "pid": TRACKER,
            "tid": chunk,
            "ts": time_ps / PS_PER_US,
            "args": {"tile": tile},
        }


def _stages(run: RunResult) -> Iterator[Event]:
    """Events of stages: from the first workgroup of a chunk to the end of its last workgroup."""
    workgroups = run.spans[run.spans["kind"] == SpanKind.WORKGROUP]
    chunk_of = dict(run.triggers[:, [0, 2]].tolist())
    chunk = np.array([chunk_of.get(tag, 0) for tag in workgroups["tag"].tolist()], np.int64)
    for number in np.unique(chunk):
        own = workgroups[chunk == number]
        yield _name_event("thread_name", STAGES, int(number), f"stage {number}")
        start_ps, end_ps = int(own["start_ps"].min()), int(own["end_ps"].max())
        yield _complete(f"stage {number}", STAGES, int(number), start_ps, end_ps, workgroups=len(own))


def _counters(run: RunResult) -> Iterator[Event]:
    interval_ps = run.interval_ps
    rows = len(next(iter(run.series.values()), ()))
    times = [k * interval_ps / PS_PER_US for k in range(rows)]
    for title, columns in RATES.items():
        for k in range(rows):
            rates = {
                name: round(float(run.column(column)[k]) * 1000 / interval_ps, 3) for name, column in columns.items()
            }
            yield {"ph": "C", "name": title, "pid": COUNTERS, "tid": 0, "ts": times[k], "args": rates}
    for title, column in LEVELS.items():
        for k in range(rows):
            yield {
                "ph": "C",
                "name": title,
                "pid": COUNTERS,
                "tid": 0,
                "ts": times[k],
                "args": {"level": int(run.column(column)[k])},
            }
