"""One budget for the memory that clients make the broker hold.

It covers requests in flight, replies that are being made or wait for those before them, the
buffers of frames that are not finished, replies that nobody takes, and what fetch sessions
remember. Each of the last three has a share that it cannot exceed (but for one frame), so that none
of them keeps requests from being served; a reply that is being made belongs to its request.

Rule: this counts and compares; what follows from a refusal (to wait, to close) is decided by
whoever asked.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import ErrorCode

# Parts of the whole. What is left, an eighth, is for requests alone.
_FRAMES: Final = 2
_REPLIES: Final = 4
_SESSIONS: Final = 8

ELEMENT_BYTES: Final = 256
"""What a row of a reply takes while the reply is being made: an object, and its bytes."""
TOO_MUCH: Final = ErrorCode.INVALID_REQUEST
"""For what would make a reply larger than ``elements_per_reply``."""
TOO_MUCH_TEXT: Final = "The reply would have too many elements: ask for less at once"


class MemoryBudget:
    """Bytes held for all clients together."""

    __slots__ = (
        "built",
        "frames",
        "frames_max",
        "limit",
        "others",
        "replies",
        "replies_max",
        "requests",
        "sessions",
        "sessions_max",
    )

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.frames_max = limit_bytes // _FRAMES
        self.replies_max = limit_bytes // _REPLIES
        self.sessions_max = limit_bytes // _SESSIONS
        self.requests = 0
        self.built = 0
        self.frames = 0
        self.replies = 0
        self.sessions = 0
        # What requests must leave alone. A frame that was let through beyond its share does not
        # count: it is finished by going on.
        self.others = 0

    def hold_frames(self, change_bytes: int) -> None:
        self.frames += change_bytes
        self._add_up()

    def hold_built(self, change_bytes: int) -> None:
        self.built += change_bytes
        self._add_up()

    def hold_replies(self, change_bytes: int) -> None:
        self.replies += change_bytes
        self._add_up()

    def hold_sessions(self, change_bytes: int) -> None:
        self.sessions += change_bytes
        self._add_up()

    def _add_up(self) -> None:
        assert self.built >= 0
        assert self.frames >= 0
        assert self.replies >= 0
        assert self.sessions >= 0
        self.others = (
            self.built
            + min(self.frames, self.frames_max)
            + min(self.replies, self.replies_max)
            + min(self.sessions, self.sessions_max)
        )

    def snapshot(self) -> dict[str, int]:
        return {
            "requests": self.requests,
            "built": self.built,
            "frames": self.frames,
            "replies": self.replies,
            "fetch_sessions": self.sessions,
        }
