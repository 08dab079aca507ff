"""Texts in SQL as Arrow has them: the columns of a table, conditions on its rows, and new values of its columns.

The small part of Spark's SQL that is needed to name rows, with its meaning: three-valued logic, NaN above every number, texts
in single quotes, columns in any case or in backquotes. What is not in it is an `InputError` that says so; a pyarrow expression
can say more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import ROUND_FLOOR, Decimal
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import InputError
from lakelock.table.rows import Fields
from lakelock.texts import column_hint

_SPACE = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""What stands between parts of a text: comments, too."""
_TOKEN = re.compile(
    r"(?:(?P<text>'(?:[^'\\]|''|\\[\s\S])*')|(?P<quoted>`[^`]+`)|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign><=>|<>|!=|<=|>=|==|\|\||[-+*/=<>(),.:]))"
)
_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Spark's names of types."""
_ESCAPED = re.compile(r"''|\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([01][0-7]{2})|([\s\S]))")
"""In a text: a quotation mark, or a character by its number, of 16 or 32 bits or in octal, or by a letter."""
_LETTERS: Mapping[str, str] = {
    "0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"
}  # fmt: skip
_OF_LIKE = re.compile(r"\\([%_\\])|([%_])|([^\\%_]+)")
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARED: Mapping[str, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "=": pc.Expression.__eq__,
    "==": pc.Expression.__eq__,
    "!=": pc.Expression.__ne__,
    "<>": pc.Expression.__ne__,
    "<": pc.Expression.__lt__,
    "<=": pc.Expression.__le__,
    ">": pc.Expression.__gt__,
    ">=": pc.Expression.__ge__,
}
_WORDS = frozenset(["and", "or", "not", "in", "between", "like", "is", "null", "true", "false", "date", "timestamp"])
"""Words that name no column, unless they are in backquotes."""
_MOST_DEPTH = 50
_MOST_DIGITS = 38
_BEYOND = (
    "without Spark a condition has comparisons, and, or, not, in, between, like and is null, a value has arithmetic and ||; "
    "write others as a pyarrow expression, such as pc.utf8_lower(pc.field('name')) == 'tea' with pyarrow.compute as pc"
)
_BEYOND_COLUMNS = (
    'write names and types with commas between them, as in "id bigint, name string"; a pyarrow.Schema says more, such as '
    "which columns must not be null"
)
_OF_QUERIES = frozenset(["select", "case", "exists", "interval", "distinct"])
"""Words that begin what is not read here."""


def parsed_schema(text: str) -> pa.Schema:
    """The columns that a text in SQL names: `"id bigint, place struct<x: double>, tags array<string>"`."""
    parser = _Parser(text, pa.schema([]), "the schema", _BEYOND_COLUMNS)
    fields = parser.fields(end=None)
    return pa.schema(fields)


def parsed_condition(text: str, schema: pa.Schema) -> pc.Expression:
    """The condition on rows with these columns: `"month = 1 and (v > 3 or note is null)"`."""
    parser = _Parser(text, schema, "the condition")
    found = parser.condition()
    parser.end()
    return found.holds


def parsed_value(text: str, schema: pa.Schema) -> pc.Expression:
    """The value that a text computes from a row: `"price * 2"`, `"'open'"`, `"null"`."""
    parser = _Parser(text, schema, "the value")
    if parser.accepts("null"):
        parser.end()
        return pc.scalar(None)
    found = parser.either()
    parser.end()
    return found.answer() if isinstance(found, _Condition) else found.expression


def kind_of(expression: pc.Expression, schema: pa.Schema) -> pa.DataType:
    """The type of an expression's values; `InputError` for one that does not fit the columns."""
    return evaluated({"value": expression}, schema.empty_table()).schema.field(0).type


def evaluated(expressions: Mapping[str, pc.Expression], rows: pa.Table) -> pa.Table:
    """The values of expressions for these rows, in their order; `InputError` for what cannot be computed."""
    from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

    source = Declaration("table_source", TableSourceNodeOptions(rows))
    chosen = Declaration("project", ProjectNodeOptions([*expressions.values()], [*expressions]))
    try:
        return Declaration.from_sequence([source, chosen]).to_table(use_threads=False)
    except (pa.ArrowException, TypeError, KeyError) as error:
        shown = ", ".join(map(str, expressions.values()))
        raise InputError(
            f"{shown} cannot be computed from the rows of this table: {str(error).splitlines()[0]}",
            hint=f"the columns are {', '.join(f'{field.name} ({field.type})' for field in list(rows.schema)[:20])}",
        ) from error


