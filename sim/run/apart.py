"""A run in a process of its own: a user's arbiter is bound when the machine is imported, so another one needs another.

The child reads the run from its standard input and writes what it found, or why it failed, to its standard output. It
ends with its parent, whose end closes its standard input.
"""

import os
import pickle
import subprocess
import sys
from threading import Thread

from sim.hw.policy import VARIABLE
from sim.run.result import RunResult
from sim.run.run import Run
from traces.errors import UserError

CHILD = """
import pickle, sys
try:
    from sim.run.apart import serve
    answer = serve()
except Exception as error:
    from sim.run.reason import reason_of
    answer = reason_of(error)
sys.stdout.buffer.write(pickle.dumps(answer))
"""


def execute_apart(run: Run, policy: str) -> RunResult:
    """Simulate a run in a process that binds a policy.

    Args:
        run: what to simulate.
        policy: path of the user's file.

    Raises:
        UserError: what the run or the policy raised, or the end of the process.
    """
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env=os.environ | {VARIABLE: policy, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin and process.stdout
        try:
            pickle.dump(run, process.stdin)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has failed before it read the run, and says why
        text = process.stdout.read()
    if not text:
        raise UserError(f"{policy}: the process of its own ended with status {process.returncode}")
    answer = pickle.loads(text)
    if isinstance(answer, str):
        raise UserError(answer)
    return answer


def serve() -> RunResult:
    """The child: the result of the run on standard input."""
    run = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with_parent, daemon=True).start()
    return run.execute()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
