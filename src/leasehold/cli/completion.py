"""`completion`: a script for the shell, drawn from the same table as the help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.manual import PAGES
from leasehold.cli.output import print_lines
from leasehold.cli.parser import parser_for
from leasehold.cli.verbs import VERBS

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["completion", "options_of"]

_BASH = """\
# bash completion for leasehold; load it with: eval "$(leasehold completion bash)"
_leasehold() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" verb="${{COMP_WORDS[1]}}" place
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{verbs} --help --version" -- "$word"))
        return
    fi
    for ((place = 2; place < COMP_CWORD; place++)); do
        if [ "${{COMP_WORDS[place]}}" = "--" ]; then
            if declare -F _command_offset > /dev/null; then
                _command_offset $((place + 1))
            else
                COMPREPLY=($(compgen -c -- "$word") $(compgen -f -- "$word"))
            fi
            return
        fi
    done
    case "$verb" in
{cases}
    esac
}}
complete -o default -F _leasehold leasehold"""

_ZSH = """\
#compdef leasehold
# zsh completion for leasehold; put it into a directory of $fpath as _leasehold
_leasehold() {{
    local -a verbs
    verbs=(
{verbs}
    )
    if (( CURRENT == 2 )); then
        _describe 'verb' verbs
        return
    fi
    local dashes=${{words[(i)--]}}
    if (( dashes < CURRENT )); then
        shift $dashes words
        (( CURRENT -= dashes ))
        _normal
        return
    fi
    case "${{words[2]}}" in
{cases}
    esac
}}
if [ "$funcstack[1]" = "_leasehold" ]; then
    _leasehold "$@"
else
    compdef _leasehold leasehold
fi"""


def completion(arguments: Namespace, console: Console) -> int:  # noqa: ARG001 - every verb has this shape
    """Print the script."""
    print_lines([_bash() if arguments.shell == "bash" else _zsh()])
    return exit_codes.OK


def options_of(name: str) -> list[str]:
    """Every option of a verb, and the words that it takes by name."""
    words: list[str] = []
    for action in parser_for(VERBS[name])._actions:  # noqa: SLF001 - argparse has no other way to ask
        words += action.option_strings
        if not action.option_strings and action.choices:
            words += [str(choice) for choice in action.choices]
    return words


def _bash() -> str:
    cases = "\n".join(
        f'    {name}) COMPREPLY=($(compgen -W "{" ".join(options_of(name))}" -- "$word")) ;;' for name in VERBS
    )
    return _BASH.format(verbs=" ".join(VERBS), cases=cases)


def _zsh() -> str:
    verbs = "\n".join(f"        '{name}:{PAGES[name].summary.replace(chr(39), '')}'" for name in VERBS)
    cases = "\n".join(f"    {name}) compadd -- {' '.join(options_of(name))} ;;" for name in VERBS)
    return _ZSH.format(verbs=verbs, cases=cases)
