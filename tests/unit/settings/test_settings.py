"""Settings: where a value comes from, what is refused, and that nothing secret is shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakelock.errors import SettingsError
from lakelock.settings import (
    DecisionSettings,
    LockSettings,
    RetrySettings,
    Settings,
    settings_reference,
)
from lakelock.settings.secrets import masked_uri


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "lakelock.toml"
    path.write_text('[lock]\nwait_s = 7\nprovider = "memory:"\n[write]\nmerge_schema = true\n[storage]\nAWS_REGION = "eu-1"\n')
    return path


def test_without_any_source_every_value_is_the_default() -> None:
    resolved = Settings.resolve()
    assert resolved.settings == Settings()
    assert {found.origin for found in resolved.origins.values()} == {"default"}
    assert set(resolved.origins) == {row.key for row in settings_reference()}


def test_an_option_beats_the_spark_conf_beats_the_file_beats_the_default(toml: Path) -> None:
    conf = {"spark.lakelock.lock.wait_s": "8", "spark.lakelock.lock.lease_s": "18", "spark.executor.memory": "1g"}
    resolved = Settings.resolve({"lock.wait_s": "9"}, conf, toml)
    lock = resolved.settings.lock
    assert (lock.wait_s, lock.lease_s, lock.provider, lock.renew_s) == (9.0, 18.0, "memory:", 5.0)
    origins = [resolved.origins[f"lock.{name}"].origin for name in ("wait_s", "lease_s", "provider", "renew_s")]
    assert origins == ["option", "spark conf", f"file {toml}", "default"]


@pytest.mark.parametrize("name", ["lock.wait_s", "LOCK.WAIT_S", "lock_wait_s", "Lock_Wait_S"])
def test_options_may_be_dotted_or_snake_in_any_case(name: str) -> None:
    assert Settings.resolve({name: "3"}).settings.lock.wait_s == 3.0


def test_one_setting_in_two_spellings_with_different_values_is_refused() -> None:
    assert Settings.resolve({"lock.wait_s": "3", "lock_wait_s": "3"}).settings.lock.wait_s == 3.0
    with pytest.raises(SettingsError, match=r"lock\.wait_s is given twice in option"):
        Settings.resolve({"lock.wait_s": "3", "lock_wait_s": "4"})


def test_the_file_is_named_by_argument_else_option_else_spark_conf(toml: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[lock]\nwait_s = 70\n")
    conf = {"spark.lakelock.config": str(other)}
    assert Settings.resolve({}, conf).settings.lock.wait_s == 70
    assert Settings.resolve({"config": str(toml)}, conf).settings.lock.wait_s == 7
    assert Settings.resolve({"config": str(other)}, conf, f"file://{toml}").settings.lock.wait_s == 7


def test_the_file_may_be_a_uri_or_below_the_home_folder(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(toml.parent))
    for name in (f"file://{toml}", Path(f"file://{toml}"), f"file:{toml}", f"~/{toml.name}"):
        assert Settings.resolve(file=name).settings.lock.wait_s == 7


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("lock.wait_ss", "lock.wait_s"),
        ("lok_lease_s", "lock.lease_s"),
        ("wait_s", "lock.wait_s"),
        ("write.compresion", "write.compression"),
        ("profile", "concurrency.profile"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(name: str, guess: str) -> None:
    with pytest.raises(SettingsError, match=f'unknown setting "{name}" \\(option\\); did you mean "{guess}"'):
        Settings.resolve({name: "1"})


def test_an_unknown_key_in_a_file_or_conf_names_that_source(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[lock]\nwait = 1\n")
    with pytest.raises(SettingsError, match=rf'"lock\.wait" \(file {path}\)'):
        Settings.resolve(file=path)
    with pytest.raises(SettingsError, match=r'"spark\.lakelock\.lock\.wait" \(spark conf\); did you mean "lock\.wait_s"'):
        Settings.resolve(spark_conf={"spark.lakelock.lock.wait": "1"})


def test_a_wrong_prefix_in_the_spark_conf_is_pointed_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    resolved = Settings.resolve(spark_conf={"lakelock.lock.wait_s": "1", "spark.hadoop.lakelock.lock.wait_s": "1"})
    assert resolved.settings.lock.wait_s == 60.0
    assert len(resolved.warnings) == 2
    assert all('"spark.lakelock.lock.wait_s"' in warning for warning in resolved.warnings)
    assert tuple(record.message for record in caplog.records) == resolved.warnings


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lock.wait_s", "-1", "0 s to 86,400 s"),
        ("lock.wait_s", "nan", "0 s to 86,400 s"),
        ("lock.wait_s", "soon", "must be a number"),
        ("lock.wait_s", True, "must be a number"),
        ("retry.attempts", "0", "1 to 1,000"),
        ("retry.attempts", "2.5", "whole number"),
        ("retry.attempts", "inf", "whole number"),
        ("write.target_file_rows", "0", "at least 1 rows"),
        ("write.merge_schema", "maybe", "true or false"),
        ("write.compression", "zstandard", 'did you mean "zstd"'),
        ("concurrency.mode", "PESIMISTIC", 'did you mean "PESSIMISTIC"'),
        ("lock.provider", 5, "must be text"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_key_source_and_rule(name: str, value: object, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.resolve({name: value})
    assert f"{name} (option)" in caught.value.message
    assert message in caught.value.message
    assert caught.value.hint
    assert caught.value.details["key"] == name


@pytest.mark.parametrize(
    ("value", "expected"), [("TRUE", True), ("on", True), ("1", True), (True, True), ("no", False), (" False ", False)]
)
def test_booleans_are_read_as_people_write_them(value: object, expected: bool) -> None:
    assert Settings.resolve({"write.merge_schema": value}).settings.write.merge_schema is expected


def test_numbers_are_read_from_text_and_choices_in_any_case() -> None:
    settings = Settings.resolve({"retry.attempts": " 1_0 ", "lock.wait_s": "1e1", "concurrency.mode": "single_writer"}).settings
    assert (settings.retry.attempts, settings.lock.wait_s, settings.concurrency.mode) == (10, 10.0, "SINGLE_WRITER")


@pytest.mark.parametrize(
    "build",
    [
        lambda: LockSettings(lease_s=10, renew_s=5),
        lambda: RetrySettings(first_wait_s=5, longest_wait_s=1),
        lambda: DecisionSettings(slot_attempts=0),
        lambda: Settings.resolve({"lock.lease_s": 10}),
    ],
)
def test_contradictions_and_bounds_are_refused_also_when_built_in_code(build: object) -> None:
    assert callable(build)
    with pytest.raises(SettingsError) as caught:
        build()
    assert caught.value.hint


def test_settings_travel_to_other_processes() -> None:
    settings = Settings.resolve({"lock.wait_s": 1, "storage.region": "x"}).settings
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_storage_options_are_free_but_plain_text(toml: Path) -> None:
    resolved = Settings.resolve({"storage.endpoint": "http://h"}, file=toml)
    assert resolved.settings.storage == {"endpoint": "http://h", "aws_region": "eu-1"}


def test_secrets_are_neither_explained_nor_printed() -> None:
    resolved = Settings.resolve(
        {"lock.provider": "redis://user:hunter2@h:6379/0?password=hunter2&db=1"},
        {"spark.lakelock.storage.aws_secret_access_key": "hunter2", "spark.lakelock.storage.sas_token": "hunter2"},
    )
    shown = "\n".join(str(line) for line in resolved.explain())
    assert "hunter2" not in shown + repr(resolved.settings)
    assert "redis://user:***@h:6379/0?password=***&db=***" in shown
    assert resolved.settings.storage["sas_token"] == "hunter2"


def test_explain_tells_value_and_origin_of_every_setting() -> None:
    lines = {line.key: line for line in Settings.resolve({"lock.wait_s": 3}).explain()}
    assert set(lines) == {row.key for row in settings_reference()}
    assert (lines["lock.wait_s"].value, lines["lock.wait_s"].origin, lines["lock.wait_s"].default) == ("3.0", "option", "60.0")
    assert lines["write.merge_schema"].value == "false"


def test_every_setting_is_documented_and_its_default_is_allowed() -> None:
    for row in settings_reference():
        assert row.doc[0].isupper(), row.key
        assert not row.doc.endswith("."), row.key
        assert row.kind in (bool, int, float, str), row.key
        assert isinstance(row.default, row.kind), row.key
        assert row.key.endswith("_s") == (row.unit == "s"), row.key


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"[lock\n", "not valid TOML"),
        ("a.toml", b"\xff\xfe", "not UTF-8"),
        ("a.yaml", b"lock: 1", "neither .toml nor .properties"),
    ],
)
def test_an_unreadable_file_says_what_is_wrong_with_it(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=message):
        Settings.resolve(file=path)


def test_a_missing_file_is_an_error_not_a_default(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no settings file"):
        Settings.resolve(file=tmp_path / "gone.toml")
    with pytest.raises(SettingsError, match="cannot read"):
        Settings.resolve(file=tmp_path)


@pytest.mark.parametrize(
    ("name", "guess"),
    [("s3.endpoint", "storage.endpoint"), ("lock.lease", "lock.lease_s"), ("lock.timeout_s", None), ("zookeeper.time", None)],
)
def test_the_guess_is_one_of_the_section_that_was_named(name: str, guess: str | None) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.resolve({name: "1"})
    assert refused.value.message.endswith(f'did you mean "{guess}"?' if guess else "(option)")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("redis://lake:s3c#ret@redis.corp:6379/0", "redis://lake:***@redis.corp:6379/0"),
        ("redis://u:s3c/r?et@h/0?key=a@b", "redis://u:***@h/0?key=a@b"),
        ("redis:u:secret@h", "redis:u:***@h"),
        ("valkeys:/u:secret@h", "valkeys:/u:***@h"),
        ("redis://u:pass word@h", "redis://u:***@h"),
        ("redis://h1:6379,h2:6379/0?key=a@b", "redis://h1:6379,h2:6379/0?key=a@b"),
        ("abfss://c@account.dfs.core.windows.net/at=12:00@x", "abfss://c@account.dfs.core.windows.net/at=12:00@x"),
        ("redis://h/0?pw=s3cret&key=k&auth=s3cret&pwd=s3cret", "redis://h/0?pw=***&key=k&auth=***&pwd=***"),
        ("zookeeper://h/x?digest=u:s3cret", "zookeeper://h/x?digest=***"),
        ("dynamodb://t/k?region=eu-1&endpoint=h:1", "dynamodb://t/k?region=eu-1&endpoint=h:1"),
        ("redis://s3cret@h/0", "redis://***@h/0"),
        ("redis:s3cret@h/0", "redis:***@h/0"),
        ("zookeeper:u:s3cret@h/x", "zookeeper:u:***@h/x"),
        ("u:s3cret@h", "u:***@h"),
        ("//u:s3cret@h/x", "//u:***@h/x"),
        ("hive/_HOST@EXAMPLE.ORG", "hive/_HOST@EXAMPLE.ORG"),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
        ("text/html; charset=utf-8, see a@b", "text/html; charset=utf-8, see a@b"),
        ("at http://u:p@h:1/ and redis://a:b@c", "at http://u:***@h:1/ and redis://a:***@c"),
    ],
)
def test_no_password_is_shown_whatever_characters_it_has(uri: str, shown: str) -> None:
    assert masked_uri(uri) == shown


def test_a_setting_that_is_gone_says_what_to_do_in_any_spelling() -> None:
    for given, hint in {
        "redis.password": "lock.options.password",
        "redis_password": "lock.options.password",
        "RETRY.RESERVE_AFTER": "constant",
        "zookeeper.digest": "digest:user:password",
        "dynamodb.billing_mode": "billed by request",
    }.items():
        with pytest.raises(SettingsError, match="is gone") as refused:
            Settings.resolve({given: "x"})
        assert hint in refused.value.hint


def test_options_of_a_driver_are_kept_by_its_own_names_and_their_secrets_are_not_shown(toml: Path) -> None:
    lines = [
        "[lock]",
        'provider = "redis://h"',
        "[lock.options]",
        'password = "s3same"',
        'passwort = "s3same"',
        "socket_timeout = 3",
    ]
    toml.write_text("\n".join(lines))
    found = Settings.resolve({"lock_options_wait_replicas": 1}, file=toml)
    expected = {"password": "s3same", "passwort": "s3same", "socket_timeout": 3, "wait_replicas": 1}
    assert found.settings.lock_options == expected
    shown = {each.key: each.value for each in found.explain()}
    assert shown["lock.options.socket_timeout"] == "3" and "s3same" not in str(shown) + repr(found)


def test_options_go_with_the_lock_that_the_same_source_names(toml: Path) -> None:
    toml.write_text('[lock]\nprovider = "redis://h"\n[lock.options]\npassword = "s3same"\n')
    assert Settings.resolve({"lock.provider": "redis://other"}, file=toml).settings.lock_options == {"password": "s3same"}
    assert Settings.resolve({"lock.provider": "storage:"}, file=toml).settings.lock_options == {}
    assert Settings.resolve({"lock.provider": "storage:", "lock.options.x": 1}).settings.lock_options == {"x": 1}
