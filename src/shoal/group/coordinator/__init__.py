"""The coordinator's side of consumer groups: requests and ``now_ms`` in, decisions out."""
