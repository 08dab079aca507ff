"""The PEM files of TLS, read before anything is connected.

Drivers mistake a bad file for a lost connection, or ask the terminal for the password of a key.
"""

from __future__ import annotations

import ssl

from lakelock.errors import SettingsError


def tls_context(service: str, *, ca: str, certificate: str, key: str, password: str, hint: str, setting: str) -> ssl.SSLContext:
    """What a client trusts and shows to a service; `SettingsError` when one of the files cannot be used.

    Without `ca` it trusts what the machine trusts. `password` is the key's; nobody is asked for it.
    """
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if certificate:
            context.load_cert_chain(certificate, key or None, password=lambda: password)
    except (OSError, ValueError) as error:
        raise SettingsError(f"the certificates for TLS to {service} cannot be used: {error}", hint=hint, key=setting) from error
    return context
