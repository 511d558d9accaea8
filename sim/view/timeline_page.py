"""The timeline as an HTML page: what the page needs of the sections, as plain values. Times are nanoseconds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.view.lanes import Bars, Group, Levels, Section
from sim.view.page import page
from traces.units import PS_PER_NS

DIGITS = 3
"""Decimal places of times (ns) and levels."""
FOLDED = ("CUs", "DRAM channels")
"""Groups that the page shows folded at first."""


def timeline_page(sections: Sequence[Section], title: str) -> str:
    """The page as text."""
    return page("timeline", f"t3sim: {title}", {"title": title, "sections": [_section(one) for one in sections]})


def _section(section: Section) -> dict[str, Any]:
    return {
        "name": section.name,
        "runs": section.runs,
        "time": _ns(section.time_ps),
        "end": _ns(section.end_ps),
        "cut": section.cut,
        "gpus": section.gpus,
        "note": section.note,
        "groups": [_group(group) for group in section.groups],
        "arrows": [
            [
                arrow.tag,
                _ns(arrow.trigger_ps),
                f"chunk {arrow.chunk}",
                _ns(arrow.start_ps),
                f"DMA engine {arrow.engine}",
                arrow.gpu,
            ]
            for arrow in section.arrows
        ],
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "gpu": group.gpu,
        "folded": group.name in FOLDED,
        "summary": None if group.summary is None else _levels(group.summary),
        "lanes": [_levels(lane) if isinstance(lane, Levels) else _bars(lane) for lane in group.lanes],
    }


def _bars(lane: Bars) -> dict[str, Any]:
    at = lane.at
    return {
        "name": lane.name,
        "item": lane.item,
        "start": _all_ns(at["start_ps"]),
        "end": _all_ns(at["end_ps"]),
        **{name: at[name].tolist() for name in ("tag", "chunk", "phase")},
        "place": lane.place.tolist(),
        "labels": list(lane.labels),
    }


def _levels(lane: Levels) -> dict[str, Any]:
    return {
        "name": lane.name,
        "unit": lane.unit,
        "peak": round(lane.peak, DIGITS),
        "start": _all_ns(lane.start_ps),
        "end": _all_ns(lane.end_ps),
        "columns": {label: np.round(column, DIGITS).tolist() for label, column in lane.columns.items()},
    }


def _ns(time_ps: int) -> float:
    return round(int(time_ps) / PS_PER_NS, DIGITS)


def _all_ns(times_ps: np.ndarray) -> list[float]:
    return [float(time) for time in np.round(times_ps / PS_PER_NS, DIGITS).tolist()]