@dataclass(frozen=True)
class _Condition:
    """Where it is true and where it is false; it is null elsewhere. So NOT is exact, and a null never counts as true."""

    holds: pc.Expression
    fails: pc.Expression

    def answer(self) -> pc.Expression:
        """True, false or null, for each row."""
        unless = pc.if_else(self.fails.is_valid() & self.fails, pc.scalar(False), pc.scalar(pa.scalar(None, pa.bool_())))
        return pc.if_else(self.holds.is_valid() & self.holds, pc.scalar(True), unless)

    def negated(self) -> _Condition:
        return _Condition(self.fails, self.holds)

    def and_(self, other: _Condition) -> _Condition:
        return _Condition(self.holds & other.holds, self.fails | other.fails)

    def or_(self, other: _Condition) -> _Condition:
        return _Condition(self.holds | other.holds, self.fails & other.fails)


@dataclass(frozen=True)
class _Value:
    """A computed value and its type. `literal`: as it was written, where it is a literal."""

    expression: pc.Expression
    type: pa.DataType
    literal: object = None


def _end_of_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


class _Parser:
    """Reads one text, from left to right; each method reads one kind of part."""

    def __init__(self, text: str, schema: pa.Schema, what: str, beyond: str = _BEYOND) -> None:
        """`beyond`: what to type where this parser is not enough."""
        self._text, self._schema, self._what, self._beyond = text, schema, what, beyond
        self._tokens, self._at, self._depth = list(self._split()), 0, 0

    def _split(self) -> Iterator[tuple[str, str]]:
        at = _end_of_space(self._text, 0)
        while at < len(self._text):
            found = _TOKEN.match(self._text, at)
            if found is None or found.lastgroup is None:
                rest = self._text[at:].strip()
                hint = self._beyond
                if rest.startswith('"'):
                    hint = "write a text in single quotes, 'x', and a column as it is or in backquotes, `x`"
                raise InputError(f"{self._what} {self._text!r} cannot be read at {rest[:20]!r}", hint=hint)
            yield found.lastgroup, found[found.lastgroup]
            at = _end_of_space(self._text, found.end())

    def _fail(self, hint: str = "") -> NoReturn:
        rest = " ".join(token for _, token in self._tokens[self._at : self._at + 4])
        where = f"at {rest!r}" if rest else "to its end"
        raise InputError(f"{self._what} {self._text!r} cannot be read {where}", hint=hint or self._beyond)

    @property
    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def accepts(self, *wanted: str) -> str:
        """Take the next part if it is one of these words or signs, and return it; "" if it is not."""
        kind, token = self._next
        if kind in ("word", "sign") and token.lower() in wanted:
            self._at += 1
            return token.lower()
        return ""

    def _expect(self, wanted: str) -> None:
        if not self.accepts(wanted):
            self._fail()

    def _take(self, *kinds: str) -> str:
        kind, token = self._next
        if kind not in kinds:
            self._fail()
        self._at += 1
        return token

    def end(self) -> None:
        if self._at < len(self._tokens):
            self._fail()

    # Columns

    def fields(self, end: str | None) -> list[pa.Field]:
        """Names and types with commas between them, up to the sign `end` or the end of the text."""
        found = []
        while True:
            name = self._take("word", "quoted").strip("`")
            self.accepts(":")
            found.append(pa.field(name, self._type()))
            if end is None and self._at == len(self._tokens):
                return found
            if end is not None and self.accepts(end):
                return found
            self._expect(",")

    def _type(self) -> pa.DataType:
        with _Deeper(self):
            name = self._take("word").lower()
            if name in ("decimal", "dec", "numeric"):
                digits = [10, 0]
                if self.accepts("("):
                    digits = [int(self._take("number")), 0]
                    if self.accepts(","):
                        digits[1] = int(self._take("number"))
                    self._expect(")")
                if not 0 <= digits[1] <= digits[0] <= 38 or not digits[0]:
                    self._fail("a decimal has at most 38 digits: decimal(12, 2)")
                return pa.decimal128(*digits)
            if name in ("array", "map", "struct"):
                return self._nested(name)
            if name not in _TYPES:
                self._at -= 1
                self._fail(f"the types are {', '.join([*_TYPES, 'decimal(12, 2)', 'array<…>', 'map<…>', 'struct<…>'])}")
            return _TYPES[name]

    def _nested(self, name: str) -> pa.DataType:
        self._expect("<")
        if name == "struct":
            return pa.struct(self.fields(end=">"))
        first = self._type()
        if name == "map":
            self._expect(",")
            second = self._type()
            self._expect(">")
            return pa.map_(first, second)
        self._expect(">")
        return pa.list_(first)

    # Conditions

    def condition(self) -> _Condition:
        found = self.either()
        if isinstance(found, _Value) and self._next[0]:
            self._fail()  # so that the message shows the unknown operator: name rlike 'a'
        return self._truth(found)

    def either(self) -> _Condition | _Value:
        """A condition or a value: which of them, its first operator tells."""
        with _Deeper(self):
            found = self._all_of()
            while self.accepts("or"):
                found = self._truth(found).or_(self._truth(self._all_of()))
            return found

    def _all_of(self) -> _Condition | _Value:
        found = self._denied()
        while self.accepts("and"):
            found = self._truth(found).and_(self._truth(self._denied()))
        return found

    def _denied(self) -> _Condition | _Value:
        if self.accepts("not"):
            with _Deeper(self):
                return self._truth(self._denied()).negated()
        return self._compared()

    def _truth(self, found: _Condition | _Value) -> _Condition:
        if isinstance(found, _Condition):
            return found
        if not pa.types.is_boolean(found.type):
            raise InputError(
                f"{self._what} {self._text!r} has {found.expression}, which is neither true nor false",
                hint="compare it with something: v = 1, name = 'x', note is null",
            )
        return _Condition(found.expression, ~found.expression)

    def _compared(self) -> _Condition | _Value:
        left = self._sum()
        if isinstance(left, _Condition):
            return left
        sign = self.accepts(*_COMPARED)
        if sign:
            right = self._sum()
            if isinstance(right, _Condition):
                self._fail()
            return self._comparison(left, sign, right)
        if self.accepts("is"):
            denied = self.accepts("not")
            self._expect("null")
            found = _Condition(left.expression.is_null(), left.expression.is_valid())
            return found.negated() if denied else found
        denied = self.accepts("not")
        if self.accepts("in"):
            found = self._among(left)
        elif self.accepts("between"):
            least, greatest = self._only_value(), None
            self._expect("and")
            greatest = self._only_value()
            found = self._comparison(left, ">=", least).and_(self._comparison(left, "<=", greatest))
        elif self.accepts("like"):
            pattern = self._unquoted(self._take("text"))
            if not pa.types.is_string(left.type):
                self._fail("LIKE is for texts")
            found = _of(self._like(left.expression, pattern))
        elif denied:
            self._fail()
        else:
            return left
        return found.negated() if denied else found

    def _like(self, text: pc.Expression, pattern: str) -> pc.Expression:
        if "\\" not in pattern:
            return pc.match_like(text, pattern)
        if _OF_LIKE.sub("", pattern):
            raise InputError(
                f"{self._what} {self._text!r}: in a pattern of LIKE a backslash stands before %, _ or another one only",
                hint=r"a backslash in a text is written twice, and so one in a pattern four times: path like 'C:\\\\temp%'",
            )
        parts = _OF_LIKE.findall(pattern)  # Arrow's own match takes an escaped backslash for two
        found = "".join(
            {"%": ".*", "_": "."}.get(any_of, "") or re.escape(escaped or plain) for escaped, any_of, plain in parts
        )
        return pc.match_substring_regex(text, rf"(?s)\A{found}\z")

    def _unquoted(self, text: str) -> str:
        """What a text in quotation marks means, with the escapes of Spark."""
        try:
            return _ESCAPED.sub(_meant, text[1:-1]).encode("utf-16", "surrogatepass").decode("utf-16")
        except (ValueError, OverflowError) as error:
            raise InputError(f"{self._what} {self._text!r} has an escape that is no character: {error}") from error

    def _only_value(self) -> _Value:
        found = self._sum()
        if isinstance(found, _Condition):
            self._fail()
        return found

    def _among(self, left: _Value) -> _Condition:
        self._expect("(")
        values = [self._as_kind(left, self._only_value())]
        while self.accepts(","):
            values.append(self._as_kind(left, self._only_value()))
        self._expect(")")
        if any(each.literal is None for each in values):
            self._fail("IN takes literals: month in (1, 2)")
        # Numbers of several types, and two zeros that Arrow tells apart among others.
        if not all(each.type == left.type for each in values) or pa.types.is_floating(left.type):
            found = self._comparison(left, "=", values[0])
            for each in values[1:]:
                found = found.or_(self._comparison(left, "=", each))
            return found
        chosen = pa.array([each.literal for each in values], left.type)
        is_in = left.expression.isin(chosen)
        return _Condition(is_in, ~is_in & left.expression.is_valid())

    def _comparison(self, left: _Value, sign: str, right: _Value) -> _Condition:
        if _is_whole(right) and left.literal is not None:
            left, right, sign = right, left, _TURNED.get(sign, sign)
        if _is_whole(left) and isinstance(right.literal, Decimal | float) and sign in (*_TURNED, "=", "=="):
            sign, bound = _of_whole_numbers(sign, Decimal(str(right.literal)), left.type)
            right = _Value(pc.scalar(pa.scalar(bound, left.type)), left.type, bound)
        left, right = self._as_kind(right, left), self._as_kind(left, right)
        if not _are_comparable(left.type, right.type):
            hint = "compare values of one kind"
            for one, other in ((left, right), (right, left)):
                if pa.types.is_string(one.type) and other.literal is not None:
                    hint = (
                        f"{one.expression} holds texts, which are in single quotes: {one.expression} {sign} '{other.literal}'"
                    )
            raise InputError(
                f"{self._what} {self._text!r} compares {left.expression} ({left.type}) with {right.expression} ({right.type})",
                hint=hint,
            )
        if sign in ("!=", "<>"):
            return self._comparison(left, "=", right).negated()
        found = _COMPARED[sign](_against(left, right), _against(right, left))
        return _of(_as_spark_orders(found, sign, _nan(left), _nan(right)))

    def _as_kind(self, other: _Value, value: _Value) -> _Value:
        """A literal as a value of the other side's type, where it is one."""
        if value.literal is None or other.literal is not None:
            return value
        try:
            found = _literal_as(value.literal, other.type)
        except (ValueError, ArithmeticError, pa.ArrowException) as error:
            raise InputError(
                f"{self._what} {self._text!r}: {value.literal!r} is not a {other.type}, the type of {other.expression}",
                hint="write a date as '2026-11-21', and a time as '2026-11-21 09:27:00'",
            ) from error
        return value if found is None else _Value(pc.scalar(found), found.type, found.as_py())

    # Values

    def _sum(self) -> _Condition | _Value:
        found = self._product()
        while sign := self.accepts("+", "-", "||"):
            found = self._computed(found, sign, self._product())
        return found

    def _product(self) -> _Condition | _Value:
        found = self._atom()
        while sign := self.accepts("*", "/"):
            found = self._computed(found, sign, self._atom())
        return found

    def _computed(self, left: _Condition | _Value, sign: str, right: _Condition | _Value) -> _Value:
        if isinstance(left, _Condition) or isinstance(right, _Condition):
            self._fail()
        left, right = self._as_kind(right, left), self._as_kind(left, right)
        a, b = _against(left, right), _against(right, left)
        if sign == "||":
            made = pc.binary_join_element_wise(a, b, pc.scalar(""))
        elif sign == "/":
            kinds = left.type, right.type
            decimal = any(map(pa.types.is_decimal, kinds)) and not any(map(pa.types.is_floating, kinds))
            made = _quotient(a, b, _digits(left), _digits(right)) if decimal else _as_double(a) / _as_double(b)
        else:
            made = a + b if sign == "+" else a - b if sign == "-" else a * b
        return _Value(made, kind_of(made, self._schema))

    def _atom(self) -> _Condition | _Value:
        kind, token = self._next
        if self.accepts("("):
            found = self.either()
            self._expect(")")
            return found
        if self.accepts("-"):
            if self._next[0] == "number":
                return _number(f"-{self._take('number')}")
            value = self._atom()
            if isinstance(value, _Condition):
                self._fail()
            return _Value(pc.negate_checked(value.expression), value.type)
        if kind == "number":
            return _number(self._take("number"))
        if kind == "text":
            return _literal(self._unquoted(self._take("text")))
        if truth := self.accepts("true", "false"):
            return _literal(truth == "true")
        typed = {"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC")}
        if token.lower() in typed and self._at + 1 < len(self._tokens) and self._tokens[self._at + 1][0] == "text":
            self._at += 1
            wanted = _Value(pc.scalar(True), typed[token.lower()])
            return self._as_kind(wanted, _literal(self._unquoted(self._take("text"))))
        if kind != "quoted" and (kind != "word" or token.lower() in _WORDS):
            self._fail("compare with null by `is null`" if token.lower() == "null" else "")
        return self._column()

    def _column(self) -> _Value:
        fields, path, found = Fields(self._schema), list[str](), None
        while True:
            name = self._take("word", "quoted").strip("`")
            found = fields.find(name)
            if found is None:
                shown = ".".join([*path, name])
                if self._next[1] == "(" or (name.lower() in _OF_QUERIES and self._next[0]):
                    self._at -= 1
                    self._fail()
                hint = column_hint(name, fields.names)
                raise InputError(
                    f"{self._what} {self._text!r}: the table has no column {shown!r}",
                    hint=f"{hint}; a text is in single quotes: '{name}'" if hint else f"a text is in single quotes: '{name}'",
                )
            path.append(found.name)
            if not (self._next[1] == "." and pa.types.is_struct(found.type)):
                return _Value(pc.field(*path), found.type)
            self._expect(".")
            fields = Fields(found.type)


