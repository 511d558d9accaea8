"""Progress on stderr for work that takes longer than a moment: how far, how fast, how long yet."""

import sys
from time import perf_counter

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from traces.plain_text import shown

QUIET_S = 2.0
"""Work that ends earlier shows nothing."""
LINE_S = 10.0
"""Time between two lines where stderr is no terminal."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.3g} {task.fields['unit']}/s" if task.speed else "")


class Meter:
    """Progress that appears after QUIET_S: a bar on a terminal, else a line every LINE_S. A context manager."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._said_s = perf_counter() + QUIET_S - LINE_S
        self._what: str | None = None
        self._what_began_s = 0.0
        self._bar: Progress | None = None

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, what: str, done: int, total: int | None = None) -> None:
        """Report that `done` of `total` (None = unknown) units of a piece of work called `what` are done."""
        what, now_s = shown(what), perf_counter()
        fresh = what != self._what
        if fresh:
            self._what, self._what_began_s = what, now_s
        if now_s < self._said_s + LINE_S and self._bar is None:
            return
        if sys.stderr.isatty():
            self._draw(what, done, total, fresh)
        else:
            self._said_s = now_s
            print(_line(what, done, total, self._unit, now_s - self._what_began_s), file=sys.stderr, flush=True)

    def _draw(self, what: str, done: int, total: int | None, fresh: bool) -> None:
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task(what, total=total, unit=self._unit)
            self._bar.start()
        task = self._bar.task_ids[0]
        if fresh:
            self._bar.reset(task, description=what)
        self._bar.update(task, completed=done, total=total)


def _line(what: str, done: int, total: int | None, unit: str, passed_s: float) -> str:
    """One line of progress: how far, how fast, how long yet."""
    rate = done / passed_s if passed_s > 0 else 0.0
    line = f"t3sim: {what}: {done:,} {f'of {total:,} ' if total else ''}{unit}"
    if rate:
        line += f", {rate:,.3g}/s"
        line += f", {(total - done) / rate:,.0f} s left" if total else ""
    return line


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}"),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        refresh_per_second=4,
    )
