"""SaslAuthenticate: one token of the exchange, checked and answered.

A refusal is answered late and the connection is closed after it, so that guessing is slow. The
client is told only that it failed; why goes to the audit log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shoal.broker.sasl import PasswordCheck, Stage
from shoal.broker.scram import AuthenticationRefusedError, decoy, password_matches
from shoal.errors import ErrorCode
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


# The credential a plain password is checked against, if the user has one of each.
_OF_PLAIN: Final = "SCRAM-SHA-256"


async def handle(broker: Broker, call: Call, request: SaslAuthenticateRequest) -> Any:
    if call.session.stage is not Stage.TOKENS:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received out of order",
        )
    try:
        answer = await _step(broker, call, bytes(request.auth_bytes))
    except AuthenticationRefusedError as error:
        _refused(broker, call, str(error))
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message="Authentication failed: invalid credentials",
        )
        # What it sent behind that is not looked at: many guesses at once would not be slow.
        call.connection.close_when_flushed()
        broker.loop.call_later(_delay(broker), _reply_and_close, call, response)
        return None
    return SaslAuthenticateResponse(auth_bytes=answer)


def on_raw_token(broker: Broker, call: Call, token: bytes) -> None:
    """After SaslHandshake v0 tokens come bare: a length and the token, both ways."""

    async def run() -> None:
        try:
            answer = await _step(broker, call, token)
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


async def _step(broker: Broker, call: Call, token: bytes) -> bytes:
    session = call.session
    found = session.step(token, broker.users, broker.decoy_secret)
    if isinstance(found, PasswordCheck):
        credential = found.credential or decoy(
            _OF_PLAIN, found.user, broker.decoy_secret, broker.users.alike(_OF_PLAIN)
        )
        # Deriving the key takes milliseconds: not on the loop.
        matches = await broker.loop.run_in_executor(
            None, password_matches, credential, found.password
        )
        if not matches or found.credential is None:
            raise AuthenticationRefusedError("wrong user or password")
        session.passed(found.user)
        found = b""
    if session.is_authenticated:
        broker.server.authenticated(call.connection)
        broker.audit("authenticated", peer=call.connection.peer_host, user=session.principal)
    return found


def _refused(broker: Broker, call: Call, reason: str) -> None:
    broker.counters.refused["authentication"] += 1
    broker.audit(
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
