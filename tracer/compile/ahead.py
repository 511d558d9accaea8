"""Another process that compiles parts of a program, while this one compiles the other parts.

numba compiles under one lock, so threads cannot share the work. Processes can: the helper stores its parts in the cache
(`tracer.compile.cache`), where this process looks before it compiles one. What is not there in time is compiled here
too. So a helper can only save time. Whatever becomes of it, the machine code is the same.
"""

import importlib
import os
import pickle
import subprocess
import sys
import threading

import numba
from numba.core.serialize import dumps

from tracer.compile.dispatcher import Dispatcher


class Helper:
    """A process that compiles parts. It ends when it has compiled all, with `stop`, and with this process."""

    def __init__(self, calls):
        """calls: (compiled function, arguments of one of its calls) of each part, in this order.

        Raises:
            OSError: the system starts no process, or the process ended at once.
        """
        asked = [
            (function.__module__, function.__qualname__, tuple(numba.typeof(value) for value in arguments))
            for function, arguments in calls
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tracer.compile.ahead"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._process.stdin.write(dumps(asked))
        self._process.stdin.flush()

    def wait(self):
        """Wait until all parts are compiled. Returns the exit status, 0 = well."""
        return self._process.wait()

    def stop(self):
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _end_with_parent():
    """The parent keeps its end of the pipe open for as long as it wants help, and writes nothing more."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(0)


def main():
    """Compile the parts that standard input names."""
    asked = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for module, name, kinds in asked:
        importlib.import_module(module)
        Dispatcher.known[module, name].part(kinds)


if __name__ == "__main__":
    main()
