"""`streamflow-io plan`: the effects of the hints of a StreamFlow file. Nothing is run."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import cwl_utils.parser
import cwl_utils.parser.utils
from cwl_utils.errors import GraphTargetMissingException
from msgspec import Struct, field
from msgspec.structs import asdict
from rich.console import Console
from schema_salad.exceptions import ValidationException
from streamflow.config.config import WorkflowConfig
from streamflow.core.exception import WorkflowDefinitionException

from streamflow_io._streamflow import cwl_files
from streamflow_io.engine.database_messages import held, locked_now
from streamflow_io.engine.plan import Plan
from streamflow_io.engine.planning import InvalidHintsException, steps_of, unavailable_here
from streamflow_io.engine.runtimes import RuntimeForecast, runtime_module
from streamflow_io.engine.translator import IOAwareTranslator
from streamflow_io.errors import is_ours, said
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.cwl import CWLObject, UnreadableError, load
from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.hints.yaml_files import read_scheduler_config
from streamflow_io.hints.yaml_text import TooMuchError
from streamflow_io.installed_features import runtimes
from streamflow_io.storage.sharing.directory import shared_directories
from streamflow_io.storage.sharing.status import SharedStatus, sharers, status_of, status_to_json

from .console import say
from .javascript import missing_engine
from .plan_view import plan_to_json, show_plan
from .sites import KnownLocations, known_locations
from .streamflow_file import forgetful_context, mistake_at, quiet_streamflow, read_streamflow_file, unknown_steps


class WorkflowPlans(Struct, frozen=True):
    """The plans of all CWL workflows of a StreamFlow file, by name.

    :ivar inactive: why no plan will be followed. None: the plans will be
    :ivar warnings: hints that may not have the effect that their author meant, by workflow
    :ivar forecasts: what the runtime that a feature brings would do, by `runtime` and workflow
    :ivar shared: the present users of each wanted storage that other runs use, too, by its name
    :ivar locked: the program that holds StreamFlow's database now. None: no program does
    :ivar locations: the locations of deployments, as far as they are known
    """

    inactive: str | None
    plans: Mapping[str, Plan]
    warnings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forecasts: Mapping[str, Mapping[str, RuntimeForecast]] = field(default_factory=dict)
    shared: Mapping[str, SharedStatus] = field(default_factory=dict)
    locked: str | None = None
    locations: Mapping[str, KnownLocations] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the jobs of all steps can start."""
        return not any(plan.graph.impossible for plan in self.plans.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "inactive": self.inactive,
            "locked": self.locked,
            "locations": {name: asdict(known) for name, known in self.locations.items()},
            "shared": {name: status_to_json(status) for name, status in self.shared.items()},
            "workflows": {
                name: {
                    **plan_to_json(plan, self.locations),
                    **{
                        runtime: _forecast_to_json(found[name]) if name in found else None
                        for runtime, found in self.forecasts.items()
                    },
                    "warnings": list(self.warnings.get(name, ())),
                }
                for name, plan in self.plans.items()
            },
        }

    def show(self, console: Console) -> None:
        for name, plan in self.plans.items():
            show_plan(console, name, plan, self.locations)
            for forecasts in self.forecasts.values():
                if name in forecasts:
                    _show_forecast(console, forecasts[name])
            for warning in self.warnings.get(name, ()):
                say(console, warning, "yellow")
        for name, status in self.shared.items():
            say(console, f"Storage {name!r} is shared with {sharers(status)}")
        if self.locked is not None:
            say(console, f"A run would wait now. {held(self.locked)}", "yellow")
        if self.inactive is not None:
            say(console, f"Nothing of this will happen: {self.inactive}", "yellow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "streamflow_file", metavar="STREAMFLOW_FILE", help="the StreamFlow file, as for `streamflow run`"
    )
    parser.add_argument(
        "--workflow", metavar="NAME", help="plan this workflow only, by its name in the StreamFlow file"
    )


def run(arguments: argparse.Namespace) -> WorkflowPlans:
    """Plan the workflows of a StreamFlow file.

    :raises HintErrors: if the file, a workflow or a hint has mistakes
    """
    return plan_file(Path(arguments.streamflow_file), arguments.workflow)


