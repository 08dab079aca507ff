"""Write the reference pages from the code: `python docs/generate.py`. `--check [FOLDER]` fails if one is stale."""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import get_args

import code_map
import command_line
import conflict_matrix
import peer_names
import reference_frames as frames
import reference_texts as texts

from lakelock import errors
from lakelock.cli.output import Exit, exit_of
from lakelock.conflict import DECLARE_SCOPE, IN_DELTA, REMEDIES, RULES, WEAKER_LEVEL, ConflictRule, Remedy
from lakelock.errors import LakelockError
from lakelock.events import Event, EventKind, log_event
from lakelock.occ.rules import PROFILES
from lakelock.providers.base import LossReason, Strength
from lakelock.providers.dynamodb_table import DynamodbOptions
from lakelock.providers.redis.servers import RedisOptions
from lakelock.providers.registry import BUILT_IN
from lakelock.providers.zookeeper.session import ZooKeeperOptions
from lakelock.settings import SECTIONS
from lakelock.settings import hudi as settings_hudi
from lakelock.settings.fields import SettingRow, section_rows
from lakelock.settings.hudi import HIVE_KEYS

DOCS = Path(__file__).parent
LOCK_OPTIONS = {"DynamoDB": DynamodbOptions, "Redis": RedisOptions, "ZooKeeper": ZooKeeperOptions}


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def code(text: object) -> str:
    return f"`{text}`"


