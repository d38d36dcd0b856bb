"""One of the two brokers as a case sees it: names, ids, connections, and what it has learnt.

Both places hand out the same names in the same order, and each remembers what its broker made up
(topic ids, member ids, ports), so that requests can carry it and answers can be compared without.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from shoal.errors import InvalidFrameError, InvalidMessageError
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from shoal.wire.frames import decode_correlation_id, decode_response
from shoal.wire.schema import ZERO_UUID, Message, Struct
from tests.differential.compare import tree
from tests.differential.edges import UNKNOWN_UUID, with_nulls

# An answer that is not there by then is taken for none where none is known to come; elsewhere a
# busy machine is given much longer.
PATIENCE_S = 4.0
LONG_PATIENCE_S = 40.0
POOL = 40
_HOUR_MS = 3_600_000
# At the end of an id that a classic group gives, and the whole of one of a newer group.
_UUID = re.compile(r"(^|-)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[A-Za-z0-9_-]{22}$")

# Ids that requests make up; an answer may repeat them beside a name.
_NOBODYS_IDS = (ZERO_UUID, UNKNOWN_UUID, ZERO_UUID[:15] + b"\1")

# The connection of somebody who has logged in, and who that is.
LOGGED_IN = "logged in"
USER, PASSWORD = "ada", "correct horse"
# These stay open from case to case.
_LASTING = ("main", LOGGED_IN)

CLOSED = {"outcome": "closed"}
SILENT = {"outcome": "no answer"}


class Line:
    """One connection; frames go out and come in, and an end is an outcome like any other.

    ``log_in`` is called on each new connection before anything else is sent.
    """

    def __init__(self, port: int, log_in: Callable[[Line], None] | None = None) -> None:
        self._port = port
        self._log_in = log_in
        self._socket: socket.socket | None = None
        # Correlation ids of the answers that are due, in order.
        self.due: deque[int] = deque()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self.due.clear()

    def send(self, data: bytes) -> None:
        if self._socket is None:
            address = ("127.0.0.1", self._port)
            self._socket = socket.create_connection(address, timeout=LONG_PATIENCE_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._log_in is not None:
                self._log_in(self)
        try:
            self._socket.sendall(data)
        except ConnectionError:
            # The answer is to be found by receiving: closed.
            return

    def receive(self, patience_s: float = PATIENCE_S) -> bytes | None:
        """A frame; None when the broker has closed. TimeoutError when it says nothing."""
        assert self._socket is not None, "something is sent first"
        self._socket.settimeout(patience_s)
        try:
            head = self._exactly(4)
            frame = head and self._exactly(struct.unpack(">i", head)[0])
        except ConnectionError:
            frame = None
        if frame is None:
            self.close()
        return frame

    def _exactly(self, size: int) -> bytes | None:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                return None
            data += more
        return data


class Place:
    """A broker under comparison. Without a port it only invents names, to find out the cases."""

    def __init__(self, name: str, port: int | None = None, guarded_port: int | None = None) -> None:
        self.name = name
        self.port = port
        self.guarded_port = guarded_port
        self._lines: dict[str, Line] = {}
        self._names: dict[str, int] = {}
        self._ids: dict[str, bytes] = {}
        self._learnt: dict[Any, str] = {}
        self._pool: list[str] = []
        self._correlation_id = 0
        self._case = 0
        self._made = 0

    # --- names ----------------------------------------------------------------------------

    def fresh(self, kind: str) -> str:
        """A name that nobody used before; the same one in both places."""
        number = self._names[kind] = self._names.get(kind, 0) + 1
        return f"{kind}-{number}"

    def new_topic(self) -> str:
        """A topic of two partitions that no other case uses."""
        if self.port is None:
            return self.fresh("topic")
        if not self._pool:
            self._pool = [self.fresh("topic") for _ in range(POOL)]
            self.create_topics(dict.fromkeys(self._pool, 2))
        return self._pool.pop(0)

    def topic_id(self, name: str) -> bytes:
        return self._ids.get(name, UNKNOWN_UUID if self.port is None else ZERO_UUID)

    def create_topics(self, partitions: dict[str, int], **configs: str) -> None:
        """Create topics and wait until they can be used."""
        settings = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in configs.items()}
        wanted = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=count,
                replication_factor=1,
                assignments=[],
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
                    for key, value in settings.items()
                ],
            )
            for name, count in partitions.items()
        ]
        answer = self.ask(CreateTopicsRequest(topics=wanted))
        assert not any(topic.error_code for topic in answer.topics), answer
        self.until_led(list(partitions))

    def until_led(self, names: list[str]) -> None:
        """Wait until each partition can be read, and learn the topics' ids."""
        topics = [MetadataRequest.Topic(name=name) for name in names]
        for _ in range(400):
            found = self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False)).topics
            if all(topic.partitions for topic in found) and self._are_read(found):
                return
            time.sleep(0.05)
        raise AssertionError(f"{self.name}: topics without leaders: {found}")

    def _are_read(self, topics: Any) -> bool:
        """Apache Kafka names a leader before that leader has opened its log."""
        wanted = [
            ListOffsetsRequest.Topic(
                name=topic.name,
                partitions=[
                    ListOffsetsRequest.Partition(partition_index=n, timestamp=-1)
                    for n in range(len(topic.partitions))
                ],
            )
            for topic in topics
        ]
        answer = self.ask(ListOffsetsRequest(topics=wanted), 7)
        return not any(p.error_code for topic in answer.topics for p in topic.partitions)

    # --- talking --------------------------------------------------------------------------

    def line(self, name: str = "main") -> Line:
        """The connection of this name; those whose name starts with "sasl" are guarded."""
        if name not in self._lines:
            is_guarded = name == LOGGED_IN or name.startswith("sasl")
            port = self.guarded_port if is_guarded else self.port
            assert port is not None, "this place only invents names"
            self._lines[name] = Line(port, self._log_in if name == LOGGED_IN else None)
        return self._lines[name]

    def _log_in(self, line: Line) -> None:
        """Beside the comparison: conversations compare every way to log in."""
        token = f"\0{USER}\0{PASSWORD}".encode()
        for request in (
            SaslHandshakeRequest(mechanism="PLAIN"),
            SaslAuthenticateRequest(auth_bytes=token),
        ):
            assert request.API_KEY is not None
            line.send(self._frame(request, 1))
            frame = line.receive(LONG_PATIENCE_S)
            assert frame is not None, f"{self.name} closed while {USER} logged in"
            answer: Any = decode_response(frame, request.API_KEY, 1)[1]
            assert not answer.error_code, f"{self.name} did not let {USER} in: {answer}"

    def new_case(self) -> None:
        """Connections of a case's own end with it; members are counted from one again."""
        self._case += 1
        self._made = 0
        for name in [name for name in self._lines if name not in _LASTING]:
            self._lines.pop(name).close()

    def close(self) -> None:
        for line in self._lines.values():
            line.close()

    def ask(self, request: Message, version: int | None = None) -> Any:
        """Ask beside the comparison: the decoded answer."""
        assert request.API_KEY is not None
        chosen = API[request.API_KEY].max_version if version is None else version
        line = self.line("aside")
        line.send(self._frame(request, chosen))
        frame = line.receive(60)
        assert frame is not None, f"{self.name} closed on {request!r}"
        answer = decode_response(frame, request.API_KEY, chosen)[1]
        self._learn(answer)
        return answer

    def send(self, on: str, *requests: tuple[Message, int]) -> None:
        """Send requests in one piece; ``outcome`` takes the answers."""
        line = self.line(on)
        data = b""
        for request, version in requests:
            data += self._frame(request, version)
            if not (isinstance(request, ProduceRequest) and request.acks == 0):
                line.due.append(self._correlation_id)
        line.send(data)

    def send_raw(self, on: str, data: bytes) -> None:
        """Send bytes as they are; an answer is one to correlation id 0."""
        line = self.line(on)
        line.due.append(0)
        line.send(data)

    def _frame(self, request: Message, version: int) -> bytes:
        """A whole request; ValueError when the version cannot carry it."""
        assert request.API_KEY is not None
        self._correlation_id += 1
        body = request.encode(version)
        flexible = API[request.API_KEY].is_flexible(version)
        body = with_nulls(body, flexible=flexible)
        client_id = b"differential"
        head = struct.pack(">hhih", request.API_KEY, version, self._correlation_id, len(client_id))
        tags = b"\0" if API[request.API_KEY].request_header_version(version) == 2 else b""
        data = head + client_id + tags + body
        return struct.pack(">i", len(data)) + data

    def outcome(self, key: int, version: int, line: Line, patience_s: float = PATIENCE_S) -> Any:
        """What came back, ready to be compared, and the message itself if there was one."""
        try:
            frame = line.receive(patience_s)
        except TimeoutError:
            return SILENT, None
        if frame is None:
            return CLOSED, None
        in_turn = decode_correlation_id(frame) == (line.due.popleft() if line.due else None)
        try:
            answer = decode_response(frame, key, version)[1]
        except (InvalidFrameError, InvalidMessageError) as error:
            return {"outcome": f"not readable: {error}"}, None
        self._learn(answer)
        known = version
        if key == ApiKey.API_VERSIONS and not API[key].has_version(version):
            known = 0
        return {
            "outcome": "answered",
            "in turn": in_turn,
            "message": tree(answer, known, self.plain),
        }, answer

    def read(self, key: int, version: int, on: str) -> Any:
        """The next answer on a connection, beside the comparison."""
        line = self.line(on)
        frame = line.receive(LONG_PATIENCE_S)
        line.due.popleft()
        assert frame is not None, f"{self.name} closed the connection"
        return decode_response(frame, key, version)[1]

    # --- what must differ -------------------------------------------------------------------

    def _learn(self, message: Any) -> None:
        """Remember ids that the broker made up, under the names they stand for."""
        if isinstance(message, Struct):
            name = getattr(message, "name", None) or getattr(message, "topic_name", None)
            identity = getattr(message, "topic_id", None)
            if name and identity and identity not in _NOBODYS_IDS:
                self._ids[name] = identity
                self._learnt[identity] = f"id of {name}"
            for field in ("member_id", "producer_id"):
                value = getattr(message, field, None)
                known = value in self._learnt or value in ("", -1, None)
                # A refusal may repeat an id that nobody made up but the request.
                made_up = isinstance(value, int) or _UUID.search(value or "") is not None
                if not known and made_up and type(message).__name__.endswith("Response"):
                    self._made += 1
                    self._learnt[value] = f"{field} {self._case}.{self._made}"
            for field in type(message)._declared:
                self._learn(getattr(message, field))
        elif isinstance(message, list | tuple):
            for item in message:
                self._learn(item)

    def plain(self, name: str, value: Any) -> Any:
        """A value as it is compared: what each broker makes up for itself is given one name."""
        if isinstance(value, bytes | str) and value in self._learnt:
            return f"({self._learnt[value]})"
        if name in ("member_id", "leader") and _UUID.search(value or ""):
            # One that waits for its answer: nobody was told yet.
            return "(a member id)"
        if name in ("error_message", "batch_index_error_message") and value:
            # Whether there is one is compared, not the words.
            return "(text)"
        if name == "documentation" and value:
            return "(text)"
        if name == "cluster_id" and value:
            return "(cluster id)"
        if name == "port" and value in (self.port, self.guarded_port):
            return "(its port)"
        if name == "log_dir":
            return "(its directory)"
        if name in ("total_bytes", "usable_bytes") and value > 0:
            return "(bytes)"
        if name == "auth_bytes" and value[:2] == b"v=":
            return "(signed)"
        if name == "session_id" and value:
            return "(a session)"
        if name == "producer_id" and value in self._learnt:
            return "(a producer id)"
        if name == "finalized_features_epoch" and value >= 0:
            return "(an epoch)"
        if isinstance(value, int) and abs(value - time.time() * 1000) < _HOUR_MS:
            return "(now)"
        if isinstance(value, bytes):
            return value.hex()
        return value