def plan_file(path: Path, only: str | None = None) -> WorkflowPlans:
    """Translate the CWL workflows of a StreamFlow file and plan their stream edges.

    :param only: the name of the one workflow to plan. None: plan all of them
    :raises HintErrors: if the file, a workflow or a hint has mistakes, or the file has no such workflow
    """
    scheduler = read_scheduler_config(path)
    try:
        with quiet_streamflow():
            document = read_streamflow_file(path.resolve())
            plans = asyncio.run(_plans(document, path.resolve(), scheduler is not None, only))
        found = {name: plan for name, (plan, _) in plans.items()}
        return WorkflowPlans(
            _inactive(scheduler),
            found,
            {name: warnings for name, (_, warnings) in plans.items()},
            _forecasts(scheduler, found),
            _shared(scheduler, document, found.values()),
            locked_now(document, path.resolve().parent),
            known_locations(document.get("deployments", {}), os.environ),
        )
    except InvalidHintsException as error:
        raise error.mistakes from None
    except HintErrors:
        raise
    except (WorkflowDefinitionException, KeyError, TypeError, AttributeError) as error:
        if is_ours(error):
            raise
        raise HintErrors.one(path, "StreamFlow file", said(error), "a valid StreamFlow file") from None


def plan_workflow(streamflow_file: Path, name: str | None) -> Plan:
    """Return the plan of one workflow of a StreamFlow file.

    :param name: the name of the workflow. None: the only one
    :raises HintErrors: if there are mistakes in the file, or it has no such workflow
    """
    plans = plan_file(streamflow_file, name).plans
    if len(plans) == 1:
        return next(iter(plans.values()))
    raise _no_such(streamflow_file, f"{len(plans)} CWL workflows", plans)


def _no_such(path: Path, message: str, names: Iterable[str]) -> HintErrors:
    known = ", ".join(sorted(names))
    return HintErrors.one(
        path,
        "workflows",
        message,
        f"--workflow with one of {known}" if known else "a StreamFlow file with a CWL workflow",
    )


def _inactive(scheduler: SchedulerConfig | None) -> str | None:
    if scheduler is None:
        return (
            "the StreamFlow file does not choose our scheduler; add\n"
            "  scheduling: {scheduler: {type: sfio.io-aware, config: {}}}"
        )
    if scheduler.runtime == "off":
        return "`runtime: off`"
    return unavailable_here()


def _forecasts(scheduler: SchedulerConfig | None, plans: Mapping[str, Plan]) -> dict[str, dict[str, RuntimeForecast]]:
    found: dict[str, dict[str, RuntimeForecast]] = {runtime: {} for runtime in runtimes()}
    if scheduler is not None and (module := runtime_module(scheduler.runtime)) is not None:
        found[scheduler.runtime] = {
            name: module.forecast(plan.workflow, plan.graph.edges) for name, plan in plans.items()
        }
    return found


def _forecast_to_json(forecast: RuntimeForecast) -> dict[str, Any]:
    return {
        "served": [edge.name for edge in forecast.served],
        "refused": {edge.name: reason for edge, reason in forecast.refused.items()},
    }


def _show_forecast(console: Console, forecast: RuntimeForecast) -> None:
    served = ", ".join(edge.name for edge in forecast.served)
    say(console, f"{forecast.name} serves, {forecast.condition}: {served or 'nothing'}")
    for edge, reason in forecast.refused.items():
        say(console, f"{forecast.name} does not serve {edge.name}: {reason}", "yellow")


def _shared(
    scheduler: SchedulerConfig | None, document: Mapping[str, Any], plans: Iterable[Plan]
) -> dict[str, SharedStatus]:
    """Return the present users of the storages whose bandwidth steps request."""
    steps = (step for plan in plans if plan.bandwidth.storages is not None for step in plan.bandwidth.storages.steps)
    used = {step.storage for step in steps if step.storage_bw is not None}
    if scheduler is None or not used:
        return {}
    shared = shared_directories(scheduler.storages, document.get("deployments", {}))
    return {name: status_of(directory) for name, directory in shared.items() if name in used}


