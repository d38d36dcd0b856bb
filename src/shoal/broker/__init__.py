"""The broker: asyncio around wire, group and log."""
