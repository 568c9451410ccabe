"""Periodic schedules: schedules of applications that compute and transfer by turns, and runs that follow them."""

from __future__ import annotations

from collections.abc import Mapping

from streamflow_io.installed_features import Feature, Subcommand


class Schedules(Feature):
    """The command `schedule`, and turns of the bursts of runs that share a storage."""

    def commands(self) -> Mapping[str, Subcommand]:
        examples = ("paper:1 -o schedule.json",)
        text = "schedule applications that compute and transfer in turn"
        return {"schedule": Subcommand(text, examples, f"{__package__}.commands")}

    def subclasses(self) -> Mapping[str, str]:
        return {
            "streamflow_io.storage.sharing.turns:TurnPolicy": f"{__package__}.policy:SchedulePolicy",
            "streamflow_io.commands.storage:ShareOptions": f"{__package__}.commands.share:ScheduleOptions",
        }


FEATURE = Schedules()
