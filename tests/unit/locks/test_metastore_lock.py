"""The parts of the metastore lock that need no metastore: names, bytes, agent info, who is dead, and secrets."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.api import SystemRuntime

from lakelock.errors import SettingsError
from lakelock.providers.hive_metastore.client import ACQUIRED, EXCLUSIVE, Calls, LockRow
from lakelock.providers.hive_metastore.connection import Address, DigestMd5, LoginRefused, Wire, WireError, digest_credentials
from lakelock.providers.hive_metastore.requests import LONGEST_TEXT, Agent, Place, Progress, Watch, holder_of, is_of
from lakelock.settings import Settings
from lakelock.settings.sections import HiveMetastoreSettings

JAVA_LOCK = (
    "80010001000000046c6f636b000000020c00010f00010c0000000108000100000003080002000000020b0003000000036462310b000400000003"
    "74626c08000600000005000b000300000004726f6f740b000400000002766d0b000500000007556e6b6e6f776e0000"
)
"""What Java Hudi's provider sends for db1.tbl as its second call."""

GRANT, WRITER = "4df4fc5b-7a3f-4e73-a4f4-8a3ad0e30a8e", "f5f1f2a8-6e1e-4b51-9d5d-3d8b9a1f0c11"
AGENT = Agent(GRANT, WRITER, 15.0, 4242, "nightly load")


def test_a_lock_request_has_the_bytes_of_java_hudi() -> None:
    runtime = SystemRuntime()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        calls = Calls(Wire(runtime, ours, runtime.monotonic_s() + 1.0), "binary")
        theirs.sendall(bytes.fromhex("8001000200000007" + b"set_ugi".hex() + "0000000100"))
        calls.set_ugi("root")
        theirs.recv(1000)
        with pytest.raises(WireError, match="no answer in time"):
            calls.lock("db1", "tbl", user="root", host="vm", agent="Unknown")
        assert theirs.recv(1000).hex() == JAVA_LOCK


def place(uri: str, uris: str = "", table_uri: str = "s3://lake/orders") -> Place:
    return Place.of(uri, uris, table_uri)


def test_servers_and_names_come_from_the_uri_as_they_are() -> None:
    found = place("hive_metastore://H1:9083,h2,[::1]:7/My_DB/My%20Table")
    assert found.addresses == (Address("H1", 9083), Address("h2", 9083), Address("::1", 7))
    assert (found.database, found.table) == ("My_DB", "My Table")
    assert place("hive:h1/db/t").addresses == (Address("h1", 9083),)


def test_servers_may_come_as_hive_lists_them() -> None:
    found = place("hive_metastore:///db/t", uris=" thrift://h1:1 , thrift://h2 ,")
    assert found.addresses == (Address("h1", 1), Address("h2", 9083)) and found.table == "t"


def test_one_lock_has_one_identity() -> None:
    expected = "hive_metastore://h1:9083,h2:9083/db/My%20T"
    assert place("hive://h2:9083,h1/db/My%20T").identity == expected
    assert place("hive_metastore:///db/My T/", uris="thrift://H1:9083,thrift://h2:9083").identity == expected
    assert place(expected).identity == expected


def test_a_table_without_names_gets_one_of_its_own_in_lower_case() -> None:
    one, same, other = place("hive://h1"), place("hive://h1/"), place("hive://h1", table_uri="s3://lake/Orders")
    assert one == same and one.database == "lakelock" and one.table == one.table.lower() != other.table


