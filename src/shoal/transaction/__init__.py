"""The transaction coordinator: states, journal, decisions. Pure: requests and now_ms in."""
