"""The threads that run one GPU."""

import sys
from collections.abc import Callable
from contextlib import suppress

from sim.host.team import Team, threads
from sim.machine.build import Node
from sim.machine.clusters import run_peers
from sim.machine.engine import run_dispatchers, run_engine
from sim.machine.phase_banks import run_banks
from sim.machine.phase_cus import run_cus
from sim.machine.phase_dma import run_dmas
from sim.machine.phase_links import run_arrivals, run_links
from sim.machine.phase_memory import run_channels, run_mscs
from sim.machine.phase_noc import run_answers, run_requests
from sim.machine.team import ABANDONED, HERE, make_team
from sim.machine.tracking import run_tracker
from tracer.compile.ahead import Helper
from tracer.compile.jit import stop_compiling
from tracer.compile.process import is_compiled

AHEAD = (
    *(run_cus, run_channels, run_banks, run_mscs, run_tracker, run_requests),
    *(run_dispatchers, run_answers, run_dmas, run_peers, run_arrivals, run_links),
)
"""The functions of the engine that have machine code of their own. Those that take longest to compile come first."""
MAX_HELPERS = 3
"""Processes that compile ahead. One more would save nothing: the longest function takes a quarter of the time."""


class Crew:
    """Runs the engine of one GPU on a number of threads."""

    _helped = False
    """Has a crew of this process had helpers that compile? Once is enough."""

    def __init__(self, count: int):
        """count: threads."""
        self._team = Team(count)
        self._words = make_team(count)
        self._helpers: list[Helper] = []

    def compile_ahead(self, node: Node) -> None:
        """Begin to compile the engine in other processes, if it is not compiled and there are cores for them.

        This process compiles the rest, then what it needs first and no other process has compiled yet.
        """
        if threads() > 1 and not Crew._helped and is_compiled(run_engine) is False:
            Crew._helped = True
            calls = [(function, (node, *[0] * (function.py_func.__code__.co_argcount - 1))) for function in AHEAD]
            count = min(threads() - 1, MAX_HELPERS)
            with suppress(OSError):  # the system starts no process, or it ended at once: all is compiled here
                for first in range(count):
                    self._helpers.append(Helper(calls[first::count]))

    def run(self, engine: Callable[..., int], until_ps: int) -> int:
        """Call engine(words, number of the thread, until_ps) on each thread. Returns its result."""
        words = self._words
        words[ABANDONED] = words[HERE] = 0

        def failed() -> None:
            words[ABANDONED] = 1
            if sys.exc_info()[0] is KeyboardInterrupt:  # other threads may still compile the engine
                stop_compiling()

        try:
            return self._team.run(lambda me: engine(words, me, until_ps), failed)
        finally:
            stop_compiling(False)
            while self._helpers:
                self._helpers.pop().stop()
