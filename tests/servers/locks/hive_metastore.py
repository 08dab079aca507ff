"""A real Hive metastore from the jars that PySpark ships, on Derby, with locks that expire after four seconds."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from lakelock.testing.service import Service
from tests.given_servers import Place, ServerFailed, not_ours
from tests.servers import jvm
from tests.servers.jvm import java
from tests.servers.process import ServerProcess

LOCK_TIMEOUT_S = 4
PATIENT_URL = "LAKELOCK_TEST_HIVE_METASTORE_60S"
"""`hive_metastore://host:port` of a server that is there already, with hive.txn.timeout=60s or more, for the matrix."""

ENVIRONMENT_URL = "LAKELOCK_TEST_HIVE_METASTORE"
"""`hive_metastore://host:port` of a server that is there already, with hive.txn.timeout=4s."""

_LEASE = {"data_locks.lease_s": str(LOCK_TIMEOUT_S), "data_locks.renew_s": str(LOCK_TIMEOUT_S / 4)}
"""Settings of a writer whose data locks must not outlast the server's time-out."""

_UP_WITHIN_S = 120.0
JAVA_OPTIONS = ("-Xmx256m", *jvm.SHORT_LIVED, "-Dderby.system.durability=test")

# The metastore creates its other tables itself. These are the columns that the queries of its lock manager name.
_LOCK_TABLES = """
create table NEXT_LOCK_ID (NL_NEXT bigint not null);
insert into NEXT_LOCK_ID values (1);
create table HIVE_LOCKS (
  HL_LOCK_EXT_ID bigint not null, HL_LOCK_INT_ID bigint not null, HL_TXNID bigint, HL_DB varchar(128) not null,
  HL_TABLE varchar(128), HL_PARTITION varchar(767), HL_LOCK_STATE char(1) not null, HL_LOCK_TYPE char(1) not null,
  HL_LAST_HEARTBEAT bigint not null, HL_ACQUIRED_AT bigint, HL_USER varchar(128) not null, HL_HOST varchar(128) not null,
  HL_HEARTBEAT_COUNT integer, HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint, HL_BLOCKEDBY_INT_ID bigint,
  primary key (HL_LOCK_EXT_ID, HL_LOCK_INT_ID));
create table NEXT_TXN_ID (NTXN_NEXT bigint not null);
insert into NEXT_TXN_ID values (1);
create table TXNS (
  TXN_ID bigint primary key, TXN_STATE char(1) not null, TXN_STARTED bigint not null, TXN_LAST_HEARTBEAT bigint not null,
  TXN_USER varchar(128) not null, TXN_HOST varchar(128) not null, TXN_AGENT_INFO varchar(128), TXN_META_INFO varchar(128),
  TXN_HEARTBEAT_COUNT integer);
create table TXN_COMPONENTS (
  TC_TXNID bigint references TXNS (TXN_ID), TC_DATABASE varchar(128) not null, TC_TABLE varchar(128),
  TC_PARTITION varchar(767), TC_OPERATION_TYPE char(1) not null);
create table COMPLETED_TXN_COMPONENTS (
  CTC_TXNID bigint, CTC_DATABASE varchar(128) not null, CTC_TABLE varchar(128), CTC_PARTITION varchar(767));
create table WRITE_SET (
  WS_DATABASE varchar(128) not null, WS_TABLE varchar(128) not null, WS_PARTITION varchar(767), WS_TXNID bigint not null,
  WS_COMMIT_ID bigint not null, WS_OPERATION_TYPE char(1) not null);
create table NEXT_COMPACTION_QUEUE_ID (NCQ_NEXT bigint not null);
insert into NEXT_COMPACTION_QUEUE_ID values (1);
create table COMPACTION_QUEUE (
  CQ_ID bigint primary key, CQ_DATABASE varchar(128) not null, CQ_TABLE varchar(128) not null, CQ_PARTITION varchar(767),
  CQ_STATE char(1) not null, CQ_TYPE char(1) not null, CQ_TBLPROPERTIES varchar(2048), CQ_WORKER_ID varchar(128),
  CQ_START bigint, CQ_RUN_AS varchar(128), CQ_HIGHEST_TXN_ID bigint, CQ_META_INFO varchar(2048) for bit data,
  CQ_HADOOP_JOB_ID varchar(32));
create table COMPLETED_COMPACTIONS (
  CC_ID bigint primary key, CC_DATABASE varchar(128) not null, CC_TABLE varchar(128) not null, CC_PARTITION varchar(767),
  CC_STATE char(1) not null, CC_TYPE char(1) not null, CC_TBLPROPERTIES varchar(2048), CC_WORKER_ID varchar(128),
  CC_START bigint, CC_END bigint, CC_RUN_AS varchar(128), CC_HIGHEST_TXN_ID bigint, CC_META_INFO varchar(2048) for bit data,
  CC_HADOOP_JOB_ID varchar(32));
create table AUX_TABLE (
  MT_KEY1 varchar(128) not null, MT_KEY2 bigint not null, MT_COMMENT varchar(255), primary key (MT_KEY1, MT_KEY2));
"""