def sentence(text: str) -> str:
    """`text` with a capital letter at the start and a full stop at the end."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


# Settings


def settings_page() -> str:
    parts = [frames.SETTINGS_INTRO]
    for section in SECTIONS:
        if not section_rows(section):
            continue
        parts += [f"## {section.section}", sentence(inspect.getdoc(section) or "")]
        parts.append(table(("setting", "default", "allowed", "meaning"), map(_setting, section_rows(section))))
        if section.section in texts.SECTION_NOTES:
            parts.append(texts.SECTION_NOTES[section.section])
    parts.append(frames.SETTINGS_OPTIONS)
    for name, options in LOCK_OPTIONS.items():
        parts += [f"### {name}", table(("option", "default", "allowed", "meaning"), map(_setting, section_rows(options)))]
    parts += [frames.SETTINGS_STORAGE, frames.HUDI_INTRO]
    parts.append(table(("key of Java Hudi", "setting here"), _hudi_keys()))
    parts += ["Lock classes that lakelock can share:", table(("class", "becomes"), _hudi_classes()), frames.HUDI_REST]
    hive = [(code(key), code(ours)) for key, ours in HIVE_KEYS.items()]
    parts += [frames.HIVE_INTRO, table(("key of Hive", "setting here"), hive), frames.HIVE_REST]
    return "\n\n".join(parts)


def _setting(row: SettingRow) -> tuple[str, ...]:
    allowed = ", ".join(code(json.dumps(choice)) for choice in row.choices) or row.bounds or row.type_name
    return code(row.key), code(_toml(row.default)), allowed, sentence(row.doc)


def _toml(value: object) -> str:
    if isinstance(value, bool | str):
        return json.dumps(value)
    return f"{value:_}" if isinstance(value, int) else f"{value:g}" if value else str(value)


def _hudi_keys() -> list[tuple[str, str]]:
    rows = [(key, ours) for key, (ours, _) in settings_hudi._DIRECT.items()]
    for lease, renew in settings_hudi._LEASE_KEYS.values():
        rows += [(key, ours) for key, ours in ((lease, "lock.lease_s"), (renew, "lock.renew_s")) if key]
    merged: dict[str, list[str]] = {}
    for key, ours in [("hoodie.write.concurrency.mode", "concurrency.mode"), *rows]:
        merged.setdefault(key, []).append(code(ours))
    return [(code(key), ", ".join(dict.fromkeys(ours))) for key, ours in merged.items()]


def _hudi_classes() -> list[tuple[str, str]]:
    found = [(name.rpartition(".")[2], code(f"{scheme}:")) for name, scheme in settings_hudi._PROVIDERS.items()]
    missing = {code(f"{scheme}:") for scheme in settings_hudi._PROVIDERS.values() if scheme not in BUILT_IN}
    rows = [
        (code(name), f"{uri}, which this release does not have: it is refused" if uri in missing else uri)
        for name, uri in found
    ]
    return rows + [(code(name), f"refused: {why}") for name, why in settings_hudi._UNSHARED.items()]


# Errors, rules, events, exit codes


def errors_page() -> str:
    weaker = WEAKER_LEVEL.format(level="WriteSerializable")
    classes = [LakelockError, *_below(LakelockError)]
    parts = [frames.ERRORS_INTRO, table(("error", "code", "is a", "again?", "exit", "meaning"), map(_error, classes))]
    parts += [frames.ERRORS_NOTES, "## What each error wants from you"]
    for cls in classes[1:]:
        advice = texts.ADVICE[cls]
        parts += [f"### {cls.__name__}", f"**Why:** {advice.causes}", f"**Next:** {advice.what_to_do}"]
    parts += [
        frames.RULES_INTRO,
        table(("rule", "the other …", "for example", "does running again help?", "profiles"), _rules()),
        frames.REMEDIES_INTRO,
        table(("rule", "found at the", "what helps"), _remedies()),
        table(("what helps", "in other words"), [(code(remedy), sentence(REMEDIES[remedy])) for remedy in Remedy]),
        frames.PARTICULAR_NOTE.format(scope=sentence(DECLARE_SCOPE), weaker=sentence(weaker)),
    ]
    parts += [frames.LOSSES_INTRO, table(("reason", "meaning"), [(code(r), texts.LOSSES[r]) for r in get_args(LossReason)])]
    parts += [frames.EXITS_INTRO, table(("code", "name", "meaning"), [(e.value, e.name, texts.EXITS[e]) for e in Exit])]
    parts += [
        frames.EVENTS_INTRO,
        table(("event", "level", "meaning"), [(code(k), _level(k), texts.EVENTS[k]) for k in EventKind]),
    ]
    return "\n\n".join(parts)


def _below(cls: type[LakelockError]) -> list[type[LakelockError]]:
    """The subclasses in the order of their definition, each before its own."""
    return [found for child in cls.__subclasses__() if child.__module__ == errors.__name__ for found in (child, *_below(child))]


def _error(cls: type[LakelockError]) -> tuple[str, ...]:
    parent = cls.__mro__[1].__name__
    name = code(cls.__name__) if cls is LakelockError else f"[{cls.__name__}](#{cls.__name__.lower()})"
    code_of_exit = exit_of(cls.__new__(cls))
    return name, code(cls.code.value), parent, "yes" if cls.retryable else "", str(code_of_exit.value), meanings()[cls.__name__]


def meanings() -> dict[str, str]:
    """What the tree in the docstring of `lakelock.errors` says of each class."""
    lines = re.findall(r"^[│├└─ ]*([A-Z]\w+)(?: \(\w+\))? {2,}(\S.*)$", errors.__doc__ or "", re.MULTILINE)
    return dict(lines)


def _rules() -> Iterable[tuple[str, ...]]:
    for rule in ConflictRule:
        profiles, text = conflict_matrix.profiles_with(rule), RULES[rule]
        apart = rule in IN_DELTA
        others = [name for name in profiles if not (apart and name == "delta")]
        everywhere = len(others) == len(PROFILES) - apart
        told = ("all others" if apart else "all") if everywhere else ", ".join(others)
        yield code(rule), text.rejects, text.example, text.retry, told
        if apart:
            yield code(rule), IN_DELTA[rule].rejects, IN_DELTA[rule].example, IN_DELTA[rule].retry, "delta"


def _remedies() -> Iterable[tuple[str, ...]]:
    for rule in ConflictRule:
        yield code(rule), str(RULES[rule].found), ", ".join(map(code, RULES[rule].remedies))


def conflicts_page() -> str:
    profiles = [name if name != "delta" else f"{name}, {level}" for name, level in conflict_matrix.LEVELS]
    return "\n\n".join(
        [
            frames.CONFLICTS_INTRO,
            table(("mine, decided second", "the other's", *map(code, profiles)), conflict_matrix.rows()),
            frames.CONFLICTS_NOTES,
            table(("mine, decided second", "the other's", *map(code, profiles)), conflict_matrix.rows_in_buckets()),
            frames.CONFLICTS_OF_OTHERS,
            table(("mine", "the other's", "Delta", "Hive 3", "Iceberg", "Hudi", "lakelock differs"), texts.PEERS),
        ]
    )


class _Levels(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.seen = record.levelname


def _level(kind: EventKind) -> str:
    """The level at which the event is logged, found by logging one."""
    handler, logger = _Levels(), logging.getLogger("lakelock")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        log_event(Event(kind, ""))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
    return handler.seen.lower()


# Providers


def providers_page() -> str:
    names = sorted(BUILT_IN, key=list(BUILT_IN).index)
    strengths = {name: strength_of(name) for name in names}
    parts = [frames.PROVIDERS_INTRO, _strengths(strengths, ("exclusion", "token", "crash_release"))]
    parts.append(_strengths(strengths, ("failover", "clock_assumption", "fairness", "cost")))
    described = [(name.replace("_", " "), texts.STRENGTHS[name]) for name in (field.name for field in fields(Strength))]
    parts += ["What the columns say:", "\n".join(f"* **{name}**: {text}" for name, text in described)]
    parts += [
        frames.MANY_TABLES,
        frames.JAVA_INTRO,
        table(("provider", "the same lock in Java Hudi"), [(code(f"{n}:"), texts.JAVA_PEERS[n]) for n in names]),
    ]
    return "\n\n".join([*parts, frames.JAVA_REST, frames.DATA_LOCKS, frames.PROVIDERS_REST])


def strength_of(name: str) -> Strength:
    """What a built-in provider declares, without opening it: a provider keeps it in its module, as `STRENGTH`."""
    module = inspect.getmodule(BUILT_IN[name])
    strength = getattr(module, "STRENGTH", None)
    if not isinstance(strength, Strength):
        raise TypeError(f"the module of the provider {name} has no STRENGTH")
    return strength


def _strengths(strengths: Mapping[str, Strength], columns: Sequence[str]) -> str:
    rows = [(code(f"{name}:"), *(getattr(strength, column) for column in columns)) for name, strength in strengths.items()]
    return table(("provider", *(column.replace("_", " ") for column in columns)), rows)


# The map of the code


def architecture_page() -> str:
    rows = code_map.packages()
    return "\n\n".join(
        [
            frames.ARCHITECTURE_INTRO,
            code_map.picture(),
            frames.ARCHITECTURE_PACKAGES,
            table(("folder", "imports as", "what it is"), rows),
            frames.ARCHITECTURE_WALK,
            frames.ARCHITECTURE_MODULES,
            *(
                f"### {package}\n\n{table(('module', 'what it is'), found)}"
                for package, folder in code_map.folders().items()
                if (found := code_map.modules(folder))
            ),
        ]
    )


def peers_page() -> str:
    parts = [peer_names.INTRO.format(note=frames.NOTE), peer_names.OPTIONS]
    for peer in ("Delta", "Hudi", "Spark"):
        columns = (f"option of {peer}", "here", "what to type otherwise")
        parts += [f"### {peer}'s", table(columns, peer_names.options(peer))]
        parts += [peer_names.TABLE] if peer == "Hudi" else []
    columns = ("call", "after `register(spark)`", "without it")
    parts += [peer_names.WRITE_CALLS, table(columns, peer_names.CALLS_OF_WRITERS)]
    parts += [peer_names.METHODS, table(("name in Delta", "what to type"), peer_names.methods())]
    return "\n\n".join([*parts, peer_names.SQL, table(("statement", "what to type"), peer_names.STATEMENTS)])


def commands_page() -> str:
    parts = [command_line.INTRO.format(note=frames.NOTE)]
    for name, command in command_line.commands():
        parts += [f"## {name}", f"```text\n{command_line.usage(name, command)}\n```", command_line.plain(command.help or "")]
        options = command_line.parameters(command)
        parts += [table(("option", "meaning"), options)] if options else []
    return "\n\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "architecture.md": architecture_page,
    "reference-cli.md": commands_page,
    "reference-settings.md": settings_page,
    "reference-errors.md": errors_page,
    "reference-conflicts.md": conflicts_page,
    "reference-providers.md": providers_page,
    "reference-delta-and-hudi.md": peers_page,
}


def stale(folder: Path) -> list[str]:
    """The names of the pages in a folder that do not say what the code says."""
    found = {name: (folder / name).read_text() if (folder / name).exists() else "" for name in PAGES}
    return [name for name, page in PAGES.items() if found[name] != page() + "\n"]


def main(arguments: Sequence[str]) -> int:
    if "--check" in arguments:
        others = [argument for argument in arguments if argument != "--check"]
        old = stale(Path(others[0]) if others else DOCS)
        if old:
            sys.stderr.write(f"stale: {', '.join(old)}; next: python docs/generate.py\n")
        return 1 if old else 0
    for name, page in PAGES.items():
        (DOCS / name).write_text(page() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
