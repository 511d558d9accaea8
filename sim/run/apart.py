"""Simulate a run in a separate process. The import of the machine binds a user's arbiter, so each needs a process.

The child reads the run from its standard input. It writes the result, or why it failed, to its standard output; what a
policy prints goes to its standard error instead. It ends when its parent ends, because that closes its standard input.
"""

import os
import pickle
import subprocess
import sys
from threading import Thread

from sim.host.team import VARIABLE as THREADS
from sim.host.team import chosen
from sim.hw.policy import VARIABLE
from sim.run.result import RunResult
from sim.run.run import Run
from traces.errors import UserError

CHILD = f"""
import os, pickle, sys
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
try:
    from sim.run.apart import serve
    answer = serve()
except MemoryError as error:
    answer = MemoryError(str(error))
except BaseException as error:
    from sim.run.reason import reason_of
    from traces.errors import error_of_policy
    answer = reason_of(error_of_policy(os.environ["{VARIABLE}"], error) or error)
with answers:
    pickle.dump(answer, answers)
"""


def execute_apart(run: Run, policy: str) -> RunResult:
    """Simulate a run in a process that binds a policy.

    Args:
        run: the run.
        policy: path of the user's file.

    Raises:
        UserError: the run or the policy failed, or the policy ended the process.
        ChildProcessError: a signal has killed the process, for example because the memory is full.
        MemoryError: too little memory for the run.
    """
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env=os.environ
        | {VARIABLE: policy, THREADS: str(chosen() or ""), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin and process.stdout
        try:
            pickle.dump(run, process.stdin)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the child failed before it read the run; its answer says why
        text = process.stdout.read()
    if not text and process.returncode < 0:
        raise ChildProcessError(f"{policy}: signal {-process.returncode} has killed its separate process")
    if not text:
        raise UserError(f"{policy}: its separate process ended with status {process.returncode}")
    answer = pickle.loads(text)
    if isinstance(answer, str):
        raise UserError(answer)
    if isinstance(answer, MemoryError):
        raise answer
    return answer


def serve() -> RunResult:
    """Called in the child: simulate the run on standard input and return its result."""
    run = pickle.load(sys.stdin.buffer)
    Thread(target=_end_with_parent, daemon=True).start()
    return run.execute()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