class _Deeper:
    """One more level of nesting, of which there are only so many."""

    def __init__(self, parser: _Parser) -> None:
        self._parser = parser

    def __enter__(self) -> None:
        self._parser._depth += 1
        if self._parser._depth > _MOST_DEPTH:
            self._parser._fail("it is nested too deeply")

    def __exit__(self, *_: object) -> None:
        self._parser._depth -= 1


def _of(expression: pc.Expression) -> _Condition:
    """A condition that is null where the expression is."""
    return _Condition(expression, ~expression)


def _as_spark_orders(found: pc.Expression, sign: str, left: pc.Expression | None, right: pc.Expression | None) -> pc.Expression:
    """A comparison in which NaN equals NaN and is greater than all other numbers; a side that is never NaN is None."""
    if left is not None and right is not None:
        more = {"<": right & ~left, "<=": right, ">": left & ~right, ">=": left}.get(sign, left & right)
    else:
        more = left if sign in (">", ">=") else right if sign in ("<", "<=") else None
    return found if more is None else found | (more & found.is_valid())  # null where one side is null


def _nan(value: _Value) -> pc.Expression | None:
    """Where it is NaN; None if it never is."""
    return pc.is_nan(value.expression) if pa.types.is_floating(value.type) and value.literal is None else None


def _are_comparable(one: pa.DataType, other: pa.DataType) -> bool:
    types = pa.types

    def numeric(kind: pa.DataType) -> bool:
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))

    if one == other or (numeric(one) and numeric(other)):
        return not types.is_nested(one)
    return bool(types.is_timestamp(one) and types.is_timestamp(other) and bool(one.tz) == bool(other.tz))


