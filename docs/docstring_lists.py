"""Docstrings on the site: lines that begin with the name of a parameter become a list, and examples become code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_PARAMETER = re.compile(r"^(?=`[a-z_]+(?:=[^`]*)?`(?:,? (?:and )?`[a-z_]+`)*(?:: | is for ))", re.MULTILINE)


class DocstringLists(Extension):
    """Changes the text that mkdocstrings shows; the code is left alone."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = "\n\n".join(map(shown, obj.docstring.value.split("\n\n")))


def shown(paragraph: str) -> str:
    """The paragraph in Markdown."""
    if paragraph.startswith(">>> "):
        return f"```pycon\n{re.sub(' *# doctest:.*', '', paragraph).rstrip()}\n```"
    return as_list(paragraph)


def as_list(paragraph: str) -> str:
    """The paragraph, as a list if two or more of its lines begin with a parameter."""
    if len(_PARAMETER.findall(paragraph)) < 2:
        return paragraph
    before, *items = _PARAMETER.split(paragraph)
    shown = "".join("* " + item.rstrip("\n").replace("\n", "\n    ") + "\n" for item in items)
    return f"{before}\n{shown}" if before.strip() else shown
