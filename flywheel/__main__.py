"""`flywheel <verb>`: the same verbs for people, DVC and CI.

Exit 0: done (also an honest non-promotion, or nothing to do: the result says so). Exit 1: refused or failed, with a
sentence on stderr. Exit 2: wrong usage. `--json` prints exactly one JSON object as the last line of stdout: the result,
or {"error", "boundary"} where there is none; all else is stderr.
Imports happen inside the verbs: `flywheel --help` has to answer before a person wonders.
"""

from __future__ import annotations

import json
import sys
from typing import NoReturn

import click

from flywheel.commands import around, loop  # noqa: F401 - importing them is what registers their verbs
from flywheel.commands.group import cli
from flywheel.errors import FlywheelError


def main() -> None:
    """Entry point: a refusal is one sentence on stderr and exit 1, never a traceback."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        leave(error.exit_code, error.format_message(), "usage")
    except click.exceptions.Abort:
        sys.stderr.write("flywheel: stopped; run the same command again to go on\n")
        leave(1, "stopped", "flywheel")
    except FlywheelError as error:
        sys.stderr.write(f"flywheel: {error.boundary}: {error}\n")
        leave(1, str(error), error.boundary)


def leave(code: int, sentence: str, boundary: str) -> NoReturn:
    """End the process; with --json the sentence is the one JSON object."""
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": sentence, "boundary": boundary}) + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
