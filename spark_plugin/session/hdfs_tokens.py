"""Delegation tokens of HDFS clusters with Kerberos: one for all tables of an application, kept valid while it runs.

Executors have no ticket, and Spark gives its own tokens to their JVMs only, so lakelock's client shows one of these. A name
node remembers each token that it gave, so not every table gets its own; one that nobody renews it forgets after a day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from lakelock.clock import Repeating, Runtime, SystemRuntime
from lakelock.spark_plugin.session.classes import java_class

RENEW_S = 6 * 3600.0
"""A quarter of a name node's `dfs.namenode.delegation.token.renew-interval`, so that a renewal may fail twice."""
NEW_S = 5 * 24 * 3600.0
"""A table that is opened so long after a token was made gets a new one: after seven days a name node renews none."""


@dataclass(frozen=True)
class Token:
    """A token as `storage.delegation_token` has it, how to renew it, and when it was made."""

    text: str = field(repr=False)
    renew: Callable[[], object] = field(repr=False)
    made_s: float


class Tokens:
    """The tokens of this process, by application and cluster. One background action renews them all."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._mutex = runtime, runtime.mutex()
        self._kept: dict[tuple[str, str], Token] = {}
        self._renewing: Repeating | None = None

    def kept(self, application: str, cluster: str, make: Callable[[], tuple[str, Callable[[], object]]]) -> str:
        """The application's token for a cluster; `make` gets one where there is none, or an old one."""
        key = (application, cluster)
        with self._mutex:
            now_s = self._runtime.monotonic_s()
            found = self._kept.get(key)
            if found is None or now_s - found.made_s >= NEW_S:
                found = self._kept[key] = Token(*make(), now_s)
            if self._renewing is None:
                self._renewing = self._runtime.every(RENEW_S, self.renew, name="hdfs-tokens")
            return found.text

    def __len__(self) -> int:
        return len(self._kept)

    def renew(self) -> None:
        """Renew all; one that cannot be renewed is dropped, so that the next table gets another."""
        with self._mutex:
            tokens = dict(self._kept)
        for key, token in tokens.items():
            try:
                token.renew()
            except Exception:  # noqa: BLE001 whatever the JVM says, the next table asks for another token
                with self._mutex:
                    if self._kept.get(key) is token:
                        del self._kept[key]


TOKENS = Tokens(SystemRuntime())


def token_of(spark: SparkSession, cluster: str, conf: Any) -> str:
    """A token for the user of Spark's JVM, who is logged in by a ticket or by `--principal` and `--keytab`."""
    user = java_class(spark, "org.apache.hadoop.security.UserGroupInformation").getCurrentUser().getShortUserName()

    def make() -> tuple[str, Callable[[], object]]:
        root = java_class(spark, "java.net.URI")(f"hdfs://{cluster}/")
        token = java_class(spark, "org.apache.hadoop.fs.FileSystem").get(root, conf).getDelegationToken(user)
        return str(token.encodeToUrlString()), lambda: token.renew(conf)

    return TOKENS.kept(str(spark.sparkContext.applicationId), cluster, make)
