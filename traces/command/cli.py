"""The command `t3sim`: finds the verb, and turns mistakes into one line and an exit status.

A verb's module is imported when it is called, so that each verb loads and compiles only what it needs.
Exit status: 0 = done, 1 = the simulator failed, 2 = a mistake of the user's (one line says which), 130 = interrupted.
"""

import errno
import importlib
import os
import sys
import traceback
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from traces.errors import UserError
from traces.version import VERSION

DONE, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130


class Verb(NamedTuple):
    """Where a verb stands, and what the list of verbs says about it."""

    module: str
    attribute: str
    summary: str


POLICY_OPTION = "--policy"
"""Of the verbs that simulate: the file is bound when the machine is imported, so before the verb is (sim.hw.policy)."""
POLICY_VARIABLE = "T3SIM_POLICY"
REASON_CHARACTERS = 500
"""Of a compiler's message."""


class VerbGroup(click.Group):
    """A click group that imports its verbs only when they are asked for."""

    def __init__(self, verbs: dict[str, Verb], **settings) -> None:
        super().__init__(**settings)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self._verbs:
            raise click.UsageError(f"no verb {args[0]!r}; allowed are {', '.join(self._verbs)}", ctx)
        _announce_policy(args)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs with their summaries, without importing them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        verbs = self._verbs.items()
        return [CompletionItem(name, help=verb.summary) for name, verb in verbs if name.startswith(incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._verbs:
            return None
        verb = self._verbs[cmd_name]
        command: click.Command = getattr(importlib.import_module(verb.module), verb.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.summary) for name, verb in self._verbs.items()])


TRACE_VERBS = {
    "import": Verb("tracer.verbs.trace_import", "import_trace", "Accel-Sim traces -> trace archive"),
    "export": Verb("tracer.verbs.trace_export", "export_trace", "trace archive -> Accel-Sim traces"),
    "make": Verb("tracer.verbs.trace_make", "make_trace", "synthesise a kernel -> trace archive"),
    "info": Verb("tracer.verbs.trace_info", "trace_info", "what a trace archive holds"),
    "verify": Verb("tracer.verbs.trace_info", "verify_trace", "check every byte of a trace archive"),
}
trace = VerbGroup(
    TRACE_VERBS,
    name="trace",
    help="Make and look at trace archives.\n\nExample: t3sim trace make gemm:m=512,n=512,k=256 -o gemm.h5",
    no_args_is_help=True,
)
ELF_VERBS = {
    "info": Verb("sim.verbs.elf", "elf_info", "kernel resources of a CUDA or AMD binary"),
}
elf = VerbGroup(
    ELF_VERBS,
    name="elf",
    help="Look into GPU binaries.\n\nExample: t3sim elf info app --preset v100 --threads 256",
    no_args_is_help=True,
)
VERBS = {
    "trace": Verb("traces.command.cli", "trace", "make and look at trace archives"),
    "elf": Verb("traces.command.cli", "elf", "look into GPU binaries"),
    "run": Verb("sim.verbs.run", "run", "replay a trace or a kernel on a machine -> results archive"),
    "t3": Verb("sim.verbs.t3", "t3", "a GEMM and its all-reduce in the five configurations of the paper"),
    "show": Verb("sim.verbs.show", "show", "what a results archive holds"),
    "plot": Verb("sim.verbs.plot", "plot", "figures of a results archive, as PNG or SVG"),
    "timeline": Verb("sim.verbs.timeline", "timeline", "what ran where and when, for Perfetto or as a page"),
    "diff": Verb("sim.verbs.archives", "diff", "what differs between two results archives"),
    "merge": Verb("sim.verbs.archives", "merge", "several results archives -> one, of the newest version"),
    "presets": Verb("sim.verbs.presets", "presets", "the machines, every value with its source"),
    "sweep": Verb("sim.verbs.sweep", "sweep", "run a study of many points -> one results archive"),
    "dram": Verb("sim.verbs.dram", "dram", "one HBM channel on a stream of requests"),
    "doctor": Verb("sim.verbs.doctor", "doctor", "versions, caches, what is compiled, what is wrong"),
    "completion": Verb("traces.verbs.completion", "completion", "completion of verbs and options for your shell"),
    "validate": Verb(
        "validation.verbs.validate", "validate", "what was published and measured beside what we simulate"
    ),
    "warm": Verb("sim.verbs.warm", "warm", "compile all kernels now"),
}
t3sim = VerbGroup(
    VERBS,
    name="t3sim",
    help="Simulate GEMMs, traces and collectives on GPUs with near-memory compute.\n\n"
    "Example: t3sim run --workload t-nlg/fc2/tp8 --preset t3_2024 -o result.h5",
    no_args_is_help=True,
)
t3sim = click.version_option(VERSION, prog_name="t3sim")(t3sim)


def main(arguments: list[str] | None = None) -> int:
    """Run one verb. Returns the exit status."""
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
    except BrokenPipeError:  # the reader of our output has gone: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except MemoryError as problem:
        return _mistake(f"not enough memory for this machine and problem ({problem})")
    except OSError as problem:
        nameless = "standard output" if problem.errno == errno.ENOSPC else "system"
        return _mistake(f"{problem.filename or nameless}: {problem.strerror or problem}")
    except (click.Abort, KeyboardInterrupt):
        print("t3sim: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        policy = os.environ.get(POLICY_VARIABLE)
        if not policy or not _raised_in_compiler(error):
            raise
        return _mistake(f"{policy}: cannot be compiled: {type(error).__name__}: {str(error)[:REASON_CHARACTERS]}")
    return status if isinstance(status, int) else DONE  # what a verb gave to ctx.exit


def _announce_policy(arguments: list[str]) -> None:
    """Put a policy that the arguments name into the environment, where sim.hw.policy looks."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == POLICY_OPTION and (equals or place + 1 < len(arguments)):
            os.environ[POLICY_VARIABLE] = os.path.abspath(value if equals else arguments[place + 1])


def _raised_in_compiler(error: Exception) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").startswith("numba.core.") for frame, _ in frames)


def _mistake(message: str, ctx: click.Context | None = None) -> int:
    """Say on one line what the user must change."""
    print(f"{ctx.command_path if ctx else 't3sim'}: {' '.join(message.split())}", file=sys.stderr)
    return MISTAKE
