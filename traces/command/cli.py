"""The command `t3sim`. It turns a mistake into one line and an exit status. `traces.command.verbs` finds the verbs.

Exit status: 0 = done, 1 = the simulator failed, 2 = a mistake of the user (one line names it), 130 = interrupted,
143 = terminated (SIGTERM), which ends a command as Ctrl-C does.
"""

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from traces.command.verbs import VerbGroup
from traces.errors import UserError, error_of_policy
from traces.plain_text import shown
from traces.version import VERSION

DONE, FAILED, MISTAKE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143

POLICY_OPTION = "--policy"
"""Option of the verbs that simulate. The file must be known before the verb is imported (sim.hw.policy)."""
POLICY_VARIABLE = "T3SIM_POLICY"


def _announce_policy(arguments: list[str]) -> None:
    """Store the policy that the arguments name in the environment, where sim.hw.policy reads it."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == POLICY_OPTION and (equals or place + 1 < len(arguments)):
            os.environ[POLICY_VARIABLE] = os.path.abspath(value if equals else arguments[place + 1])


t3sim = VerbGroup(
    before_verb=_announce_policy,
    name="t3sim",
    help="Simulate GEMMs, traces and collectives on GPUs with near-memory compute.\n\n"
    "Example: t3sim run --workload t-nlg/fc2/tp8 --preset t3_2024 -o result.h5",
)
t3sim = click.version_option(VERSION, prog_name="t3sim")(t3sim)


def main(arguments: list[str] | None = None) -> int:
    """Run one verb. Returns the exit status."""
    with _signals() as terminated:
        status = _status_of(arguments)
    if status != INTERRUPTED:
        return status
    print(f"t3sim: {'terminated' if terminated else 'interrupted'}", file=sys.stderr)
    return TERMINATED if terminated else INTERRUPTED


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Context manager: SIGTERM and SIGINT raise KeyboardInterrupt. Gives a list to which a SIGTERM is added."""
    terminated: list[int] = []

    def terminate(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # `timeout` sends it twice, and this process is ending
        terminated.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield terminated
        return
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell starts `t3sim ... &` with interrupts ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield terminated
    finally:
        if not terminated:
            signal.signal(signal.SIGTERM, before)


def _status_of(arguments: list[str] | None) -> int:
    """Run one verb. Returns the exit status; INTERRUPTED is not yet reported."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell has closed it (`>&-`)
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends
    try:
        status = t3sim.main(arguments, prog_name="t3sim", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as end:
        print(end.format_message())
        return MISTAKE
    except click.ClickException as mistake:
        return _mistake(mistake.format_message(), getattr(mistake, "ctx", None))
    except UserError as mistake:
        return _mistake(str(mistake))
    except BrokenPipeError:  # the reader of our output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except MemoryError as problem:
        return _mistake(f"not enough memory for this machine and problem ({problem})")
    except OSError as problem:
        unnamed = "standard output" if problem.errno == errno.ENOSPC else "system"
        return _mistake(f"{problem.filename or unnamed}: {problem.strerror or problem}")
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BaseException as error:
        if _is_interrupt(error):
            return INTERRUPTED
        mistake_in_policy = error_of_policy(os.environ.get(POLICY_VARIABLE, ""), error)
        if mistake_in_policy is None:
            raise
        return _mistake(str(mistake_in_policy))
    return status if isinstance(status, int) else DONE  # the status that a verb gave to ctx.exit


def _is_interrupt(error: BaseException | None) -> bool:
    """Did an interrupt cause the error? A library may turn an interrupt into another error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _mistake(message: str, ctx: click.Context | None = None) -> int:
    """Print on one line what the user must change."""
    print(f"{ctx.command_path if ctx else 't3sim'}: {shown(' '.join(message.split()))}", file=sys.stderr)
    return MISTAKE
