"""The clients: asyncio around wire, group.member and records."""
