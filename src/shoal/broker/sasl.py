"""Where a connection stands on its way to a name: the states of SASL authentication.

Rule: this file decides which token may come next; ``scram.py`` decides whether a token is
right. A session starts unauthenticated if its listener asks for SASL, and is anonymous or named
by its certificate if not.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.broker.scram import Credential, ScramServer
    from shoal.broker.users import Users

ANONYMOUS = "User:ANONYMOUS"


class Stage(Enum):
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    DONE = "done"


class PasswordCheck:
    """A plain password to be checked off the loop: deriving its key takes milliseconds."""

    __slots__ = ("credential", "password", "user")

    def __init__(self, user: str, credential: Credential | None, password: str) -> None:
        self.user = user
        self.credential = credential
        self.password = password

    def __repr__(self) -> str:
        return f"PasswordCheck({self.user!r})"


class Session:
    """The identity of one connection."""

    __slots__ = ("_scram", "mechanism", "mechanisms", "principal", "raw_tokens", "stage")

    def __init__(self, mechanisms: tuple[str, ...], principal: str = ANONYMOUS) -> None:
        self.mechanisms = mechanisms
        self.principal = principal
        self.stage = Stage.HANDSHAKE if mechanisms else Stage.DONE
        self.mechanism = ""
        # SaslHandshake v0 is followed by bare tokens instead of SaslAuthenticate requests.
        self.raw_tokens = False
        self._scram: ScramServer | None = None

    @property
    def is_authenticated(self) -> bool:
        return self.stage is Stage.DONE

    def handshake(self, mechanism: str, *, raw_tokens: bool) -> bool:
        """True if the mechanism is offered here."""
        if mechanism not in self.mechanisms:
            return False
        self.mechanism = mechanism
        self.stage = Stage.TOKENS
        self.raw_tokens = raw_tokens
        self._scram = None
        return True

    def step(self, token: bytes, users: Users, decoy_secret: bytes) -> bytes | PasswordCheck:
        """The reply to a token, or a password to be checked and then ``passed``."""
        # Imported here: most brokers never see a token, and hashing libraries load slowly.
        import secrets

        from shoal.broker.scram import ScramServer, parse_plain

        if self.mechanism == "PLAIN":
            user, password = parse_plain(token)
            return PasswordCheck(user, users.any_of(user), password)
        if self._scram is None:
            nonce = secrets.token_urlsafe(24)
            self._scram = ScramServer(
                self.mechanism, users.lookup, nonce, decoy_secret, users.alike
            )
            return self._scram.first(token)
        reply = self._scram.final(token)
        self.passed(self._scram.user)
        return reply

    def passed(self, user: str) -> None:
        self.stage = Stage.DONE
        self.principal = f"User:{user}"
        self._scram = None
        self.raw_tokens = False

    @property
    def claimed_user(self) -> str:
        return self._scram.user if self._scram is not None else ""
