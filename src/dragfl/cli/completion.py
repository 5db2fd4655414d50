"""`dragfl completion SHELL`: a completion script, generated from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from dragfl.cli.parser import subcommands

SHELLS = {
    "bash": 'eval "$(dragfl completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(dragfl completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "dragfl completion fish > ~/.config/fish/completions/dragfl.fish",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "completion",
        help="print a script for shell completion",
        description="Print a script that completes commands, options, names and keys of experiments.",
        epilog="\n".join(f"{shell}:  {use}" for shell, use in SHELLS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("shell", choices=SHELLS)
    command.set_defaults(run=run, commands=commands)


def run(args: argparse.Namespace) -> int:
    write = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[args.shell]
    print(write(list(completions(args.commands))), end="")
    return 0


@dataclass(frozen=True)
class Completion:
    """What can follow a command."""

    path: str  # "run", "data get", or "" for dragfl itself
    options: dict[str, str]  # --option -> help
    words: dict[str, str]  # command, action or choice -> help
    keys: bool  # whether `key=value` can follow


def completions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> Iterator[Completion]:
    """Every command, read from its parser."""
    options = {"--help": "show the help", "--version": "print the version"}
    yield Completion("", options, _described(commands), keys=False)
    for name, command in commands.choices.items():
        yield from _walk(command, name)


def _walk(command: argparse.ArgumentParser, path: str) -> Iterator[Completion]:
    options, words, keys = dict[str, str](), dict[str, str](), False
    for action in command._actions:
        options |= {o: _first_sentence(action.help) for o in action.option_strings if o.startswith("--")}
        if isinstance(action, argparse._SubParsersAction):
            words |= _described(action)
        elif action.choices is not None and not action.option_strings:
            words |= dict.fromkeys(map(str, action.choices), "")
        keys = keys or (action.dest == "words" and path != "check")  # `check` takes settings of a part
    yield Completion(path, options, words, keys)
    for name, inner in subcommands(command).items():
        yield from _walk(inner, f"{path} {name}")


def _described(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> dict[str, str]:
    return {choice.dest: _first_sentence(choice.help) for choice in commands._choices_actions}


def _first_sentence(text: str | None) -> str:
    return (text or "").partition(";")[0].partition(" (default")[0].replace("%%", "%").replace("'", "")


def _keys() -> str:
    from dragfl.config.schema import override_keys

    return " ".join(f"{key}=" for key in override_keys())


def _path_cases(known: list[Completion]) -> str:
    return "|".join(f'" {c.path}"' for c in known if c.path)


def bash_script(known: list[Completion]) -> str:
    cases = "\n".join(
        f'    " {c.path}") options="{" ".join(c.options)}" words="{" ".join(c.words)}" keys={int(c.keys)} ;;'
        if c.path
        else f'    "") options="{" ".join(c.options)}" words="{" ".join(c.words)}" keys=0 ;;'
        for c in known
    )
    return f"""\
_dragfl() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path="" word options words keys
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$path $word" in {_path_cases(known)}) path="$path $word" ;; esac
  done
  case "$path" in
{cases}
  esac
  case "$current" in
    -*) words="$options" ;;
    ?*) if [ "$keys" = 1 ]; then words="$words {_keys()}"; compopt -o nospace 2>/dev/null; fi ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))  # empty: names of files
}}
complete -o default -F _dragfl dragfl
"""


def zsh_script(known: list[Completion]) -> str:
    cases = "\n".join(
        f'    "{" " if c.path else ""}{c.path}") options=({" ".join(c.options)}) choices=({" ".join(c.words)}) '
        f"keys={int(c.keys)} ;;"
        for c in known
    )
    return f"""\
#compdef dragfl
_dragfl() {{
  local place="" word keys=0
  local -a options choices
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$place $word" in {_path_cases(known)}) place="$place $word" ;; esac
  done
  case "$place" in
{cases}
  esac
  if [[ "$PREFIX" == -* ]]; then compadd -- $options; return; fi
  (( $#choices )) && compadd -- $choices
  (( keys )) && [[ -n "$PREFIX" ]] && compadd -S "" -- {_keys()}
  (( $#choices )) || _files
}}
compdef _dragfl dragfl
"""


def fish_script(known: list[Completion]) -> str:
    lines = ["complete -c dragfl -f -n __fish_use_subcommand"]
    for c in known:
        seen = [f"__fish_seen_subcommand_from {word}" for word in c.path.split()] or ["__fish_use_subcommand"]
        when = "; and ".join(seen)
        lines += [f"complete -c dragfl -n '{when}' -l {o[2:]} -d '{about}'" for o, about in c.options.items()]
        lines += [f"complete -c dragfl -f -n '{when}' -a {word} -d '{about}'" for word, about in c.words.items()]
        lines += [f"complete -c dragfl -n '{when}' -a '{_keys()}'"] if c.keys else []
    return "\n".join(lines) + "\n"