@pytest.mark.parametrize(
    ("uri", "uris", "said"),
    [
        ("hive_metastore:", "", "names no metastore"),
        ("hive://h1/db", "", "database/table"),
        ("hive://h1/db/t/x", "", "database/table"),
        ("hive://h1:port/db/t", "", "not host:port"),
        ("hive://h1:0/db/t", "", "not host:port"),
        ("hive://h'1/db/t", "", "not host:port"),
        ("hive://h1/db/it's", "", "cannot be the name"),
        ("hive://h1/db/a%22b", "", "cannot be the name"),
        ("hive://h1/db/a%5Cb", "", "cannot be the name"),
        ("hive://h1/db/a%0Ab", "", "cannot be the name"),
        ("hive://h1/db/%20a", "", "cannot be the name"),
        ("hive://h1/db/é", "", "cannot be the name"),
        ("hive://h1/db/" + "x" * 129, "", "cannot be the name"),
        ("hive://h1/db/t?x=1", "", "after \\?"),
        ("hive://h1/db/t", "thrift://h2", "both name"),
        ("hive:", "h1:9083", "does not begin with thrift://"),
        ("hive:", "http://h1:9083", "does not begin with thrift://"),
    ],
)
def test_what_cannot_be_a_lock_in_a_metastore_is_refused(uri: str, uris: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        place(uri, uris)
    assert refused.value.hint


@pytest.mark.parametrize("missing", ["uris", "database", "table"])
def test_a_java_file_that_lacks_a_part_of_the_lock_is_refused(tmp_path: Path, missing: str) -> None:
    parts = {"uris": "thrift://h1:9083", "database": "db", "table": "t"}
    lines = [f"hoodie.write.lock.hivemetastore.{name}={value}" for name, value in parts.items() if name != missing]
    lines.append("hoodie.write.lock.provider=org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider")
    (tmp_path / "hudi.properties").write_text("\n".join(lines))
    with pytest.raises(SettingsError, match=f"hivemetastore.{missing}"):
        Settings.resolve(file=tmp_path / "hudi.properties")


@pytest.mark.parametrize(("uri", "uris"), [("hive://me:hunter2@h1/db/t", ""), ("hive:", "x://me:hunter2@h1")])
def test_a_password_in_a_uri_is_refused_and_not_repeated(uri: str, uris: str) -> None:
    with pytest.raises(SettingsError) as refused:
        place(uri, uris)
    assert "hunter2" not in str(refused.value)


def test_agent_info_is_read_as_it_was_written() -> None:
    assert Agent.of(AGENT.text) == AGENT
    assert Agent.of("Unknown") is None and Agent.of("") is None and Agent.of("lakelock1;a;b;c;d;e") is None


@given(application=st.text(), pid=st.integers(0, 4_194_304), lease_ms=st.integers(1_000, 3_600_000))
def test_agent_info_of_any_application_fits_and_cannot_end_a_string_in_sql(application: str, pid: int, lease_ms: int) -> None:
    agent = Agent(GRANT, WRITER, lease_ms / 1000, pid, application)
    assert len(agent.text) <= LONGEST_TEXT and agent.text.isascii() and not set("'\"\\\n") & set(agent.text)
    read = Agent.of(agent.text)
    assert read is not None and replace(read, application="") == replace(agent, application="")


def row(lock_id: int, agent: str = "", heartbeat_ms: int = 0, state: int = ACQUIRED) -> LockRow:
    return LockRow(lock_id, "db", "t", None, state, EXCLUSIVE, heartbeat_ms, 0, "etl", "node-7", agent)


def test_holders_are_told_apart() -> None:
    ours, java = holder_of(row(7, AGENT.text)), holder_of(row(8, "Unknown"))
    assert str(ours) == "nightly load (etl@node-7, pid 4242)" and ours.token == 7 and ours.lease_s == 15.0
    assert "etl@node-7, lock 8" in str(java) and java.writer is None
    assert is_of(row(7, AGENT.text), GRANT) and not is_of(row(8, "Unknown"), GRANT)


def queue(*lock_ids: int) -> list[LockRow]:
    return [row(lock_id) for lock_id in lock_ids]


def test_the_next_in_the_queue_is_not_told_to_stay_away() -> None:
    progress = Progress()
    for rows in (queue(9), queue(8, 9), queue(8, 9, 10)):
        progress.saw(rows, 9, 1.0)
        assert progress.pause_s(look_s=0.1, poll_s=0.5) == 0.0


def test_the_others_stay_away_for_half_of_the_time_until_they_are_next_at_the_pace_of_the_queue() -> None:
    progress = Progress()
    progress.saw(queue(*range(1, 22)), 21, 10.0)
    assert progress.ahead == 20 and progress.pause_s(look_s=0.01, poll_s=0.5) == pytest.approx(9.5 * 0.02)
    progress.saw(queue(*range(11, 22)), 21, 11.0)
    assert progress.ahead == 10 and progress.pause_s(look_s=0.01, poll_s=0.5) == pytest.approx(4.5 * 0.1)
    progress.saw(queue(*range(11, 22)), 21, 11.3)
    assert progress.pause_s(look_s=0.01, poll_s=0.5) == pytest.approx(4.5 * 0.3), "it has become slower"
    progress.saw(queue(*range(16, 22)), 21, 11.5)
    assert progress.pause_s(look_s=0.01, poll_s=0.5) == pytest.approx(2 * 0.1), "and quicker again"


def test_a_turn_counts_as_one_pause_at_most_and_as_two_calls_at_least() -> None:
    progress = Progress()
    progress.saw(queue(1, 2, 3, 4, 5), 5, 0.0)
    progress.saw(queue(1, 2, 3, 4, 5), 5, 60.0)
    assert progress.pause_s(look_s=0.01, poll_s=0.5) == pytest.approx(1.5 * 0.5)
    assert progress.pause_s(look_s=1.0, poll_s=0.5) == pytest.approx(1.5 * 2.0), "a slow metastore is asked less"


def test_a_holder_is_dead_after_its_lease_by_my_watch() -> None:
    watch, silent = Watch(), row(1, AGENT.text, heartbeat_ms=1000)
    assert watch.dead([silent], 2, 100.0) == []
    assert watch.dead([silent], 2, 115.4) == []
    assert watch.dead([silent], 2, 115.6) == [silent]


def test_a_holder_that_died_long_ago_by_the_databases_clock_is_watched_for_a_third_of_its_lease() -> None:
    watch, silent, mine = Watch(), row(1, AGENT.text, heartbeat_ms=1000), row(2, AGENT.text, heartbeat_ms=60_000)
    assert watch.dead([silent, mine], 2, 100.0) == []
    assert watch.dead([silent, mine], 2, 105.4) == []
    assert watch.dead([silent, mine], 2, 105.6) == [silent]


def test_a_holder_that_renews_is_never_dead_whatever_the_databases_clock_does() -> None:
    watch = Watch()
    for second in range(0, 100, 5):
        alive = row(1, AGENT.text, heartbeat_ms=second)
        assert watch.dead([alive, row(2, AGENT.text, heartbeat_ms=10**9)], 2, float(second)) == []


def test_others_requests_and_those_behind_mine_are_never_dead() -> None:
    watch, rows = Watch(), [row(1, "Unknown"), row(3, AGENT.text)]
    assert [watch.dead(rows, 2, now_s) for now_s in (0.0, 1000.0)] == [[], []]


@pytest.mark.parametrize("size", [0, 1, 112, 127, 128, 255, 256, 70_000])
def test_delegation_tokens_are_read_in_hadoops_form(size: int) -> None:
    import base64

    identifier = bytes(range(256)) * 300
    counted = _count(size) + identifier[:size] + _count(3) + b"key" + b"\x04kind\x00"
    text = base64.urlsafe_b64encode(counted).decode().rstrip("=")
    assert digest_credentials(text) == (base64.b64encode(identifier[:size]).decode(), "a2V5")


def _count(size: int) -> bytes:
    """Hadoop's variable-length integer."""
    if size <= 127:
        return bytes([size])
    length = (size.bit_length() + 7) // 8
    return (-112 - length).to_bytes(1, "big", signed=True) + size.to_bytes(length, "big")


@pytest.mark.parametrize("token", ["", "hunter2", "####", "fw", "hAAA", "iAAA"])
def test_what_is_no_delegation_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(SettingsError) as refused:
        digest_credentials(token)
    assert not token or token not in str(refused.value)


CHALLENGE = b'realm="default",nonce="abc\\"d",charset=utf-8,algorithm=md5-sess,qop="auth"'


def test_a_server_that_does_not_know_the_secret_is_refused() -> None:
    login = DigestMd5("me", "key", "cnonce")
    assert login.step(b"") == b""
    answer = login.step(CHALLENGE)
    assert b'nonce="abc\\"d"' in answer and b"key" not in answer
    with pytest.raises(LoginRefused, match="does not know"):
        login.step(b"rspauth=0123456789abcdef0123456789abcdef")


def test_a_server_that_wants_more_than_a_login_is_refused() -> None:
    login = DigestMd5("me", "key", "cnonce")
    with pytest.raises(LoginRefused, match="auth-conf"):
        login.step(CHALLENGE.replace(b'"auth"', b'"auth-conf"'))


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"auth": "PLAIN", "user": "me"}, "password"),
        ({"auth": "DIGEST"}, "delegation_token"),
        ({"auth": "KERBEROS"}, "principal"),
        ({"auth": "PLAIN", "user": "me", "password": "x", "transport": "framed"}, "transport"),
        ({"tls_key_file": "key.pem"}, "tls_certificate_file"),
        ({"tls_ca_file": "ca.pem"}, "tls"),
        ({"password": "p"}, "auth"),
        ({"auth": "PLAIN", "user": "u", "password": "p", "keytab": "k"}, "auth"),
    ],
)
def test_settings_that_lack_something_or_do_nothing_are_refused(values: dict[str, str], missing: str) -> None:
    with pytest.raises(SettingsError, match=missing) as refused:
        Settings.resolve({f"hive_metastore.{name}": value for name, value in values.items()})
    assert refused.value.details["key"] == f"hive_metastore.{missing}"


def test_secrets_of_the_settings_are_shown_to_nobody() -> None:
    for secret in (
        {"auth": "PLAIN", "user": "me", "password": "hunter2"},
        {"auth": "DIGEST", "delegation_token": "hunter3"},
    ):
        assert "hunter" not in repr(HiveMetastoreSettings(**secret))  # type: ignore[arg-type]
        resolved = Settings.resolve({f"hive_metastore.{name}": value for name, value in secret.items()})
        assert "hunter" not in repr(resolved) and "hunter" not in str(resolved.explain())
