"""What a name node or data node refuses, as it names it itself, and what that means to lakelock."""

from __future__ import annotations

import json
from typing import NoReturn

from lakelock.errors import StorageError, StorageUnavailable

ABSENT = frozenset({"FileNotFoundException"})
EXISTS = frozenset({"FileAlreadyExistsException", "AlreadyBeingCreatedException", "RecoveryInProgressException"})
"""A file that somebody is still writing is there, too."""

NOT_NOW = frozenset({"StandbyException", "RetriableException", "SafeModeException", "ObserverRetryOnActiveException"})
"""Nothing was done: another name node is active, or this one is not ready."""

_NO_DATA_NODE = ("No active and not excluded nodes contain this block", "could only be written to 0 of")
"""So says a name node that has just started, before data nodes have reported to it."""

_DENIED = ("HTTP 401", "HTTP 403")
_NOT_WEBHDFS = ("this address does not answer as a name node's web interface", "check storage.namenodes")
_LONGEST = 300
_RETRY = "check the name nodes and the network, then retry"
_REFUSALS = {
    "AccessControlException": ("permission denied", "give the user access, or name another one in storage.user"),
    "AuthorizationException": ("permission denied", "ask for the right to act for that user"),
    "SecurityException": ("access denied", "check the user, the ticket or storage.delegation_token"),
    "IllegalArgumentException": ("the request was refused", "check storage.user and the other options"),
    "InvalidToken": ("the delegation token is not valid, or has run out", "get a new one for storage.delegation_token"),
    "DSQuotaExceededException": ("the space quota is used up", "free some space or raise the quota, then run it again"),
    "NSQuotaExceededException": ("the quota of names is used up", "remove files or raise the quota, then run it again"),
    "PathComponentTooLongException": ("the name is too long", "use shorter partition values"),
    "InvalidPathException": ("HDFS allows no such name", "names on HDFS have no colon; choose other partition values"),
    "ParentNotDirectoryException": ("a file is in the way where a folder should be", "move that file away"),
    "PathIsNotEmptyDirectoryException": ("a folder is in the way where a file should be", "move that folder away"),
    "UnresolvedLinkException": ("a symbolic link is in the way", "put the file itself there"),
}


class Refused(Exception):
    """A definite answer that is an error: the simple name of the Java exception, and its first line."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name, self.message = name, message

    @classmethod
    def read(cls, status: int, body: bytes) -> Refused:
        """From an answer, which is JSON where the cluster's own code gave it."""
        try:
            remote = json.loads(body)["RemoteException"]
            message = str(remote["message"]).strip().partition("\n")[0]
            return cls(_simple(str(remote["exception"]), message), message[:_LONGEST])
        except (ValueError, KeyError, TypeError):
            return cls(f"HTTP {status}", body[:_LONGEST].decode(errors="replace").strip().partition("\n")[0])

    def is_one_of(self, names: frozenset[str]) -> bool:
        return self.name in names


def _simple(exception: str, message: str) -> str:
    """Some answers name a wrapper, and the exception itself at the beginning of the message."""
    for name in NOT_NOW:
        if exception == name or name in message[:200]:
            return name
    if "SecretManager$InvalidToken" in message:
        return "InvalidToken"
    if any(sign in message for sign in _NO_DATA_NODE):
        return "RetriableException"
    if "is not a valid DFS filename" in message or "Invalid path name" in message or "Invalid file name" in message:
        return "InvalidPathException"
    return exception


def refuse(refused: Refused, where: str) -> NoReturn:
    """Raise the error that says what to do; one that lakelock does not know leaves open what became of the request."""
    known = _REFUSALS.get(refused.name)
    if known is None and refused.name.startswith("HTTP 4"):
        known = _REFUSALS["SecurityException"] if refused.name in _DENIED else _NOT_WEBHDFS
    if known is None:
        raise StorageUnavailable(f"{where}: {refused.name}: {refused.message}", hint=_RETRY)
    raise StorageError(f"{where}: {known[0]}: {refused.message}", hint=known[1])


def no_answer(where: str, why: object) -> StorageUnavailable:
    """The error after which a request may or may not have been done."""
    return StorageUnavailable(f"{where}: no definite answer: {why}", hint=_RETRY)
