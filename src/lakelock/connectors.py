"""The Hadoop connectors by which Spark reaches object stores: which one a store and a release of Hadoop need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelock.releases import release

HADOOP_WITH_GOOGLES_STORAGE = (3, 5)
"""The first release with a connector of its own for `gs:`. By the defaults of this one Google's does not start."""


@dataclass(frozen=True)
class Connector:
    """What a session needs to reach one kind of store: a jar, named as Maven does, and settings.

    `coordinates` end with the release of the jar, or with `VERSION` where that of Hadoop is not known.
    """

    coordinates: str
    settings: str

    @property
    def jar(self) -> str:
        """How the name of its jar begins."""
        return self.coordinates.split(":")[1]

    def is_among(self, jars: Iterable[str]) -> bool:
        return any(name.startswith(f"{self.jar}-") for name in jars)


_AZURE = ("hadoop-azure", "set the credentials in spark.hadoop.fs.azure.account.*")
_OF_HADOOP = {
    "s3": (
        "hadoop-aws",
        "where the keys are not in the environment, or the service is not AWS, set spark.hadoop.fs.s3a.access.key, "
        "...secret.key, ...endpoint and ...path.style.access",
    ),
    "gs": ("hadoop-gcp", "set the credentials in spark.hadoop.fs.gs.auth.*"),
    "abfs": _AZURE,
    "az": _AZURE,
}
_GOOGLES = Connector(
    "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
    "set spark.hadoop.fs.gs.impl=com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem and the credentials in "
    "spark.hadoop.fs.gs.auth.*",
)


def connector(scheme: str, hadoop: str, jars: Iterable[str] = ()) -> Connector | None:
    """The connector for tables of that scheme; None for those that Spark reaches without one.

    `scheme` is that of the table's canonical URI, `hadoop` the release that Spark runs on, empty where it is not known, and
    `jars` the names of those that Spark has: with Google's own connector among them it needs no other.
    """
    if scheme not in _OF_HADOOP:
        return None
    if scheme == "gs" and hadoop and (release(hadoop) < HADOOP_WITH_GOOGLES_STORAGE or _GOOGLES.is_among(jars)):
        return _GOOGLES
    artifact, settings = _OF_HADOOP[scheme]
    return Connector(f"org.apache.hadoop:{artifact}:{hadoop or 'VERSION'}", settings)
