"""An explanation as a value: would two operations collide, by which rule, over what, when it is found, and what helps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum

from lakelock.conflict import WHOLE_TABLE, Conflict, ConflictRule
from lakelock.rule_texts import DECLARE_SCOPE, NO_RETRY, REMEDIES, WEAKER_LEVEL, FoundAt, Remedy, about, rule_text
from lakelock.str_enum import StrEnum


class Verdict(StrEnum):
    """COLLIDES: the second to be decided is rejected. DEPENDS: only if `only_if` holds. PASSES: both commit."""

    COLLIDES = "collides"
    DEPENDS = "depends"
    PASSES = "passes"


@dataclass(frozen=True)
class Explanation:
    """What becomes of `mine` when `other`, which ran at the same time, is decided first.

    `rule`, `found` and `overlap` are of the collision, None and empty if the two pass. `overlap` is the first five of
    `overlap_count` things. `profile` and `level` are those by which mine is judged; no level where the profile has only one.
    `helps` are sentences for people, the nearest first.
    """

    verdict: Verdict
    mine: str
    other: str
    rule: ConflictRule | None = None
    profile: str = ""
    level: str = ""
    overlap: tuple[str, ...] = ()
    overlap_count: int = 0
    found: FoundAt | None = None
    only_if: str = ""
    detail: str = ""
    helps: tuple[str, ...] = ()

    @classmethod
    def of(cls, conflict: Conflict, *, only_if: str = "", found: FoundAt | None = None) -> Explanation:
        """The explanation of a conflict, or, if it arises `only_if` something holds, of a possible one. `found`: when it would
        be found, by default when it was.
        """
        return cls(
            verdict=Verdict.DEPENDS if only_if else Verdict.COLLIDES,
            mine=str(conflict.mine),
            other=str(conflict.other),
            rule=conflict.rule,
            profile=conflict.profile,
            level=conflict.level,
            overlap=conflict.overlap,
            overlap_count=conflict.overlap_count,
            found=found or (FoundAt.CLAIM if conflict.early else FoundAt.COMMIT),
            only_if=only_if,
            detail=conflict.detail,
            helps=_helps(conflict),
        )

    @property
    def rejects(self) -> str:
        """What the other does, by the rule's words; empty without a rule."""
        return rule_text(self.rule, self.profile).rejects if self.rule is not None else ""

    def as_dict(self) -> dict[str, object]:
        """Plain values, for logs and `--json`."""
        plain = {name: value.value if isinstance(value, Enum) else value for name, value in asdict(self).items()}
        return {**plain, "rejects": self.rejects}

    def facts(self) -> dict[str, str]:
        """One line each, by name, for people; what does not apply is left out."""
        more = f" and {self.overlap_count - len(self.overlap)} more" if self.overlap_count > len(self.overlap) else ""
        before = {FoundAt.CLAIM: "before the data is written", FoundAt.COMMIT: "after the data is written"}
        named = {
            "verdict": f"only if {self.only_if}" if self.only_if else str(self.verdict),
            "mine": self.mine,
            "other": f"{self.other}, decided first",
            "rule": f"{self.rule}: the other {self.rejects}" if self.rule is not None else "",
            "over": ", ".join(self.overlap) + more,
            "because": self.detail,
            "profile": f"{self.profile} ({self.level})" if self.level else self.profile,
            "found": f"at the {self.found}, {before[self.found]}" if self.found is not None else "",
            "helps": "\n".join(self.helps),
        }
        return {name: text for name, text in named.items() if text}

    @property
    def short(self) -> str:
        """The verdict and its rule in one line."""
        verdict = f"only if {self.only_if}" if self.only_if else str(self.verdict)
        return f"{verdict} (rule {self.rule})" if self.rule is not None else verdict

    def __str__(self) -> str:
        return _in_lines(self.facts())


@dataclass(frozen=True)
class PairExplanation:
    """The answer about two operations at the same time: `chosen` in the profile of the settings.

    `reverse` is what becomes of the other operation if mine is decided first, None if the other has been committed.
    `elsewhere` has the same as `chosen` for every other profile, by name.
    """

    chosen: Explanation
    reverse: Explanation | None = None
    elsewhere: Mapping[str, Explanation] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        return self.chosen.verdict

    def as_dict(self) -> dict[str, object]:
        """Plain values, for logs and `--json`."""
        return {
            **self.chosen.as_dict(),
            "reverse": self.reverse.as_dict() if self.reverse is not None else None,
            "elsewhere": {name: found.as_dict() for name, found in self.elsewhere.items()},
        }

    def facts(self) -> dict[str, str]:
        """One or more lines each, by name, for people."""
        turned = {"in the other order": self.reverse.short} if self.reverse is not None else {}
        return {**self.chosen.facts(), **turned, **{f"in {name}": found.short for name, found in self.elsewhere.items()}}

    def __str__(self) -> str:
        return _in_lines(self.facts())


def _in_lines(facts: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {line}" for name, text in facts.items() for line in text.split("\n"))


def next_step(conflict: Conflict) -> str:
    """The hint of the error: the first thing that helps, then what only this conflict calls for."""
    first = REMEDIES[Remedy.RUN_AGAIN] if conflict.retry_helps else NO_RETRY
    return "; ".join((first, *_particular(conflict)))


def _helps(conflict: Conflict) -> tuple[str, ...]:
    """What this conflict calls for, then what helps against every conflict of its rule and is not said yet."""
    said = {Remedy.READ_WHERE} if conflict.read == WHOLE_TABLE else set[Remedy]()
    said |= {Remedy.ANOTHER_LEVEL} if conflict.passes_at else set()
    said |= set() if conflict.retry_helps else {Remedy.RUN_AGAIN}
    usual = [REMEDIES[remedy] for remedy in rule_text(conflict.rule, conflict.profile).remedies if remedy not in said]
    return (*_particular(conflict), *(about(advice, _partition(conflict)) for advice in usual))


def _particular(conflict: Conflict) -> tuple[str, ...]:
    scope = (about(DECLARE_SCOPE, _partition(conflict)),) if conflict.read == WHOLE_TABLE else ()
    return (*scope, WEAKER_LEVEL.format(level=conflict.passes_at)) if conflict.passes_at else scope


_FOLDER = re.compile(r"[^/=]+=[^/]*(?:/[^/=]+=[^/]*)*")


def _partition(conflict: Conflict) -> str:
    """The first partition that the conflict is about, as `day=2026-11-20`; empty where its folders do not name columns."""
    found = (_FOLDER.match(text) for text in (*conflict.within, *conflict.overlap))
    return next((match.group() for match in found if match is not None), "")
