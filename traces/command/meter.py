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
    TimeRemainingColumn,
)
from rich.text import Text

from traces.plain_text import shown

QUIET_S = 2.0
"""Work that ends earlier prints no progress."""
LINE_S = 10.0
"""Time between two lines if stderr is no terminal."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.3g} {task.fields['unit']}/s" if task.speed else "")


class Meter:
    """A context manager that shows progress after QUIET_S: a bar on a terminal, else a line every LINE_S."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._printed_s = perf_counter() + QUIET_S - LINE_S
        self._work: str | None = None
        self._work_began_s = 0.0
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
            self._work, self._work_began_s = work, now_s
        if now_s < self._printed_s + LINE_S and self._bar is None:
            return
        if sys.stderr.isatty():
            self._draw(work, done, total, is_new)
        else:
            self._printed_s = now_s
            print(_line(work, done, total, self._unit, now_s - self._work_began_s), file=sys.stderr, flush=True)

    def _draw(self, work: str, done: int, total: int | None, is_new: bool) -> None:
        if self._bar is None:
            self._bar = _bar()
            self._bar.add_task(work, total=total, unit=self._unit)
            self._bar.start()
        task = self._bar.task_ids[0]
        if is_new:
            self._bar.reset(task, description=work)
        self._bar.update(task, completed=done, total=total)


def _line(work: str, done: int, total: int | None, unit: str, passed_s: float) -> str:
    """One line of progress: units done, rate and time left."""
    rate = done / passed_s if passed_s > 0 else 0.0
    line = f"t3sim: {work}: {done:,} {f'of {total:,} ' if total else ''}{unit}"
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
