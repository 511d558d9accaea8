"""A timeline in the Chrome trace event format, which Perfetto's UI opens. Times in the file are microseconds.

A process is a group of lanes of a section, a thread is a lane. Bars that overlap in a lane get threads of their own.
Triggers are slices of one nanosecond, so that an arrow can begin at them.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sim.view.lanes import SHORTEST_PS, Arrow, Bars, Group, Levels, Section
from traces.units import PS_PER_US

Event = dict[str, Any]
PLACES = 64
"""Thread numbers reserved for a lane."""
ARROW = {"name": "triggers", "cat": "trigger"}


def chrome_trace(sections: Sequence[Section], title: str) -> str:
    """The timeline as JSON text."""
    content = {
        "traceEvents": list(trace_events(sections)),
        "displayTimeUnit": "ns",
        "otherData": {"title": title, "time_us": {one.name: one.time_ps / PS_PER_US for one in sections}},
    }
    return json.dumps(content, separators=(",", ":"))


def trace_events(sections: Sequence[Section]) -> Iterator[Event]:
    """All events: names of processes and threads, slices, counters, arrows."""
    process = flow = 0
    for section in sections:
        processes: dict[tuple[int, str], int] = {}
        for group in section.groups:
            process += 1
            processes[group.gpu, group.name] = process
            gpu = f"GPU {group.gpu}, " if section.gpus > 1 else ""
            yield _name_event("process_name", process, 0, f"{section.name}: {gpu}{group.name}")
            yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
            yield from _group_events(group, process)
        for arrow in section.arrows:
            flow += 1
            yield from _arrow_events(arrow, flow, section, processes)


def _group_events(group: Group, process: int) -> Iterator[Event]:
    lanes = [group.summary, *group.lanes] if group.summary else group.lanes
    for number, lane in enumerate(lanes):
        if isinstance(lane, Levels):
            yield from _counters(lane, process)
        else:
            yield from _slices(lane, process, number * PLACES)


def _name_event(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _slices(lane: Bars, process: int, first: int) -> Iterator[Event]:
    for place in range(int(lane.place.max()) + 1):
        yield _name_event("thread_name", process, first + place, lane.name + (f".{place}" if place else ""))
    for number, (at, place) in enumerate(zip(lane.at, lane.place, strict=True)):
        start_ps, end_ps, tag, chunk = (int(at[name]) for name in ("start_ps", "end_ps", "tag", "chunk"))
        yield {
            "ph": "X",
            "name": lane.labels[number] if lane.labels else f"{lane.item} {tag}",
            "pid": process,
            "tid": first + int(place),
            "ts": start_ps / PS_PER_US,
            "dur": max(end_ps - start_ps, SHORTEST_PS) / PS_PER_US,
            "args": {"tag": tag} | ({"chunk": chunk} if chunk >= 0 else {}),
        }


def _counters(lane: Levels, process: int) -> Iterator[Event]:
    name = f"{lane.name}, {lane.unit}"
    for k, start_ps in enumerate(lane.start_ps.tolist()):
        values = {label: round(float(column[k]), 3) for label, column in lane.columns.items()}
        yield {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": start_ps / PS_PER_US, "args": values}
    if len(lane.end_ps):  # a counter keeps its value
        end_us, values = int(lane.end_ps[-1]) / PS_PER_US, dict.fromkeys(lane.columns, 0.0)
        yield {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": end_us, "args": values}


def _arrow_events(arrow: Arrow, flow: int, section: Section, processes: dict[tuple[int, str], int]) -> Iterator[Event]:
    """An arrow binds to the slices in which it begins and ends."""
    groups = {group.name: group for group in section.groups if group.gpu == arrow.gpu}
    ends = (
        ("s", "Tracker", f"chunk {arrow.chunk}", arrow.trigger_ps),
        ("f", "DMA engines", f"DMA engine {arrow.engine}", arrow.start_ps),
    )
    for phase, group, name, time_ps in ends:
        first = 1 if groups[group].summary else 0
        number, lane = next((k, lane) for k, lane in enumerate(groups[group].lanes, first) if lane.name == name)
        assert isinstance(lane, Bars)
        bar = np.flatnonzero((lane.at["tag"] == arrow.tag) & (lane.at["start_ps"] == time_ps))[0]
        thread = number * PLACES + int(lane.place[bar])
        bound = {"bp": "e"} if phase == "f" else {}
        place = {"pid": processes[arrow.gpu, group], "tid": thread, "ts": time_ps / PS_PER_US}
        yield {"ph": phase, "id": flow, **ARROW, **place, **bound}
