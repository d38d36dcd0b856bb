"""Where a connection stands on its way to a name: the states of SASL authentication.

Rule: this file decides which token may come next, and when a name has to be proved again
(KIP-368); ``scram.py`` and ``oauth.py`` decide whether a token is right. A session starts
unauthenticated if its listener asks for SASL, and is anonymous or named by its certificate if not.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shoal.broker.scram import Credential, ScramServer
    from shoal.broker.users import Users

ANONYMOUS = "User:ANONYMOUS"
OAUTHBEARER: Final = "OAUTHBEARER"
# Between two renewals; Kafka's number.
_RENEWAL_LEAST_MS: Final = 1_000


class SaslStage(Enum):
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    DONE = "done"


_DONE: Final = SaslStage.DONE


class PasswordCheck:
    """A plain password to be checked off the loop: deriving its key takes milliseconds."""

    __slots__ = ("credential", "password", "user")

    def __init__(self, user: str, credential: Credential | None, password: str) -> None:
        self.user = user
        self.credential = credential
        self.password = password

    def __repr__(self) -> str:
        return f"PasswordCheck({self.user!r})"


class SaslSession:
    """The identity of one connection."""

    __slots__ = (
        "_renewed_ms",
        "_renews",
        "_scram",
        "asked",
        "ends_ms",
        "mechanism",
        "mechanisms",
        "principal",
        "raw_tokens",
        "stage",
        "told_refusal",
    )

    def __init__(self, mechanisms: tuple[str, ...], principal: str = ANONYMOUS) -> None:
        self.mechanisms = mechanisms
        self.principal = principal
        self.stage = SaslStage.HANDSHAKE if mechanisms else SaslStage.DONE
        self.mechanism = ""
        # Requests before it was authenticated.
        self.asked = 0
        # SaslHandshake v0 is followed by bare tokens instead of SaslAuthenticate requests.
        self.raw_tokens = False
        # When the name has to have been proved again (KIP-368); None: never.
        self.ends_ms: float | None = None
        # OAUTHBEARER: what is wrong was told, and the client's word that it has heard is due.
        self.told_refusal: str | None = None
        self._scram: ScramServer | None = None
        self._renews = False
        self._renewed_ms: float | None = None

    @property
    def is_authenticated(self) -> bool:
        return self.stage is _DONE

    def handshake(self, mechanism: str, *, raw_tokens: bool) -> bool:
        """True if the mechanism is offered here."""
        if mechanism not in self.offered:
            return False
        self.mechanism = mechanism
        self.stage = SaslStage.TOKENS
        self.raw_tokens = raw_tokens
        self.told_refusal = None
        self._scram = None
        return True

    @property
    def offered(self) -> tuple[str, ...]:
        """Whoever proves again who they are does it in the same way."""
        return (self.mechanism,) if self._renews else self.mechanisms

    def step(self, token: bytes, users: Users) -> bytes | PasswordCheck:
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
                self.mechanism, users.lookup, nonce, users.decoy_secret, users.alike
            )
            return self._scram.first(token)
        reply = self._scram.final(token)
        self.passed(self._scram.user)
        return reply

    def passed(self, user: str) -> None:
        """Somebody has proved to be this user; of a renewal, the same as before."""
        from shoal.broker.scram import PrincipalChangedError

        principal = f"User:{user}"
        if self._renews and principal != self.principal:
            raise PrincipalChangedError(
                f"re-authentication as {principal} on a connection of {self.principal}"
            )
        self.stage = SaslStage.DONE
        self.principal = principal
        self.asked = 0
        self._scram = None
        self._renews = False
        self.raw_tokens = False

    # --- proving it again (KIP-368) -------------------------------------------------------------

    def limit(self, now_ms: float, lifetime_ms: float | None) -> None:
        """The name counts for so long from now; None: as long as the connection."""
        self.ends_ms = None if lifetime_ms is None else now_ms + lifetime_ms

    def has_ended(self, now_ms: float) -> bool:
        return self.ends_ms is not None and now_ms >= self.ends_ms

    def renew(self, now_ms: float) -> bool:
        """Whether a handshake now begins the next proof; also after the end of the last one."""
        if self.ends_ms is None or self.stage is not SaslStage.DONE:
            return False
        if self._renewed_ms is not None and now_ms - self._renewed_ms < _RENEWAL_LEAST_MS:
            return False
        self._renewed_ms = now_ms
        self._renews = True
        self.stage = SaslStage.HANDSHAKE
        return True

    @property
    def user(self) -> str:
        """Who this is, without the kind of principal."""
        return self.principal.removeprefix("User:")

    @property
    def is_challenged(self) -> bool:
        """Whether the next token is a proof that is right or wrong."""
        return self._scram is not None

    @property
    def claimed_user(self) -> str:
        if self._scram is None:
            return self.user if self._renews else ""
        return self._scram.user
