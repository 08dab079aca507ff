"""What a ZooKeeper lock decides without a server: where it is, and who is next in its queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import MemoryStorage, WriterIdentity

from lakelock.errors import SettingsError
from lakelock.providers.connections import HUDI_SEED, xxhash64
from lakelock.providers.zookeeper.queue import Contender, in_order, node_data, prefix
from lakelock.providers.zookeeper.session import ZooKeeperOptions, parse_place
from lakelock.testing import ManualRuntime

UUID = "0f4ab1c2-1111-4222-8333-444455556666"


def storage(properties: str | None = None) -> MemoryStorage:
    made = MemoryStorage(ManualRuntime().now_ms, name="table")
    if properties is not None:
        made.put(".hoodie/hoodie.properties", properties.encode())
    return made


@pytest.mark.parametrize(
    ("uri", "identity"),
    [
        ("zookeeper://zk1:2181/hudi/locks/flights", "zookeeper://zk1:2181/hudi/locks/flights"),
        ("ZooKeeper://ZK2,zk1:2182/a/", "zookeeper://zk1:2182,zk2:2181/a"),
        ("zookeeper://zk1, zk2,zk1:2181/a%20b/c", "zookeeper://zk1:2181,zk2:2181/a b/c"),
        ("zookeeper://[::1]:2181/a", "zookeeper://[::1]:2181/a"),
        ("zookeeper://zk/b?key=table", "zookeeper://zk:2181/b/flights"),
        ("zookeeper://zk?implicit=true&base_path=/data/tbl", "zookeeper://zk:2181/tmp/9524D13239946DB8/lock_key"),
        ("zookeeper://zk/lake?implicit=true&base_path=/data/tbl", "zookeeper://zk:2181/lake/tmp/9524D13239946DB8/lock_key"),
        ("zookeeper://zk?implicit=true&base_path=s3a://bkt/warehouse/tbl", "zookeeper://zk:2181/tmp/0F4477E0DC06AAF2/lock_key"),
    ],
)
def test_spellings_of_one_place_have_one_identity(uri: str, identity: str) -> None:
    assert parse_place(uri, storage("hoodie.table.name=flights\n")).identity == identity


@pytest.mark.parametrize(
    ("uri", "named"),
    [
        ("zookeeper:", "no servers"),
        ("zookeeper:///a", "no servers"),
        ("zookeeper://zk", "no path"),
        ("zookeeper://zk/", "no path"),
        ("zookeeper://zk:99999/a", "host:port"),
        ("zookeeper://zk:0/a", "host:port"),
        ("zookeeper://zk,/a", "host:port"),
        ("zookeeper://u:pw@zk/a", "credentials"),
        ("zookeeper://zk/a//b", "does not allow"),
        ("zookeeper://zk/a/../b", "does not allow"),
        ("zookeeper://zk/zookeeper/a", "does not allow"),
        ("zookeeper://zk/a%00b", "does not allow"),
        ("zookeeper://zk/a?timeout=3", "timeout"),
        ("zookeeper://zk/a?implicit=false", "not known"),
        ("zookeeper://zk?implicit=true&base_path=s3://b/t/", "slash"),
        ("zookeeper://zk/b?key=table", "no name"),
    ],
)
def test_a_uri_that_names_no_lock_is_refused_with_the_reason(uri: str, named: str) -> None:
    with pytest.raises(SettingsError, match=named) as refused:
        parse_place(uri, storage())
    assert "pw" not in str(refused.value) and refused.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bkt/warehouse/tbl", "0F4477E0DC06AAF2"),
        ("/data/tbl", "9524D13239946DB8"),
        ("file:///data/tbl", "EADF9A78AF258532"),
    ],
)
def test_names_derived_from_table_paths_are_those_that_java_derives(text: str, expected: str) -> None:
    assert f"{xxhash64(text.encode(), HUDI_SEED):016X}" == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_the_hash_is_xxh64(data: bytes, expected: int) -> None:
    assert xxhash64(data, 0) == expected


def test_the_queue_is_that_of_curator_whatever_else_is_there() -> None:
    children = [f"_c_{UUID}-lock-0000000012", "0123abcd__lock__0000000011", "other", "lock-0000000010", "x-lock-0000000013"]
    assert in_order(children) == [children[3], children[1], children[0], children[4]]
    assert in_order(["note", "leases"]) == [] == in_order([])


def test_the_holder_keeps_the_lock_when_the_counter_runs_over() -> None:
    children = [f"{prefix(UUID)}{number:010d}" for number in (2_147_483_646, 2_147_483_647, -2_147_483_648, -2_147_483_647)]
    assert in_order(reversed(children)) == children
    around_zero = [f"{prefix(UUID)}{number:010d}" for number in (-2, -1, 0, 1)]
    assert in_order(reversed(around_zero)) == around_zero


@given(st.integers(-(2**31), 2**31 - 1), st.lists(st.integers(1, 5_000), max_size=8), st.randoms())
def test_the_order_of_creation_is_kept_from_any_number_on(first: int, steps: list[int], random: object) -> None:
    numbers = [first]
    for step in steps:
        numbers.append((numbers[-1] + step + 2**31) % 2**32 - 2**31)
    names = [f"{prefix(UUID)}{number:010d}" for number in numbers]
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert in_order(shuffled) == names


class _Stat:
    czxid, ctime, ephemeralOwner = 7, 1_700_000_000_000, 99  # noqa: N815 - names of kazoo


@pytest.mark.parametrize("data", [b"", b"application_id=Unknown", b"[1]", b'{"writer": 3}', b"\xff\x00", b"null"])
def test_a_foreign_contender_is_named_by_its_node(data: bytes) -> None:
    holder = Contender.of("_c_x-lock-0000000001", data, _Stat()).holder
    assert holder.writer is None and holder.token == 7 and holder.owner.startswith("_c_x-lock-0000000001")
    assert ("application_id" in str(holder)) == (b"application_id" in data)


def test_a_writer_is_recognised_by_what_it_wrote() -> None:
    writer = WriterIdentity(UUID, "stream", "host", 3, "user")
    holder = Contender.of("n", node_data(writer, 2.5), _Stat()).holder
    assert (holder.writer, holder.lease_s, holder.token) == (writer, 2.5, 7)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"auth_data": "user:password"}, "lock.options.auth_data"),
        ({"sasl_options.mechanism": "PLAIN", "sasl_options.username": "u"}, "lock.options.sasl_options.username"),
        ({"sasl_options.mechanism": "MD5"}, "lock.options.sasl_options.mechanism"),
        ({"sasl_options.user": "u"}, "lock.options.sasl_options.user"),
        ({"keyfile": "k.pem"}, "lock.options.certfile"),
        ({"acl": "creator"}, "lock.options.acl"),
        ({"ca": "ca.pem"}, "lock.options.use_ssl"),
        ({"certfile": "c.pem", "keyfile": "k.pem"}, "lock.options.use_ssl"),
        ({"sasl_options.username": "u", "sasl_options.password": "p"}, "lock.options.sasl_options.mechanism"),
        ({"timeout": 3}, "lock.options.timeout"),
        ({"verify_cert": False}, "lock.options.verify_cert"),
    ],
)
def test_options_that_are_unknown_or_contradict_each_other_are_refused(options: dict[str, object], key: str) -> None:
    with pytest.raises(SettingsError) as refused:
        ZooKeeperOptions.of(options)
    assert refused.value.details["key"] == key
