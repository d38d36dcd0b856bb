"""SaslAuthenticate: one token of the exchange, checked and answered.

A refusal is answered late and the connection is closed after it, so that guessing is slow. The
client is told only that it failed; why goes to the audit log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from shoal.access.bearer_tokens import TokenRefusedError, read_client_first, refusal_message
from shoal.broker.handlers import LATER, Deferred
from shoal.broker.sasl import OAUTHBEARER, PasswordCheck, SaslStage
from shoal.broker.scram import (
    AuthenticationRefusedError,
    PrincipalChangedError,
    WrongPasswordError,
    decoy,
    password_matches,
)
from shoal.broker.server import BoundListener
from shoal.errors import ErrorCode
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(
    broker: Broker, call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Deferred | Coroutine[Any, Any, SaslAuthenticateResponse | Deferred]:
    """The answer; a coroutine where the client waits for it: its turn, or a key to be derived."""
    if call.session.stage is not SaslStage.TOKENS:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received out of order",
        )
    try:
        answer = _step(broker, call, bytes(request.auth_bytes))
    except AuthenticationRefusedError as error:
        return _refuse_late(broker, call, error)
    if isinstance(answer, bytes):
        return _response(broker, call, answer)
    return _respond_later(broker, call, answer)


async def _respond_later(
    broker: Broker, call: Call, coming: Coroutine[Any, Any, bytes]
) -> SaslAuthenticateResponse | Deferred:
    try:
        return _response(broker, call, await coming)
    except AuthenticationRefusedError as error:
        return _refuse_late(broker, call, error)


def _response(broker: Broker, call: Call, answer: bytes) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_message="", auth_bytes=answer, session_lifetime_ms=_lifetime_ms(broker, call)
    )


def _refuse_late(broker: Broker, call: Call, error: AuthenticationRefusedError) -> Deferred:
    _refused(broker, call, str(error))
    response = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=_told(call, error)
    )
    # What it sent behind that is not looked at: many guesses at once would not be slow.
    call.connection.close_when_flushed()
    broker.loop.call_later(_delay(broker), _reply_and_close, call, response)
    return LATER


def _told(call: Call, error: AuthenticationRefusedError) -> str:
    """What the client may know of it."""
    if isinstance(error, PrincipalChangedError):
        return "Authentication failed: a re-authentication must be that of the same principal"
    return call.session.told_refusal or "Authentication failed: invalid credentials"


def _lifetime_ms(broker: Broker, call: Call) -> int:
    """How long the name counts from now; Kafka's 0 forever, and while it is not proved yet."""
    session = call.session
    if session.ends_ms is None or not session.is_authenticated:
        return 0
    return max(1, round(session.ends_ms - broker.steady_ms()))


def on_raw_token(broker: Broker, call: Call, token: bytes) -> None:
    """After SaslHandshake v0 tokens come bare: a length and the token, both ways."""

    async def run() -> None:
        with call.answered_or_cut():
            try:
                step = _step(broker, call, token)
                answer = step if isinstance(step, bytes) else await step
            except AuthenticationRefusedError as error:
                _refused(broker, call, str(error))
                call.connection.close_when_flushed()
                broker.loop.call_later(_delay(broker), call.connection.close)
                return
            finally:
                call.connection.release()
            call.send([len(answer).to_bytes(4) + answer])

    call.connection.hold()
    broker.spawn(run())


def _step(broker: Broker, call: Call, token: bytes) -> bytes | Coroutine[Any, Any, bytes]:
    """What a token is answered with, at once if nothing has to be waited for.

    So a login by SCRAM is two turns of the loop; with a task for each token it would be six.
    """
    session = call.session
    if session.mechanism == OAUTHBEARER:
        return _bearer(broker, call, token)
    wait = _turn_in(broker, call, session.claimed_user) if session.is_challenged else 0.0
    if wait:
        return _scram_later(broker, call, token, wait)
    found = _checked(broker, call, token)
    return _plain(broker, call, found) if isinstance(found, PasswordCheck) else found


