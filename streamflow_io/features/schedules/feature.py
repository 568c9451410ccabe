"""Periodic schedules: schedules of applications that compute and transfer by turns."""

from __future__ import annotations

from collections.abc import Mapping

from streamflow_io.features import Feature, Subcommand


class Schedules(Feature):
    """The command `schedule`."""

    def commands(self) -> Mapping[str, Subcommand]:
        examples = ("compute paper:1", "show schedule.json")
        text = "schedule applications that compute and transfer in turn"
        return {"schedule": Subcommand(text, examples, f"{__package__}.commands")}


FEATURE = Schedules()
