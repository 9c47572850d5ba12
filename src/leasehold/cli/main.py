"""The entry point: finds the verb, runs it, and turns every error into a sentence and an exit code."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

from leasehold.cli import exit_codes
from leasehold.cli.output import Console, end_line, prepare_streams
from leasehold.cli.parser import Usage, read

__all__ = ["main"]


def main(words: list[str] | None = None) -> int:
    """Run the command line and return its exit code; a traceback is printed only with -v.

    As a program, without `words`, it does not return: everything is closed by then, and taking the interpreter apart
    would cost a tenth of a short run.
    """
    if words is not None:
        return _main(words)
    gc.disable()  # nothing that is loaded at the start is garbage; `open_client` turns it on again
    code = _main(sys.argv[1:])
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
    os._exit(code)


def _main(words: list[str]) -> int:
    console = Console()
    try:
        _open_standard_streams()
        prepare_streams()
        arguments = read(words)
        if arguments is None:
            return exit_codes.OK
        console = Console(quiet=arguments.quiet, verbose=arguments.verbose)
        code = int(arguments.verb.handler()(arguments, console))
    except BrokenPipeError:
        return _closed_output()
    except KeyboardInterrupt:
        end_line()
        return exit_codes.for_signal(2)
    except Usage as error:
        console.error(f"{error}\n{error.advice}")
        return exit_codes.USAGE
    except Exception as error:  # noqa: BLE001 - the last resort: a sentence, not a traceback
        return _explain(error, console)
    return code


def _explain(error: Exception, console: Console) -> int:
    from leasehold.errors import LeaseholdError  # noqa: PLC0415 - not needed when all goes well

    if console.is_verbose:
        import traceback  # noqa: PLC0415

        console.detail("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, LeaseholdError):
        console.error(error)
        console.detail(f"see: leasehold explain {type(error).__name__}")
        return exit_codes.for_error(error)
    console.error(f"internal error: {type(error).__name__}: {error} (please report it, with the output of -v)")
    return exit_codes.INTERNAL


def _closed_output() -> int:
    """The reader of the output has closed it, as `head` does: print nothing, also not when the interpreter flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_codes.for_signal(13)


def _open_standard_streams() -> None:
    """A closed standard descriptor would be reused for one of the pipes here; open /dev/null in its place."""
    for standard in (0, 1, 2):
        try:
            os.fstat(standard)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
