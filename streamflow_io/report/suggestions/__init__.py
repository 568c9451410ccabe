"""Hints for which a finished run gives reasons."""
