"""Processes that are killed in the middle of their work."""

import os
import signal
import subprocess
import sys

from tests.support.paths import ROOT

READY = "ready"
"""Line that a process prints when it is to be killed. Then it must wait."""


def started(code, *arguments, **environment):
    """A process that runs `code` and has printed READY."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1", **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert any(line.strip() == READY for line in process.stdout), process.wait()
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