def _is_whole(value: _Value) -> bool:
    """Whether it is a column, or is computed from columns, with 64-bit integers or narrower ones."""
    return value.literal is None and pa.types.is_signed_integer(value.type)


def _of_whole_numbers(sign: str, number: Decimal, kind: pa.DataType) -> tuple[str, int]:
    """The comparison of whole numbers that means the same as one with any number. Arrow would round the column instead."""
    least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    number = max(min(number, Decimal(2 * most)), Decimal(2 * least))
    below = int(number.to_integral_value(ROUND_FLOOR))
    exact = below == number
    if sign in ("=", "==") and not (exact and least <= below <= most):
        return ">", most
    if below > most:
        return ("<=", most) if sign in ("<", "<=") else (">", most)
    if below < least:
        return ("<", least) if sign in ("<", "<=") else (">=", least)
    return {"<": "<" if exact else "<=", ">=": ">=" if exact else ">"}.get(sign, sign), below


def _against(value: _Value, other: _Value) -> pc.Expression:
    """The value as Arrow computes with it and the other: next to a decimal a whole number becomes one, and next to a
    floating-point number both become doubles, as in Spark.
    """
    if pa.types.is_floating(other.type) and (pa.types.is_integer(value.type) or pa.types.is_decimal(value.type)):
        return _as_double(value.expression)
    if pa.types.is_float32(value.type) and (pa.types.is_integer(other.type) or pa.types.is_decimal(other.type)):
        return _as_double(value.expression)
    if not (pa.types.is_decimal(other.type) and pa.types.is_integer(value.type)):
        return value.expression
    if isinstance(value.literal, int):
        return pc.scalar(Decimal(value.literal))
    return value.expression.cast(pa.decimal128(19, 0))