async def _plans(
    config: dict[str, Any], path: Path, active: bool, only: str | None
) -> dict[str, tuple[Plan, tuple[str, ...]]]:
    """Return the plans of all workflows, each with its warnings.

    :param config: the content of the StreamFlow file
    :raises HintErrors: if there is no workflow `only`
    """
    if not active:
        config["scheduling"] = {**config.get("scheduling", {}), "scheduler": {"type": "sfio.io-aware", "config": {}}}
    context = forgetful_context(config, path)
    try:
        known = {name: WorkflowConfig(name, config) for name in config.get("workflows", {})}
        workflows = {name: workflow for name, workflow in known.items() if workflow.type == "cwl"}
        if only is not None and only not in workflows:
            raise _no_such(path, f"unknown workflow {only!r}", workflows)
        chosen = workflows if only is None else {only: workflows[only]}
        return {name: _plan(workflow, context, path) for name, workflow in chosen.items()}
    finally:
        await context.close()


def _plan(workflow: WorkflowConfig, context: Any, path: Path) -> tuple[Plan, tuple[str, ...]]:
    file, inputs_path = cwl_files(workflow, context)
    try:
        return _translated(workflow, context, path, file, inputs_path)
    except (InvalidHintsException, HintErrors):
        raise
    except (TooMuchError, UnreadableError) as error:
        raise HintErrors.one(file, "CWL", str(error), "a workflow that can be read") from None
    except Exception as error:  # cwl_utils and StreamFlow have no common exception for documents that they cannot use
        raise HintErrors([_refusal(error, file, inputs_path)]) from None


def _refusal(error: Exception, file: str, inputs_path: str | None) -> HintError:
    """Return what is wrong with a workflow. cwltool's messages are better than the errors of cwl_utils and StreamFlow.

    :raises Exception: the error itself, if StreamFlow-IO caused it
    """
    # cwltool takes long to import, and few calls need it.
    from .cwltool_validation import run_cwltool

    valid, messages = True, tuple[str, ...]()
    # Elsewhere cwltool adds nothing.
    asked = not isinstance(error, OSError | GraphTargetMissingException) and "://" not in file
    if asked:
        valid, messages = run_cwltool(file, inputs_path, with_our_schema=False)
    if valid and is_ours(error):
        raise error
    message = said(error) if valid or not messages else "\n".join(messages)
    # cwl_utils refuses documents that cwltool accepts.
    if asked and valid and not isinstance(error, ValidationException):
        return HintError(file, None, "CWL", message, "a workflow that StreamFlow can translate; this one is valid CWL")
    command = shlex.join(["streamflow-io", "validate", file, *([inputs_path] if inputs_path else [])])
    return HintError(file, None, "CWL", message, f"a valid workflow and job; `{command}` says more")


def _translated(
    workflow: WorkflowConfig, context: Any, path: Path, file: str, inputs_path: str | None
) -> tuple[Plan, tuple[str, ...]]:
    missing = [
        mistake_at(path, ("workflows", workflow.name, "config", key), f"{found}: there is no such file", allowed)
        for key, found, allowed in (("file", file, "a CWL file"), ("settings", inputs_path, "a job file"))
        if found is not None and "://" not in found and not any(map(os.path.isfile, (found, found.partition("#")[0])))
    ]
    if missing:
        raise HintErrors(missing)
    definition: CWLObject = cwl_utils.parser.load_document_by_uri(file) if "://" in file else load(file)
    inputs: dict[str, Any] = {}
    if inputs_path is not None:
        inputs = cwl_utils.parser.utils.load_inputfile_by_uri(
            version=definition.cwlVersion, path=inputs_path, loadingOptions=definition.loadingOptions
        )
    translator = IOAwareTranslator(
        context=context,
        name=workflow.name,
        output_directory=str(path.parent),
        cwl_definition=definition,
        cwl_inputs=inputs,
        cwl_inputs_path=inputs_path,
        workflow_config=workflow,
    )
    walk = steps_of(definition)
    scripts = missing_engine(walk)  # before StreamFlow changes the document
    plan = translator.plan(walk, in_detail=True)
    unknown = unknown_steps(path, workflow.name, {*walk.workflows, *walk.tools})
    return plan, (*_warnings(plan, scripts), *map(str, unknown))


def _warnings(plan: Plan, scripts: list[HintError]) -> tuple[str, ...]:
    storages = plan.bandwidth.storages.warnings if plan.bandwidth.storages else ()
    return (*plan.one_ended, *(error.message for error in scripts), *storages)
