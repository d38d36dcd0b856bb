"""Who may log in: names and derived keys, in one file that only its owner can read.

Rule: the file is replaced as a whole (write, sync, rename) by one at a time and read again when it
changed, so that the command line and a running broker need not talk to each other.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shoal.broker.scram import (
    HASHES,
    ITERATIONS_DEFAULT,
    SALT_BYTES,
    Credential,
    make_credential,
)
from shoal.errors import ConfigError

FILE_NAME: Final = "users.json"
_SECRET_BYTES: Final = 32


class Users:
    """The credentials, in memory and (with a path) in a file."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._credentials: dict[tuple[str, str], Credential] = {}
        self._sorted_for: dict[tuple[str, str], Credential] | None = None
        self._by_mechanism: dict[str, list[Credential]] = {}
        self._seen: tuple[int, int, int] | None = None
        self._secret: bytes | None = None
        self._refresh()

    def lookup(self, user: str, mechanism: str) -> Credential | None:
        self._refresh()
        return self._credentials.get((user, mechanism))

    @property
    def decoy_secret(self) -> bytes:
        """What credentials of unknown names are made of: the same after a restart, or they tell."""
        self._refresh()
        if self._secret is None and self._path is not None:
            with self._locked() as directory:
                self._refresh()
                if self._secret is None:
                    self._store(self._credentials, directory)
        if self._secret is None:
            self._secret = secrets.token_bytes(_SECRET_BYTES)
        return self._secret

    def alike(self, mechanism: str) -> list[Credential]:
        """Everybody's credentials of a mechanism; quick, for it must not show who is asked for.

        Of ``PLAIN`` it is what each one's password is checked against.
        """
        self._refresh()
        if self._sorted_for is not self._credentials:
            self._sorted_for = self._credentials
            self._by_mechanism = {each: [] for each in (*HASHES, "PLAIN")}
            plain: dict[str, Credential] = {}
            for (user, of), one in sorted(self._credentials.items()):
                self._by_mechanism.setdefault(of, []).append(one)
                plain.setdefault(user, one)
            self._by_mechanism["PLAIN"] = list(plain.values())
        return self._by_mechanism[mechanism]

    def any_of(self, user: str) -> Credential | None:
        """Any credential of the user: enough to check a plain password."""
        self._refresh()
        for mechanism in HASHES:
            if (found := self._credentials.get((user, mechanism))) is not None:
                return found
        return None

    def names(self) -> list[str]:
        self._refresh()
        return sorted({user for user, _ in self._credentials})

    def of(self, user: str) -> list[Credential]:
        self._refresh()
        return [c for (name, _), c in sorted(self._credentials.items()) if name == user]

    def set_password(
        self, user: str, password: str, *, iterations: int = ITERATIONS_DEFAULT
    ) -> None:
        """Derive and keep a credential for every mechanism."""
        if not user or not password:
            raise ConfigError("user name and password must not be empty")
        made = [
            make_credential(mechanism, password, secrets.token_bytes(SALT_BYTES), iterations)
            for mechanism in HASHES
        ]
        with self._changing() as credentials:
            credentials.update({(user, one.mechanism): one for one in made})

    def put(self, user: str, credential: Credential) -> None:
        self.change({(user, credential.mechanism): credential}, ())

    def change(
        self,
        put: Mapping[tuple[str, str], Credential],
        removed: Iterable[tuple[str, str]],
    ) -> None:
        """Put and remove credentials by (user, mechanism), in one write."""
        with self._changing() as credentials:
            for key in removed:
                credentials.pop(key, None)
            credentials.update(put)

    def __len__(self) -> int:
        self._refresh()
        return len(self._credentials)

    def remove(self, user: str, mechanism: str | None = None) -> bool:
        with self._changing() as credentials:
            doomed = [k for k in credentials if k[0] == user and mechanism in (None, k[1])]
            for key in doomed:
                del credentials[key]
        return bool(doomed)

    @contextmanager
    def _changing(self) -> Iterator[dict[tuple[str, str], Credential]]:
        """A copy to change, by one thread or process at a time; it is stored, then it counts."""
        if self._path is None:
            changed = dict(self._credentials)
            yield changed
            self._credentials = changed
            return
        with self._locked() as directory:
            self._refresh()
            changed = dict(self._credentials)
            yield changed
            if changed != self._credentials:
                self._store(changed, directory)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        assert self._path is not None
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)  # until it is closed
            yield directory
        finally:
            os.close(directory)

    def _refresh(self) -> None:
        if self._path is None:
            return
        try:
            status = self._path.stat()
        except FileNotFoundError:
            # Whoever takes the file away takes the users away.
            if self._seen is not None:
                self._credentials, self._seen = {}, None
            return
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen == self._seen:
            return
        if status.st_mode & 0o077:
            raise ConfigError(f"{self._path} can be read by others; run: chmod 600 {self._path}")
        self._credentials, secret = _decoded(self._path.read_bytes(), self._path)
        self._secret = secret or self._secret
        self._seen = seen

    def _store(self, changed: dict[tuple[str, str], Credential], directory: int) -> None:
        assert self._path is not None
        if self._secret is None:
            self._secret = secrets.token_bytes(_SECRET_BYTES)
        temporary = self._path.with_suffix(".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "wb") as file:
            file.write(_encoded(changed, self._secret))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        os.fsync(directory)
        status = self._path.stat()
        self._credentials = changed
        self._seen = (status.st_mtime_ns, status.st_size, status.st_ino)


def _encoded(credentials: dict[tuple[str, str], Credential], secret: bytes) -> bytes:
    rows = [
        {
            "user": user,
            "mechanism": mechanism,
            "salt": b64encode(credential.salt).decode(),
            "iterations": credential.iterations,
            "stored_key": b64encode(credential.stored_key).decode(),
            "server_key": b64encode(credential.server_key).decode(),
        }
        for (user, mechanism), credential in sorted(credentials.items())
    ]
    stored = {"version": 1, "users": rows, "decoy_secret": b64encode(secret).decode()}
    return json.dumps(stored, indent=1).encode()


def _decoded(data: bytes, path: Path) -> tuple[dict[tuple[str, str], Credential], bytes]:
    """The credentials, and the secret of decoys (nothing in files that were made without)."""
    try:
        stored = json.loads(data)
        rows = stored["users"]
        secret = b64decode(stored.get("decoy_secret", ""))
        return {
            (row["user"], row["mechanism"]): Credential(
                row["mechanism"],
                b64decode(row["salt"]),
                row["iterations"],
                b64decode(row["stored_key"]),
                b64decode(row["server_key"]),
            )
            for row in rows
        }, secret
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a user file ({type(error).__name__}); restore it, or remove it and "
            "add the users again with `shoal user set`"
        ) from None
