"""The records of a transaction over several tables: their bytes, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.api import AppTransaction, MemoryStorage, WriterIdentity, layout

from lakelock.errors import CorruptTableError, TableError
from lakelock.occ.log import (
    Decision,
    DecisionKind,
    OutcomeRecord,
    Resolution,
    TableInstant,
    TransactionName,
    Verdict,
    read_outcome,
    resolve,
)

AT = "20261121092737397"
WRITER = WriterIdentity("id", "app", "host", 1, "user")
NAME = TransactionName(
    f"{AT}-1a2b",
    (TableInstant("s3://lake/orders", AT, "commit"), TableInstant("s3://lake/stock", AT, "commit")),
    ("file:///p",),
)
PREPARE = Decision(8, DecisionKind.PREPARE, AT, "commit", "w", WRITER, "UPSERT", AT, b"{}", NAME)
OUTCOME = OutcomeRecord(NAME, Verdict.COMMITTED, "w", WRITER, 5, "", (AppTransaction("batches", 7),))

GOLDEN_NAME = (
    '{"id":"20261121092737397-1a2b","home":"s3://lake/orders","tables":'
    '[{"uri":"s3://lake/orders","instant":"20261121092737397","action":"commit"},'
    '{"uri":"s3://lake/stock","instant":"20261121092737397","action":"commit"}],"reads":["file:///p"]}'
)
GOLDEN_WRITER = '{"writer_id":"id","application":"app","host":"host","pid":1,"user":"user"}'
GOLDEN_PREPARE = (
    '{"format":1,"number":8,"kind":"prepare","instant":"20261121092737397","action":"commit","completion":"20261121092737397",'
    f'"write_id":"w","writer":{GOLDEN_WRITER},"operation":"UPSERT","payload_bytes":2,'
    '"payload_sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",'
    f'"transaction":{GOLDEN_NAME}}}\n{{}}'
)
GOLDEN_OUTCOME = (
    f'{{"format":1,"verdict":"committed","transaction":{GOLDEN_NAME},"write_id":"w","writer":{GOLDEN_WRITER},'
    '"at_ms":5,"why":"","applications":[{"id":"batches","version":7}]}'
)


def test_the_bytes_of_the_records_stay_what_they_are():
    assert PREPARE.to_bytes().decode() == GOLDEN_PREPARE
    assert OUTCOME.to_bytes().decode() == GOLDEN_OUTCOME


def test_records_are_read_as_they_were_written():
    assert Decision.from_bytes(GOLDEN_PREPARE.encode(), "d") == PREPARE
    assert OutcomeRecord.from_bytes(GOLDEN_OUTCOME.encode(), "o") == OUTCOME
    assert TransactionName.parse(NAME.to_json()) == NAME


def test_a_prepare_alone_decides_nothing():
    assert resolve(PREPARE) is Resolution.UNDECIDED


def test_a_record_of_a_kind_that_this_release_does_not_know_is_refused():
    newer = GOLDEN_PREPARE.replace('"kind":"prepare"', '"kind":"vote"').encode()
    with pytest.raises(TableError, match=r"kind 'vote', written by a newer lakelock"):
        Decision.from_bytes(newer, "d")
    newer = GOLDEN_OUTCOME.replace('"verdict":"committed"', '"verdict":"perhaps"').encode()
    with pytest.raises(TableError, match=r"verdict 'perhaps', written by a newer lakelock"):
        OutcomeRecord.from_bytes(newer, "o")


@pytest.mark.parametrize(
    "damage",
    [
        {"id": "../../decisions/1"},
        {"id": ""},
        {"tables": []},
        {"home": "s3://lake/stock"},
        {"tables": [{"uri": "s3://lake/orders", "instant": "now", "action": "commit"}]},
        {"tables": [{"uri": f"s3://lake/{n}", "instant": AT, "action": "commit"} for n in range(200)], "home": "s3://lake/0"},
    ],
)
def test_a_transaction_that_is_named_wrongly_is_refused(damage):
    assert TransactionName.parse(json.dumps({**NAME.as_dict(), **damage})) is None
    values = json.loads(GOLDEN_OUTCOME)
    values["transaction"] |= damage
    with pytest.raises(CorruptTableError, match="outcome o is not readable"):
        OutcomeRecord.from_bytes(json.dumps(values).encode(), "o")


def test_an_outcome_under_the_name_of_another_transaction_is_refused():
    storage = MemoryStorage()
    other = replace(OUTCOME, name=replace(NAME, id=f"{AT}-other"))
    storage.put(layout.outcome(NAME.id), other.to_bytes())
    with pytest.raises(CorruptTableError, match=f"is that of {AT}-other"):
        read_outcome(storage, NAME.id)
