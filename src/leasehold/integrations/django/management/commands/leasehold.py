"""`manage.py leasehold VERB ...`: the command line, on the store and namespace of the settings."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from leasehold.cli.main import main
from leasehold.cli.verbs import VERBS
from leasehold.integrations.django.clients import read_settings

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["Command"]


class Command(BaseCommand):
    """Everything behind the verb goes to the command line as it is; `manage.py leasehold --help` lists the verbs."""

    help = "Show and operate the locks of this project: leasehold ls, info, watch, break, run, ..."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """From a shell: with its options, and with its exit code."""
        sys.exit(_run(argv[2:]))

    def add_arguments(self, parser: ArgumentParser) -> None:
        """For `call_command`."""
        parser.add_argument("words", nargs="*")

    def handle(self, *_: Any, words: list[str], **__: Any) -> None:
        """From a program: `call_command("leasehold", "ls")`."""
        code = _run(words)
        if code:
            raise CommandError(f"leasehold {' '.join(words)} ended with {code}", returncode=code)


def _run(words: list[str]) -> int:
    """The URL goes through the environment, where the command line does not repeat it: it may have a password."""
    url, options = read_settings()
    if isinstance(url, str):
        os.environ["LEASEHOLD_URL"] = url
    namespace = options.get("namespace")
    if namespace and words and (verb := VERBS.get(words[0])) is not None and verb.asks_store:
        words = [words[0], "--namespace", namespace, *words[1:]]
    return main(words)
