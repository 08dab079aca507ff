"""A cluster of Hadoop's that wants Kerberos, in a realm of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.kerberos import REALM, Realm, kerberos_realm
from tests.servers.stores.hdfs import Hdfs, hdfs_server


@dataclass(frozen=True)
class Secured:
    """The realm, the cluster, and the keys of the users `etl`, who may do everything, and `audit`."""

    realm: Realm
    hdfs: Hdfs
    users: Path


@contextmanager
def secured_cluster(folder: Path) -> Iterator[Secured]:
    """A running cluster and KDC."""
    with kerberos_realm(folder / "kdc") as realm:
        users, service = realm.keytab("etl", "audit"), realm.keytab("hdfs/localhost", "HTTP/localhost")
        settings = {
            "hadoop.security.authentication": "kerberos",
            "dfs.block.access.token.enable": "true",
            # Otherwise data nodes want ports that only root may open, or TLS.
            "dfs.data.transfer.protection": "authentication",
            "ignore.secure.ports.for.testing": "true",
            "hadoop.http.authentication.kerberos.principal": f"HTTP/localhost@{REALM}",
            "hadoop.http.authentication.kerberos.keytab": str(service),
            "hadoop.http.filter.initializers": "org.apache.hadoop.hdfs.web.AuthFilterInitializer",
            "hadoop.http.authentication.type": "kerberos",
            "dfs.permissions.superusergroup": "etl",
            "hadoop.user.group.static.mapping.overrides": "etl=etl;audit=audit",
            "hadoop.security.auth_to_local": "DEFAULT",
            **{f"dfs.{node}.kerberos.principal": f"hdfs/localhost@{REALM}" for node in ("namenode", "datanode")},
            **{f"dfs.{node}.keytab.file": str(service) for node in ("namenode", "datanode")},
        }
        options = [f"-Djava.security.krb5.conf={realm.configuration}"]
        with hdfs_server(folder / "hdfs", settings, options) as hdfs:
            yield Secured(realm, hdfs, users)
