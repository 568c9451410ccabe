"""Limits that were learned in earlier runs."""
