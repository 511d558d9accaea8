"""Progress on stderr for long work: units done, rate and time left."""

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
)
from rich.text import Text

from traces.plain_text import shown

QUIET_S = 2.0
"""Work that ends earlier prints no progress."""
LINE_S = 10.0
"""Time between two lines if stderr is no terminal."""


class _Count(ProgressColumn):
    """Units done, of all, the mean rate and the time left."""

    def render(self, task: Task) -> Text:
        total = f"/{task.total:,.0f}" if task.total else ""
        return Text(f"{task.completed:,.0f}{total} {task.fields['unit']}{task.fields['pace']}")


class Meter:
    """A context manager that shows progress after QUIET_S: a bar on a terminal, else a line every LINE_S."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._printed_s = perf_counter() + QUIET_S - LINE_S
        self._work: str | None = None
        self._work_began_s, self._work_began = 0.0, 0
        self._bar: Progress | None = None

    def __enter__(self) -> "Meter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, work: str, done: int, total: int | None = None) -> None:
        """Report that `done` of `total` (None = unknown) units of a piece of work called `work` are done."""
        work, now_s = shown(work), perf_counter()
        is_new = work != self._work
        if is_new:
            self._work, self._work_began_s, self._work_began = work, now_s, done
        if now_s < self._printed_s + LINE_S and self._bar is None:
            return
        pace = _pace(done - self._work_began, None if total is None else total - done, now_s - self._work_began_s)
        if sys.stderr.isatty():
            self._draw(work, done, total, pace, is_new)
        else:
            self._printed_s = now_s
            whole = f"of {total:,} " if total else ""
            print(f"t3sim: {work}: {done:,} {whole}{self._unit}{pace}", file=sys.stderr, flush=True)

    def _draw(self, work: str, done: int, total: int | None, pace: str, is_new: bool) -> None:
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task(work, total=total, unit=self._unit, pace="")
            self._bar.start()
        task = self._bar.task_ids[0]
        if is_new:
            self._bar.reset(task, description=work)
        self._bar.update(task, completed=done, total=total, pace=pace)


def _pace(done: int, left: int | None, passed_s: float) -> str:
    """The mean rate since a piece of work began, and the time left at this rate; "" = not known yet."""
    if done <= 0 or passed_s <= 0:
        return ""
    rate = done / passed_s
    return f", {rate:,.3g}/s" + ("" if left is None else f", {left / rate:,.0f} s left")


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        _Count(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        refresh_per_second=4,
    )
