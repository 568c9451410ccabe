"""Streaming without hints: what is tried on idle cores with the data of the user, and what that proves."""
