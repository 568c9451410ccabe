"""Hints that a finished run gives reasons for. Pure, but for the command."""