def _as_double(value: pc.Expression) -> pc.Expression:
    """Rounded where a double has not so many digits."""
    return value.cast(pa.float64(), safe=False)


def _digits(value: _Value) -> tuple[int, int]:
    """Precision and scale of the decimal that the number is to Spark."""
    if pa.types.is_decimal(value.type):
        return value.type.precision, value.type.scale
    if isinstance(value.literal, int):
        return len(str(abs(value.literal))), 0
    return {8: 3, 16: 5, 32: 10}.get(value.type.bit_width, 20), 0


def _quotient(
    dividend: pc.Expression, divisor: pc.Expression, of_dividend: tuple[int, int], of_divisor: tuple[int, int]
) -> pc.Expression:
    """Decimals divided as by Spark: six digits after the point or more, the last of them rounded. Arrow cuts off the rest."""
    (digits, scale), (its_digits, its_scale) = of_dividend, of_divisor
    after = max(6, scale + its_digits + 1)
    before = digits - scale + its_scale
    if before + after > _MOST_DIGITS:
        after = max(_MOST_DIGITS - before, 6)
    wider = max(scale, after - its_digits + its_scale)  # Arrow then gives one digit more
    made = dividend.cast(pa.decimal256(max(digits - scale, 19) + wider, wider)) / divisor.cast(
        pa.decimal256(its_digits, its_scale)
    )
    rounded = pc.round(made, after, "half_towards_infinity")
    return rounded.cast(pa.decimal128(min(before + after, _MOST_DIGITS), after))


