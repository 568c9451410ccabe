"""Periodic applications that share a storage: the model, schedules of their I/O, and how good these can be.

Pure, but for `files`. Source: Aupy, Gainaru, Le Fevre, *Periodic I/O scheduling for super-computers* ("the paper").
"""
