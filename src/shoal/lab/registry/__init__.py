"""A registry as ZooKeeper is one: several servers, sessions, ephemeral nodes, one-shot watches."""

from __future__ import annotations
