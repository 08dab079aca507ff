"""The tokens by which executors reach a cluster with Kerberos: shared, renewed in time, and made anew before they end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakelock.testing.runtime import ManualRuntime

pytest.importorskip("pyspark")

from lakelock.spark_plugin.hadoop import NEW_S, RENEW_S, Tokens


class Cluster:
    """Makes tokens, and renews them until it fails."""

    def __init__(self) -> None:
        self.made, self.renewed, self.fails = 0, 0, False

    def make(self) -> tuple[str, Callable[[], object]]:
        self.made += 1
        return f"token {self.made}", self.renew

    def renew(self) -> None:
        if self.fails:
            raise OSError("the token has run out")
        self.renewed += 1


def test_the_tables_of_an_application_share_a_token_for_each_cluster() -> None:
    tokens, cluster = Tokens(ManualRuntime()), Cluster()
    assert [tokens.kept("app", "lake", cluster.make) for _ in range(3)] == ["token 1"] * 3
    assert tokens.kept("app", "pond", cluster.make) == "token 2"
    assert tokens.kept("next app", "lake", cluster.make) == "token 3"


def test_a_token_is_renewed_in_the_background_and_made_anew_before_it_ends() -> None:
    runtime, cluster = ManualRuntime(), Cluster()
    tokens = Tokens(runtime)
    tokens.kept("app", "lake", cluster.make)
    runtime.advance(4 * RENEW_S)
    assert cluster.renewed == 4 and tokens.kept("app", "lake", cluster.make) == "token 1"
    runtime.advance(NEW_S)
    assert tokens.kept("app", "lake", cluster.make) == "token 2"


def test_a_token_that_cannot_be_renewed_is_not_given_to_another_table() -> None:
    runtime, cluster = ManualRuntime(), Cluster()
    tokens = Tokens(runtime)
    tokens.kept("app", "lake", cluster.make)
    cluster.fails = True
    runtime.advance(RENEW_S)
    assert tokens.kept("app", "lake", cluster.make) == "token 2"
