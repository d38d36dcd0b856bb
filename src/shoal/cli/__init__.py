"""The shoal command."""
