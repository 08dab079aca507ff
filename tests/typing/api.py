"""Never executed: what a type checker must make of the public names, as users write them."""

from __future__ import annotations

from typing_extensions import assert_type

import lakelock
from lakelock import CommitOutcomeUnknown, ConflictError, LakelockError, Settings, SettingsError, __version__
from lakelock.conflict import Conflict
from lakelock.settings.resolver import Resolved

assert_type(__version__, str)

resolved = Settings.resolve({"lock.wait_s": 5}, {"spark.lakelock.lock.lease_s": "30"}, "configs/storage.toml")
assert_type(resolved, Resolved)
assert_type(resolved.settings, Settings)
assert_type(resolved.settings.lock.wait_s, float)
assert_type(resolved.settings.retry.attempts, int)
assert_type(resolved.settings.write.merge_schema, bool)
assert_type(resolved.warnings, tuple[str, ...])

try:
    ...
except ConflictError as error:
    assert_type(error.conflict, Conflict)
    assert_type(error.retryable, bool)
except CommitOutcomeUnknown as error:
    assert_type(error.hint, str)
except SettingsError as error:
    assert_type(error.as_dict(), dict[str, object])
except LakelockError as error:
    assert_type(error.details, dict[str, object])

goods = lakelock.create("/lake/goods", schema="id bigint", key="id", settings={"lock.wait_s": 5})
assert_type(goods, lakelock.Table)
assert_type(lakelock.open("/lake/goods"), lakelock.Table)
assert_type(lakelock.exists("/lake/goods"), bool)
assert_type(goods.upsert([{"id": 1}]), lakelock.WriteResult)
assert_type(goods.update({"id": 1}, "id = 2").rows_updated, int)
assert_type(goods.delete("id = 1").attempts, int)
assert_type(goods.history(), list[lakelock.HistoryEntry])


def count(tx: lakelock.TableTransaction) -> int:
    tx.insert([{"id": 2}])
    return 3


assert_type(goods.run(count), lakelock.RunResult[int])
assert_type(goods.run(count).value, int | None)
with lakelock.transaction(goods, lakelock.open("/lake/stock")) as together:
    assert_type(together[goods], lakelock.TableTransaction)
assert_type(together.results, tuple[lakelock.WriteResult, ...])
with goods.transaction() as alone:
    assert_type(alone, lakelock.TableTransaction)
