"""Hints that a finished run gives reasons for."""
