"""The reference page of the command line, drawn from the parsers: `python -m leasehold.cli.reference > FILE`."""

from __future__ import annotations

import sys

from leasehold.cli.help_text import NARROW
from leasehold.cli.parser import top_help, verb_help
from leasehold.cli.verbs import VERBS

__all__ = ["reference_page"]


def reference_page() -> str:
    """The whole page, as Markdown."""
    parts = [
        "# The command line\n",
        "Written by `python -m leasehold.cli.reference`; a test compares it with the program.\n",
        f"```text\n{top_help(NARROW)}\n```\n",
    ]
    parts += [
        f"## leasehold {name}\n\n```text\n{verb_help(verb, NARROW).rstrip()}\n```\n" for name, verb in VERBS.items()
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(reference_page())