async def _scram_later(broker: Broker, call: Call, token: bytes, wait: float) -> bytes:
    await asyncio.sleep(wait)
    found = _checked(broker, call, token)
    assert isinstance(found, bytes), "only a first token is a password"
    return found


def _checked(broker: Broker, call: Call, token: bytes) -> bytes | PasswordCheck:
    session = call.session
    try:
        found = session.step(token, broker.users)
    except WrongPasswordError as error:
        _guessed(broker, call, error.user)
        raise
    if session.is_authenticated:
        _proved(broker, call)
    return found


async def _plain(broker: Broker, call: Call, check: PasswordCheck) -> bytes:
    if wait := _turn_in(broker, call, check.user):
        await asyncio.sleep(wait)
    # Made up for everybody: the time it takes must not tell who is known.
    made = decoy("PLAIN", check.user, broker.users.decoy_secret, broker.users.alike("PLAIN"))
    # Deriving the key takes milliseconds: not on the loop.
    matches = await broker.loop.run_in_executor(
        None, password_matches, check.credential or made, check.password
    )
    if not matches or check.credential is None:
        _guessed(broker, call, check.user)
        raise WrongPasswordError(check.user)
    call.session.passed(check.user)
    _proved(broker, call)
    return b""


def _guessed(broker: Broker, call: Call, user: str) -> None:
    broker.guesses.was_wrong(user, call.connection.peer_host, broker.loop.time())


def _proved(broker: Broker, call: Call) -> None:
    broker.guesses.was_right(call.session.user, call.connection.peer_host)
    _let_in(broker, call, None)


async def _bearer(broker: Broker, call: Call, message: bytes) -> bytes:
    """A token is right or wrong at once; a client that was told what is wrong says so, and goes."""
    session = call.session
    if session.told_refusal is not None:
        raise AuthenticationRefusedError("the token was refused")
    oauth = broker.oauth
    assert oauth is not None, "a listener with OAUTHBEARER does not start without"
    try:
        first = read_client_first(message)
        owner = await oauth.owner(first.token)
        if first.acts_for not in (None, owner.name):
            raise TokenRefusedError("acting for another user is not supported")
    except TokenRefusedError as error:
        answer = refusal_message(error, oauth.rules)
        session.told_refusal = answer.decode()
        _refused(broker, call, str(error))
        return answer
    session.passed(owner.name)
    _let_in(broker, call, owner.expires_ms - broker.now_ms())
    return b""


def _let_in(broker: Broker, call: Call, token_ms: int | None) -> None:
    """The name is proved: for how long it counts, by its token and by the listener's setting."""
    session, listener = call.session, call.connection.listener
    assert isinstance(listener, BoundListener)
    limits = [listener.config.max_reauth_ms] if listener.config.max_reauth_ms else []
    if token_ms is not None:
        limits.append(max(0, token_ms))
    session.limit(broker.steady_ms(), min(limits) if limits else None)
    broker.server.authenticated(call.connection)
    broker.audit.access("authenticated", peer=call.connection.peer_host, user=session.principal)


def _turn_in(broker: Broker, call: Call, user: str) -> float:
    """Seconds until it is this address's turn to try a password of this user."""
    wait = broker.guesses.turn_in(user, call.connection.peer_host, broker.loop.time())
    if wait is None:
        raise AuthenticationRefusedError("too many wrong passwords")
    return wait


def _refused(broker: Broker, call: Call, reason: str) -> None:
    broker.counters.refused["authentication"] += 1
    broker.audit.access(
        "authentication refused",
        peer=call.connection.peer_host,
        user=call.session.claimed_user,
        mechanism=call.session.mechanism,
        reason=reason,
    )


def _delay(broker: Broker) -> float:
    return broker.config.limits.failed_authentication_delay_seconds


def _reply_and_close(call: Call, response: SaslAuthenticateResponse) -> None:
    if call.is_open:
        call.reply(response)
        call.connection.close_when_flushed()