_LOG = """
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/metastore.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}} %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def jars() -> str:
    """The class path of PySpark's jars."""
    return str(jvm.jars() / "*")


class MetastoreProcess(ServerProcess):
    """One metastore; `extra` are properties of Hive and Hadoop on top of what it needs."""

    title = "the metastore"
    up_within_s = _UP_WITHIN_S
    ends_by = signal.SIGTERM

    def __init__(self, folder: Path, extra: Mapping[str, str] | None = None, options: Sequence[str] = ()) -> None:
        super().__init__(folder)
        self._options = (*JAVA_OPTIONS, *options)
        self._configure(extra or {})
        self._make_lock_tables()

    def command(self) -> list[str]:
        main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
        options = (*self._options, f"-Djava.io.tmpdir={self.folder}")
        return [java(), *options, "-cp", f"{self.folder}/conf:{jars()}", main, "-p", str(self.port)]

    def _configure(self, extra: Mapping[str, str]) -> None:
        conf = self.folder / "conf"
        properties = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:{self.folder}/db;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "datanucleus.connectionPoolingType": "HikariCP",
            "hive.async.log.enabled": "false",
            "hive.metastore.warehouse.dir": f"{self.folder}/warehouse",
            # Without these four, locks never expire.
            "hive.compactor.initiator.on": "true",
            "hive.support.concurrency": "true",
            "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
            "hive.timedout.txn.reaper.start": "0s",
            "hive.timedout.txn.reaper.interval": "1s",
            "hive.txn.timeout": f"{LOCK_TIMEOUT_S}s",
            **extra,
        }
        jvm.write_configuration(conf / "hive-site.xml", properties)
        # Hadoop, whose user class decides about Kerberos, reads a file of its own.
        jvm.write_configuration(conf / "core-site.xml", {k: v for k, v in properties.items() if k.startswith("hadoop.")})
        (conf / "hive-log4j2.properties").write_text(_LOG.format(folder=self.folder))

    def _make_lock_tables(self) -> None:
        script = self.folder / "lock-tables.sql"
        script.write_text(f"connect 'jdbc:derby:{self.folder}/db;create=true';\n{_LOCK_TABLES}exit;\n")
        made = subprocess.run(
            [java(), *JAVA_OPTIONS, "-cp", jars(), "org.apache.derby.tools.ij", str(script)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_UP_WITHIN_S,
            check=False,
        )
        if made.returncode != 0 or "ERROR" in made.stdout:
            raise ServerFailed(f"the lock tables could not be made: {made.stdout[-2000:]}{made.stderr[-2000:]}")


@contextmanager
def hive_metastore_server(folder: Path, extra: Mapping[str, str] | None = None) -> Iterator[Service]:
    """A running metastore; that of the environment if it names one, which cannot be stopped or paused."""
    named = os.environ.get(ENVIRONMENT_URL, "")
    if named and not extra:
        yield _given(ENVIRONMENT_URL, named, _LEASE)
        return
    with MetastoreProcess(folder, extra) as server:
        yield Service(
            name="hive_metastore",
            url=lambda table: f"hive_metastore://127.0.0.1:{server.port}/lakelock_test/{quote(table, safe='')}",
            port=server.port,
            stop=server.stop,
            start=server.start,
            pause=server.pause,
            resume=server.resume,
            options={"hive_metastore.socket_timeout_s": "1", **({} if extra else _LEASE)},
            queues=True,
        )


@contextmanager
def patient_metastore_server(folder: Path) -> Iterator[Service]:
    """A metastore for the leases of the matrix, which are up to 30 s, as the environment or this machine has it."""
    named = os.environ.get(PATIENT_URL, "")
    if named:
        yield _given(PATIENT_URL, named, {})
        return
    with hive_metastore_server(folder, {"hive.txn.timeout": "60s"}) as own:
        yield own


def _given(variable: str, named: str, options: Mapping[str, str]) -> Service:
    server, place, cannot = named.rstrip("/"), Place.of(named, 9083), not_ours(variable)
    return Service(
        name="hive_metastore",
        url=lambda table: f"{server}/lakelock_test/{quote(table, safe='')}",
        port=place.port,
        stop=cannot,
        start=cannot,
        pause=cannot,
        resume=cannot,
        options=options,
        queues=True,
        host=place.host,
        address=place.text,
    )
