"""Addresses of object stores, checked before obstore has them: one that is no URL would end it with a panic of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from lakelock.errors import SettingsError
from lakelock.settings.secrets import masked_uri

_ENDINGS = ("endpoint", "endpoint_url", "endpoint_url_s3")
_FLAGS = ("use_fabric_endpoint", "azure_use_fabric_endpoint")
_VARIABLES = {
    "s3": ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "az": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
    "abfs": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
}
"""Those that obstore reads by itself."""


def check_endpoints(uri: str, options: Mapping[str, str]) -> None:
    """`SettingsError` for an option or variable of this store that is not the URL of a server."""
    for name, address in _endpoints(uri.partition(":")[0], options).items():
        if not _is_url(address):
            raise SettingsError(
                f"{name} is {masked_uri(address)!r}, which is not the URL of a server",
                hint="write it with its scheme, such as http://localhost:9000 or https://s3.example.com",
                key=name,
            )


def _endpoints(scheme: str, options: Mapping[str, str]) -> dict[str, str]:
    """The addresses by where they are given: the options' go first."""
    named = [name for name in options if name.lower().endswith(_ENDINGS) and name.lower() not in _FLAGS]
    if named:
        return {f"storage.{name}": options[name] for name in named}
    return {variable: os.environ[variable] for variable in _VARIABLES.get(scheme, ()) if variable in os.environ}


def _is_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return is_server and not any(character.isspace() for character in address)
    except ValueError:
        return False
