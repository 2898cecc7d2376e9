"""What the command line does with an error: one line on stderr and an exit code."""

import contextlib
import os
import sys
from collections.abc import Callable

from models.errors import RunnerError

FAILED = 1
INTERRUPTED = 130


def report(message: str) -> None:
    """One line, whatever the message holds."""
    with contextlib.suppress(OSError):
        print("error:", " ".join(message.split()), file=sys.stderr)


def guarded(command: Callable[[], int]) -> int:
    """Run a command; no error that a person can mend shows a traceback."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except RunnerError as error:
        report(error.message)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has enough. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
