"""How services of locks are named and reached: options of drivers, URIs, names that Java Hudi derives, and TLS files.

`lock.options` that a service's driver understands are passed to the driver, by the driver's own names.

Texts of URIs can be sent, recorded and shown. Where a configuration names no lock, Java Hudi derives the name from the
table, by XXH64 of its path. The PEM files of TLS are read before a connection is made: drivers mistake a bad file for a
lost connection, or ask the terminal for the password of a key. Making a client of boto3 is mostly reading the driver's
descriptions, so they are read once.
"""

from __future__ import annotations

import inspect
import os
import ssl
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from lakelock.errors import SettingsError
from lakelock.parsing import parse_java_properties
from lakelock.settings.fields import LOCK_OPTIONS, Section, SettingRow, parse, refuse_given, section_rows
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.texts import did_you_mean

Own = TypeVar("Own", bound=Section)


def read_options(
    own: type[Own],
    given: Mapping[str, object],
    service: str,
    *drivers: Callable[..., object] | Mapping[str, object],
    reserved: Mapping[str, str],
) -> tuple[Own, dict[str, Any]]:
    """The options that lakelock reads itself, and those that go to the driver, checked against the signatures of `drivers`
    (or names and defaults).

    Text is converted to the type of the parameter's default. `reserved` are parameters that lakelock gives itself, with what
    to do instead. An option that is neither is a `SettingsError` with the name that was probably meant. An option
    `name.part` is the entry `part` of the parameter `name`, a mapping.
    """
    rows = {row.key.removeprefix(LOCK_OPTIONS): row for row in section_rows(own)}
    accepted = {name: default for driver in drivers for name, default in _parameters(driver).items() if name not in rows}
    mine: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for key, raw in given.items():
        name, _, part = key.partition(".")
        if key in rows:
            mine[key] = parse(rows[key], raw)
        elif name in reserved:
            raise SettingsError(
                f"{LOCK_OPTIONS}{key} is set, but lakelock gives it itself", hint=reserved[name], key=LOCK_OPTIONS + key
            )
        elif name not in accepted:
            known = sorted({*rows, *accepted} - reserved.keys())
            raise SettingsError(
                f"{LOCK_OPTIONS}{key} is no option of {service}{did_you_mean(key, known)}",
                hint=f"the options are {', '.join(known)}",
                key=LOCK_OPTIONS + key,
            )
        elif part:
            theirs.setdefault(name, {})[part] = raw
        else:
            theirs[name] = _converted(key, raw, accepted[name])
    return own(**mine), theirs


def refuse_unused(given: Mapping[str, object], names: tuple[str, ...], why: str, *, instead: str, key: str) -> None:
    """`SettingsError` about `key` if one of these options is given, `why` it does nothing, and what to do `instead`."""
    refuse_given((LOCK_OPTIONS + name for name in names if given.get(name)), why, instead=instead, key=key)


def _parameters(driver: Callable[..., object] | Mapping[str, object]) -> dict[str, object]:
    """Name and default of each parameter, also of those that a class hands up to its bases."""
    if isinstance(driver, Mapping):
        return dict(driver)
    classes = driver.__mro__ if isinstance(driver, type) else ()
    makers = [each.__dict__["__init__"] for each in classes if "__init__" in each.__dict__ and each is not object] or [driver]
    found: dict[str, object] = {}
    for maker in makers:
        for name, parameter in inspect.signature(maker).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) and name != "self":
                found.setdefault(name, parameter.default)
    return found


def _converted(name: str, raw: object, default: object) -> object:
    """The value in the type of the default; unchanged where the default tells no type."""
    kind = next((kind for kind in (bool, int, float) if type(default) is kind), None)
    return raw if kind is None else parse(SettingRow(LOCK_OPTIONS + name, kind, default, "what the driver takes"), raw)


