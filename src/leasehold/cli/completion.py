"""`completion`: a script for the shell. It asks the program itself what can stand at the cursor: see `candidates`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.output import print_lines

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["completion"]

# Candidates are never expanded by the shell: names of locks are written by others.

_BASH = r"""# bash completion for leasehold; load it with: eval "$(leasehold completion bash)"
_leasehold() {
    local line="${COMP_LINE:0:COMP_POINT}" word cut="" candidate place
    local -a words
    word="${line##*[[:space:]]}"
    read -ra words <<< "${line%"$word"}"
    case "$word" in *[:=]*) cut="${word%"${word##*[:=]}"}" ;; esac  # bash replaces what is behind these only
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        case "$candidate" in
            :files) compopt -o default ;;
            :command)
                for ((place = 2; place < COMP_CWORD; place++)); do
                    [ "${COMP_WORDS[place]}" = "--" ] && break
                done
                if declare -F _command_offset > /dev/null; then
                    _command_offset $((place + 1))
                else
                    COMPREPLY=($(compgen -c -- "$word") $(compgen -f -- "$word"))
                fi
                return ;;
            ?*) COMPREPLY+=("$(printf %q "${candidate#"$cut"}")") ;;
        esac
    done < <(leasehold __complete "${words[@]:1}" "$word" 2> /dev/null)
    case "${COMPREPLY[*]}" in *[:=/]) compopt -o nospace ;; esac
}
complete -F _leasehold leasehold"""

_ZSH = r"""#compdef leasehold
# zsh completion for leasehold; put it into a directory of $fpath as _leasehold
_leasehold() {
    local line candidate
    local -a found
    for line in "${(@f)$(leasehold __complete "${(@Q)words[2,CURRENT-1]}" "${(Q)words[CURRENT]}" 2> /dev/null)}"; do
        candidate="${line%%$'\t'*}"
        case "$candidate" in
            :files) _files; return ;;
            :command)
                shift ${words[(i)--]} words
                (( CURRENT = ${#words} ))
                _normal
                return ;;
            ?*) found+=("${candidate//:/\\:}:${line#*$'\t'}") ;;
        esac
    done
    _describe -V leasehold found
}
if [ "$funcstack[1]" = "_leasehold" ]; then
    _leasehold "$@"
else
    compdef _leasehold leasehold
fi"""

_FISH = r"""# fish completion for leasehold; put it into ~/.config/fish/completions/leasehold.fish
function __leasehold_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l found (leasehold __complete $words[2..-1] "$word" 2> /dev/null)
    switch "$found[1]"
        case :files
            __fish_complete_path "$word"
        case :command
            set -l place (contains -i -- -- $words)
            complete -C (string join -- ' ' (string escape -- $words[(math $place + 1)..-1]) "$word")
        case '*'
            string join -- \n $found
    end
end
complete -c leasehold -f -a '(__leasehold_complete)'"""

_SCRIPTS = {"bash": _BASH, "fish": _FISH, "zsh": _ZSH}


def completion(arguments: Namespace, console: Console) -> int:  # noqa: ARG001 - every verb has this shape
    """Print the script."""
    print_lines([_SCRIPTS[arguments.shell]])
    return exit_codes.OK
