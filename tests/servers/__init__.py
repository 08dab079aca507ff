"""Real services for tests, each started on free loopback ports of this machine."""

from tests.servers.s3 import S3_OPTIONS, S3_PAGE, s3_server

__all__ = ["S3_OPTIONS", "S3_PAGE", "s3_server"]
