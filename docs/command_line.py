"""The page of the command line, read from the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from lakelock.cli.main import app

INTRO = """# Command line

{note}

`pip install lakelock` brings the command `lakelock`. `PATH` is a table: a folder, or a URI such as `s3://bucket/table`. Most
commands take these:

| option | meaning |
|---|---|
| `--config FILE`, `-c` | a settings file: TOML, or a properties file of Hudi |
| `--set KEY=VALUE`, `-s` | one [setting](reference-settings.md), such as `lock.wait_s=10`. May be repeated |
| `--json` | JSON for programs, errors included |

[Exit codes](reference-errors.md#exit-codes-of-lakelock): 0 ok, 1 error, 2 wrong call, 3 lock held, 4 conflict or rejected,
5 outcome not known."""
COMMON = {"config", "settings", "as_json"}
"""Parameters that the introduction explains."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something: `locks ls`, `optimize`."""
    line: Any = get_command(app)
    context = line.make_context("lakelock", ["doctor"])
    for name in line.list_commands(context):
        command = line.get_command(context, name)
        below = getattr(command, "commands", None)
        yield from ((f"{name} {inner}", found) for inner, found in below.items()) if below else [(name, command)]


def usage(name: str, command: Any) -> str:
    """How to type the command: what must be there, then what may be."""
    words = [_word(each) for each in command.params if not each.opts[0].startswith("-")]
    return " ".join(["lakelock", name, *words, "[OPTIONS]"])


def _word(argument: Any) -> str:
    word = argument.metavar or argument.name.upper()
    return word if argument.required else f"[{word}]"


def parameters(command: Any) -> list[tuple[str, str]]:
    """The options of one command, beside the common ones, and what they mean."""
    return [
        (", ".join(f"`{option}`" for option in [*each.opts, *each.secondary_opts]), _meaning(each))
        for each in command.params
        if each.name not in COMMON and each.opts[0].startswith("-") and not each.hidden and each.name != "help"
    ]


def _meaning(option: Any) -> str:
    default = option.default
    shown = f" (default: `{default}`)" if default not in (None, "", False, True) and not callable(default) else ""
    return (option.help or "").rstrip(".") + shown


def plain(text: str) -> str:
    """A help text as Markdown: its paragraphs without the line ends of the source."""
    return "\n\n".join(re.sub(r"\s+", " ", part).strip() for part in text.split("\n\n") if part.strip())
