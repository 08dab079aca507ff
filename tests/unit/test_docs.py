"""What the documents say is still so: generated pages are fresh, links lead somewhere, code compiles, names are known."""

from __future__ import annotations

import re
import subprocess
import sys
from codeop import CommandCompiler
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

import lakelock
import lakelock.metrics
import lakelock.providers
from lakelock.cli.main import app
from lakelock.events import Step
from lakelock.settings import SECTIONS, settings_reference
from lakelock.settings.removed import REMOVED

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
DOCSTRING = re.compile(r"^::: (\S+)$", re.MULTILINE)
SETTING = re.compile(rf"`((?:{'|'.join(section.section for section in SECTIONS)})\.[a-z_]+)`")
TOLD_ELSEWHERE = {
    "__version__",
    "LeaseLoss",  # the errors page has the reasons
    "Settings",  # the settings page
    "open_provider",  # for those who test a provider
    "provider_name",
    "provider_names",
    "renewing",
}
INLINE = re.compile(r"`([^`\n]+)`")


class Block(NamedTuple):
    """A fenced block of a page; `line` is that of its first line of text."""

    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        yield Block(page, text.count("\n", 0, found.start()) + 2, found[1], found[2])


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown page has, one for each heading, and for each name whose docstring the site shows there."""
    text = FENCE.sub("", page.read_text())
    slugs = {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in HEADING.findall(text)}
    return slugs | set(DOCSTRING.findall(text))


def test_the_generated_pages_say_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.in_ci
def test_a_page_that_was_edited_by_hand_is_stale(tmp_path: Path) -> None:
    for file in (ROOT / "docs").glob("*.md"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    page = tmp_path / "reference-errors.md"
    page.write_text(page.read_text().replace("yes", "perhaps", 1))
    generator = ROOT / "docs" / "generate.py"
    done = subprocess.run([sys.executable, generator, "--check", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "stale: reference-errors.md; next: python docs/generate.py" in done.stderr


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    dead = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def named(block: Block) -> str:
    return f"{block.page.name}:{block.line}"


@pytest.mark.parametrize("block", [b for page in PAGES for b in blocks(page) if b.language == "python"], ids=named)
def test_every_python_example_compiles(block: Block) -> None:
    compile("\n" * (block.line - 1) + block.text, str(block.page), "exec")


WHOLE_FILES = {"howto-airflow-and-dbt.md", "howto-write-a-lock-provider.md"}
"""Pages whose blocks are files, and are not typed."""


@pytest.mark.parametrize(
    "block", [b for page in PAGES if page.name not in WHOLE_FILES for b in blocks(page) if b.language == "python"], ids=named
)
def test_every_python_example_can_be_typed_line_by_line(block: Block) -> None:
    """At Python's prompt an indented block ends with an empty line, and the next statement cannot come before it."""
    compiler, typed = CommandCompiler(), list[str]()
    for line in [*block.text.splitlines(), ""]:
        typed.append(line)
        if compiler("\n".join(typed), str(block.page)) is not None or not "".join(typed).strip():
            typed.clear()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_code_block_is_closed(page: Path) -> None:
    assert FENCE.sub("", page.read_text()).count("```") == 0


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    history = REMOVED if page.name == "CHANGELOG.md" or page.parent.name == "adr" else {}
    assert set(SETTING.findall(page.read_text())) <= {row.key for row in settings_reference()} | history.keys() | {
        "lock.options"
    }


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    named = {code for code in INLINE.findall(FENCE.sub("", page.read_text())) if re.fullmatch(r"[\w/]+/\w+\.py", code)}
    assert {path for path in named if not any((base / path).is_file() for base in (ROOT, ROOT / "src" / "lakelock"))} == set()


@cache
def command_line() -> dict[str, Any]:
    """Every command that there is, by its name."""
    line: Any = get_command(app)
    context = line.make_context("lakelock", ["doctor"])
    return {name: line.get_command(context, name) for name in line.list_commands(context)}


def commands() -> dict[str, list[str]]:
    """Every command that there is, and the commands of it where it is a group."""
    return {name: [*getattr(command, "commands", ())] for name, command in command_line().items()}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_that_a_page_shows_exists(page: Path) -> None:
    text = page.read_text()
    shown = [line for block in blocks(page) for line in block.text.splitlines()] + INLINE.findall(FENCE.sub("", text))
    words = [line.split()[1:3] for line in shown if re.match(r"lakelock [a-z]", line)]
    known = commands()
    assert {first for first, *_ in words} <= known.keys()
    assert {(first, rest[0]) for first, *rest in words if rest and known[first] and rest[0] not in known[first]} == set()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_option_of_a_command_that_a_sentence_names_exists(page: Path) -> None:
    wrong = []
    for shown in INLINE.findall(FENCE.sub("", page.read_text())):
        first, *rest = shown.removeprefix("lakelock ").split() if shown.startswith("lakelock ") else ("",)
        command = command_line().get(first)
        command = getattr(command, "commands", {}).get(next(iter(rest), ""), command)
        known = {option for parameter in getattr(command, "params", ()) for option in parameter.opts}
        wrong += [f"{option} in {shown}" for option in rest if command and option.startswith("--") and option not in known]
    assert wrong == [] or page.name == "CHANGELOG.md"  # it tells of commands that are gone


def test_the_help_of_the_command_line_says_of_each_command_what_the_command_says_of_itself() -> None:
    line: Any = get_command(app)
    context = line.make_context("lakelock", ["doctor"])
    for name, home in line.homes.items():
        command = line.get_command(context, name)
        assert (command.help or "").split("\n\n")[0] == home.help, name
        for each in (command, *getattr(command, "commands", {}).values()):
            assert all("\n" not in part for part in each.help.split("\n\n")), "the terminal breaks the lines"


def test_the_concepts_tell_what_follows_from_a_crash_after_every_step() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    table = text[text.index("| killed after |") :].split("\n\n")[0]
    told = re.findall(r"`([a-z-]+)`", " ".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert sorted(told) == sorted(step.value for step in Step)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("howto-*.md")), ids=lambda page: page.name)
def test_a_how_to_is_short_enough_to_be_read_before_it_is_done(page: Path) -> None:
    assert len(page.read_text().split()) <= 800  # with its code, which is read, too


def test_the_reference_has_every_public_name_that_is_no_error() -> None:
    page = (ROOT / "docs" / "reference-api.md").read_text()
    shown = {name.rpartition(".")[2] for name in DOCSTRING.findall(page)}
    for module in (lakelock, lakelock.metrics, lakelock.providers):
        values = {name: getattr(module, name) for name in module.__all__}
        errors = {name for name, value in values.items() if isinstance(value, type) and issubclass(value, BaseException)}
        assert values.keys() - errors - shown - TOLD_ELSEWHERE == set(), module.__name__


def test_there_are_few_how_tos_and_each_is_in_the_menu() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("howto-*.md")}
    assert len(pages) <= 17
    assert set(re.findall(r": (howto-[\w-]+\.md)", (ROOT / "mkdocs.yml").read_text())) == pages


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