def sendable(uri: str) -> str:
    """`uri` without the white space around it, or `SettingsError` when UTF-8 cannot hold it (half of a surrogate pair)."""
    text = uri.strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        # The message leaves the URI out: it could be neither printed nor logged.
        raise SettingsError(
            "lock.provider holds half of a surrogate pair, which is no character",
            hint="write the URI in UTF-8, anything unusual in it as %XX",
            key="lock.provider",
        ) from None
    return text


def is_host(name: str) -> bool:
    """Whether a name server can be asked for `name` at all: no part is empty or longer than 63 characters."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_MASK = (1 << 64) - 1
_STRIPE = 32

HUDI_SEED = 0xFFFFFFFFDABADABA


def xxhash64(data: bytes, seed: int) -> int:
    """The 64-bit hash of `data` as an unsigned number."""
    one, two, three, four, five = _PRIMES
    at = 0
    if len(data) >= _STRIPE:
        lanes = [(seed + one + two) & _MASK, (seed + two) & _MASK, seed & _MASK, (seed - one) & _MASK]
        while at + _STRIPE <= len(data):
            lanes = [_round(lane, _word(data, at + 8 * number)) for number, lane in enumerate(lanes)]
            at += _STRIPE
        found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * one + four) & _MASK
    else:
        found = (seed + five) & _MASK
    found = (found + len(data)) & _MASK
    while at + 8 <= len(data):
        found = (_rotated(found ^ _round(0, _word(data, at)), 27) * one + four) & _MASK
        at += 8
    if at + 4 <= len(data):
        found = (_rotated(found ^ (int.from_bytes(data[at : at + 4], "little") * one & _MASK), 23) * two + three) & _MASK
        at += 4
    for byte in data[at:]:
        found = (_rotated(found ^ (byte * five & _MASK), 11) * one) & _MASK
    found = ((found ^ (found >> 33)) * two) & _MASK
    found = ((found ^ (found >> 29)) * three) & _MASK
    return found ^ (found >> 32)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _round(lane: int, word: int) -> int:
    return (_rotated((lane + word * _PRIMES[1]) & _MASK, 31) * _PRIMES[0]) & _MASK


def table_name(storage: Storage) -> str:
    """The table's name, which is Java's default lock key; "" if the table has none that can be read."""
    found = storage.get(layout.PROPERTIES)
    return parse_java_properties(found.data, layout.PROPERTIES).get("hoodie.table.name", "") if found else ""


def path_hash(base_path: str) -> str:
    """The hash that Java's implicit providers derive from the table's path."""
    return f"{xxhash64(base_path.encode(), HUDI_SEED):016X}"


def tls_context(service: str, *, ca: str, certificate: str, key: str, password: str, hint: str, setting: str) -> ssl.SSLContext:
    """What a client trusts and shows to a service; `SettingsError` when one of the files cannot be used.

    Without `ca` it trusts what the machine trusts. `password` is the key's; the terminal is never asked for it.
    """
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if certificate:
            context.load_cert_chain(certificate, key or None, password=lambda: password)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the certificates for TLS to {service} cannot be used: {error}", hint=hint, key=setting) from error
    return context


@cache
def _descriptions() -> Any:
    """The driver's descriptions of AWS's services, for all clients of this process."""
    import botocore.session

    return botocore.session.get_session().get_component("data_loader")


def aws_client(service: str, *, region: str, endpoint_url: str, config: Any, **more: Any) -> Any:
    """A client of `service`; nothing is contacted yet. `ImportError` without boto3, `BotoCoreError` or `ValueError` if none can
    be made: usually nothing says which region.

    An empty `region` is that of AWS_REGION, as Java and the AWS tools have it (boto3 itself knows only AWS_DEFAULT_REGION), or
    of the profile. An empty `endpoint_url` is the region's. `more` are other arguments of boto3's `client`.
    """
    import boto3
    import botocore.session

    session = botocore.session.get_session()
    session.register_component("data_loader", _descriptions())
    return boto3.session.Session(botocore_session=session).client(
        service,
        region_name=region or os.environ.get("AWS_REGION") or None,
        endpoint_url=endpoint_url or None,
        config=config,
        **more,
    )