def _literal(value: object) -> _Value:
    scalar = pa.scalar(value)
    return _Value(pc.scalar(scalar), scalar.type, value)


def _number(text: str) -> _Value:
    whole = re.fullmatch(r"-?\d+", text)
    if whole and -(2**63) <= int(text) < 2**63:
        return _literal(int(text))
    if whole or not re.search("[eE]", text):
        return _literal(Decimal(text))
    return _literal(float(text))


def _meant(escape: re.Match[str]) -> str:
    short, long, octal, letter = escape.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    return chr(int(octal, 8) if octal else int(short or long, 16)) if octal or short or long else "'"


def _literal_as(literal: object, kind: pa.DataType) -> pa.Scalar | None:
    """The literal in a type; None where it stays as it is, because Arrow compares the two, or cannot compare them."""
    types = pa.types
    if isinstance(literal, str):
        if types.is_date(kind):
            return pa.scalar(date.fromisoformat(literal.strip()), kind)
        if types.is_timestamp(kind):
            return _time(_moment(literal, utc=bool(kind.tz)), kind)
        if types.is_large_string(kind):
            return pa.scalar(literal, kind)
        return None
    if isinstance(literal, date) and not isinstance(literal, datetime) and types.is_timestamp(kind):
        at = datetime(literal.year, literal.month, literal.day, tzinfo=timezone.utc if kind.tz else None)
        return pa.scalar(at, kind)
    if isinstance(literal, datetime) and types.is_timestamp(kind):
        return _time(literal if kind.tz else literal.replace(tzinfo=None), kind)
    if isinstance(literal, bool):
        return None
    if isinstance(literal, Decimal | int) and types.is_floating(kind):
        return pa.scalar(float(literal), pa.float64())
    if isinstance(literal, int) and types.is_integer(kind):
        fits = -(2 ** (kind.bit_width - 1)) <= literal < 2 ** (kind.bit_width - 1)
        return pa.scalar(literal, kind) if fits else None
    return None


def _time(moment: datetime, kind: pa.DataType) -> pa.Scalar:
    """The time in a type, or, where that has not so many digits, in one that has."""
    exact = pa.scalar(moment, pa.timestamp("us", kind.tz))
    found = exact.cast(kind, safe=False)
    return found if found.cast(exact.type) == exact else exact


def _moment(text: str, *, utc: bool) -> datetime:
    """A time; one without an offset is UTC where the column holds instants. Of a clock's reading an offset says nothing."""
    text = text.strip()
    found = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
    if not utc:
        return found.replace(tzinfo=None)
    return found.astimezone(timezone.utc) if found.tzinfo else found.replace(tzinfo=timezone.utc)
