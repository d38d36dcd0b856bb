"""Kills, pauses and cuts under load, checked by history."""
