"""The plugin changes nothing that it is not asked to change, and the seam with StreamFlow is what we think it is."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cwl_utils.parser
import cwl_utils.parser.utils
import pytest
import streamflow.core.utils
import streamflow.cwl.command
import streamflow.cwl.main
import streamflow.cwl.step
import streamflow.cwl.translator
import streamflow.cwl.utils
import streamflow.main
import streamflow.provenance
import streamflow.workflow.step
from rich.console import Console
from ruamel.yaml import YAML
from streamflow.config.config import WorkflowConfig
from streamflow.core.exception import WorkflowDefinitionException
from streamflow.core.workflow import Port, Workflow
from streamflow.cwl.antlr.ECMAScriptParser import ECMAScriptParser
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.expression import DependencyResolver
from streamflow.cwl.processor import CWLCommandOutputProcessor, CWLTokenProcessor
from streamflow.cwl.step import CWLExecuteStep
from streamflow.cwl.transformer import DefaultRetagTransformer
from streamflow.cwl.translator import CWLTranslator
from streamflow.data.manager import DefaultDataManager, _RemotePathMapper
from streamflow.deployment.connector.base import BaseConnector, SubprocessShell
from streamflow.deployment.connector.container import ContainerConnector, DockerBaseConnector, SingularityConnector
from streamflow.deployment.connector.kubernetes import (
    KubernetesBaseConnector,
    KubernetesResponseWriterWrapper,
    KubernetesShell,
)
from streamflow.deployment.connector.queue_manager import QueueManagerConnector, SlurmConnector
from streamflow.deployment.connector.ssh import SSHConnector, SSHContext, SSHContextFactory, SSHShell
from streamflow.deployment.future import FutureConnector
from streamflow.main import build_context
from streamflow.persistence.sqlite import SqliteConnection, SqliteDatabase
from streamflow.provenance.run_crate import CWLRunCrateProvenanceManager
from streamflow.recovery.failure_manager import RollbackFailureManager
from streamflow.scheduling.scheduler import DefaultScheduler
from streamflow.workflow import utils as workflow_utils
from streamflow.workflow.executor import StreamFlowExecutor
from streamflow.workflow.step import BaseStep, ExecuteStep, GatherStep, ScatterStep, ScheduleStep, TransferStep

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench
from streamflow_io import _streamflow
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.commands.plan import plan_file
from streamflow_io.engine.lists import OrderedGatherStep, StreamingScatterStep
from streamflow_io.engine.rewire import ConfirmedTransferStep
from streamflow_io.engine.translator import IOAwareTranslator
from streamflow_io.jobs.streaming_run import StreamingScheduleStep
from streamflow_io.plugin import StreamFlowIOPlugin, crate_writer


def document(hints: bool) -> Document:
    rules = [streaming({"port": "list", "committed": "on_close"})] if hints else []
    made = tool("", {}, {"list": found("*.txt", "File[]"), "log": {**streamable("stdout"), "streamable": hints}}, rules)
    used = tool("", {"file": "File"}, {"out": found("x")})
    read = tool("", {"file": {"type": "File", "streamable": hints}}, {"out": found("x")})
    steps = {
        "a": {"run": made, "in": {}},
        "b": {"run": used, "in": {"file": "a/list"}, "scatter": "file"},
        "c": {"run": read, "in": {"file": "a/log"}},
    }
    return workflow({}, steps, {"b": "b/out", "c": "c/out", "list": "a/list"})


def translate(cls: type[CWLTranslator], streamflow_file: Path) -> Workflow:
    async def run() -> Workflow:
        config = json.loads(streamflow_file.read_text())
        config["path"] = str(streamflow_file)
        context = build_context(config)
        try:
            return cls(
                context=context,
                name="test",
                output_directory=str(streamflow_file.parent),
                cwl_definition=cwl_utils.parser.load_document_by_uri(str(streamflow_file.parent / "main.cwl")),
                cwl_inputs={"trace": "x"},
                cwl_inputs_path=str(streamflow_file.parent / "job.json"),
                workflow_config=WorkflowConfig("main", config),
            ).translate()
        finally:
            await context.close()

    return asyncio.run(run())


def shape(translated: Workflow) -> Any:
    """A translated graph, with ports named by their writers and readers instead of at random."""
    names: dict[str, str] = {}
    for step in translated.steps.values():
        for kind, ports in (("out", step.output_ports), ("in", step.input_ports)):
            for name, port in ports.items():
                names[port] = min(names.get(port, "~"), f"{step.name}:{kind}:{name}")
    return {
        step.name: (
            type(step),
            {name: names[port] for name, port in step.input_ports.items()},
            {name: names[port] for name, port in step.output_ports.items()},
        )
        for step in translated.steps.values()
    }


@pytest.fixture(autouse=True)
def plugin() -> None:
    StreamFlowIOPlugin().register()


def test_without_our_scheduler_nothing_changes(bench: Bench) -> None:
    path = bench.write(document(hints=True), {}, io=False)
    ours = translate(IOAwareTranslator, path)
    assert shape(ours) == shape(translate(CWLTranslator, path))
    commands = [step.command for step in ours.steps.values() if isinstance(step, CWLExecuteStep)]
    assert {command.stderr for command in commands if isinstance(command, CWLCommand)} == {None}


@pytest.mark.parametrize("config", [{}, {"runtime": "off"}])
def test_without_hints_nothing_changes(bench: Bench, config: Document) -> None:
    path = bench.write(document(hints=bool(config)), {}, io=True, config=config)
    assert shape(translate(IOAwareTranslator, path)) == shape(translate(CWLTranslator, path))


def test_an_expression_is_parsed_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: Document = {}
    for name in ("a", "b", "c"):
        run = tool("echo x > x", {"word": "string", "other": "string"}, {"out": found("x")})
        value = {"default": "x", "valueFrom": "${ return inputs.other + self; }"}
        steps[name] = {"run": run, "in": {"word": value, "other": {"default": "y"}}, "out": ["out"]}
    written = {**workflow({}, {}, {}), "steps": steps}
    path = bench.write(written, {}, io=True, config={"streaming": "auto"})
    parsed: list[str] = []
    parse = ECMAScriptParser.program

    def counted(parser: ECMAScriptParser) -> Any:
        parsed.append(str(parser.getInputStream()))
        return parse(parser)

    monkeypatch.setattr(ECMAScriptParser, "program", counted)
    monkeypatch.setattr(streamflow.cwl.utils, "DependencyResolver", DependencyResolver)
    plain = shape(translate(CWLTranslator, path))
    assert len(parsed) > 1, "StreamFlow parses an expression once now: let it do that alone"
    del parsed[:]
    assert shape(translate(IOAwareTranslator, path)).keys() == plain.keys()
    assert len(parsed) == 1


def test_a_packed_document_is_read_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    default = {"class": "File", "location": "default.txt"}
    run = tool("echo x > x", {"a": "File?", "b": {"type": "File", "default": default}}, {"out": found("x")})
    steps = {
        "one": {"run": "#copy", "in": {"a": "file", "b": "file"}, "out": ["out"]},
        "two": {"run": "#copy", "in": {"a": "one/out", "b": "one/out"}, "out": ["out"]},
        "three": {"run": "#copy", "in": {"a": "two/out"}, "out": ["out"]},
    }
    main = {**workflow({"file": "File?"}, {}, {}), "steps": steps, "id": "main"}
    packed = {"cwlVersion": "v1.2", "$graph": [{**run, "id": "copy"}, main]}
    path = bench.write(workflow({}, {}, {}), {}, io=True, config={"streaming": "auto"})
    path.with_name("main.cwl").write_text(json.dumps(packed))
    texts: list[str] = []
    loaded: list[str] = []
    read, load = YAML.load, cwl_utils.parser.load_document_by_yaml

    def counted(yaml: YAML, text: Any) -> Any:
        texts.append(str(text))
        return read(yaml, text)

    def counted_process(*arguments: Any) -> Any:
        loaded.extend(map(str, arguments[3:4]))
        return load(*arguments)

    monkeypatch.setattr(YAML, "load", counted)
    monkeypatch.setattr(cwl_utils.parser, "load_document_by_yaml", counted_process)
    text = path.with_name("main.cwl").read_text()
    plain = shape(translate(CWLTranslator, path))
    assert texts.count(text) > 10, "cwl_utils reads a packed document less often now: let it do that alone"
    del texts[:], loaded[:]
    assert shape(translate(IOAwareTranslator, path)).keys() == plain.keys()
    # The test itself reads it, and the look for hints.
    assert texts.count(text) <= 3
    assert 0 < loaded.count("copy") <= 2 * len(steps)


def test_types_are_checked(bench: Bench) -> None:
    described = workflow({}, {"a": {"run": tool("", {}, {"out": found("x")}), "in": {}}}, {"out": "a/out"})
    described["outputs"]["out"]["type"] = "int"
    path = bench.write(described, {}, io=True, config={"streaming": "auto"})
    for translator in (CWLTranslator, IOAwareTranslator):
        with pytest.raises(WorkflowDefinitionException) as raised:
            translate(translator, path)
        assert "is incompatible" in str(raised.value.__cause__)


def without_hints() -> Document:
    bare = workflow({}, {"a": {"run": tool("echo x > x", {}, {"out": found("x")}), "in": {}}}, {"out": "a/out"})
    # The name of the plugin's hints in `$namespaces` would be a trace of them.
    return {"$namespaces": {}, **bare}


def test_without_hints_nothing_is_planned(bench: Bench) -> None:
    path = bench.write(without_hints(), {}, io=True)
    assert shape(translate(IOAwareTranslator, path)) == shape(translate(CWLTranslator, path))
    plan = plan_file(path).plans["main"]
    assert (list(plan.graph.steps), plan.graph.edges) == (["/a"], ())


def test_hints_replace_the_steps_that_they_concern_and_no_other(bench: Bench) -> None:
    path = bench.write(document(hints=True), {}, io=True)
    ours, plain = shape(translate(IOAwareTranslator, path)), shape(translate(CWLTranslator, path))
    assert ours.keys() == plain.keys()
    changed = {name for name in ours if ours[name][0] is not plain[name][0]}
    results = {"/b-collector", "/c-collector"}
    inner = {"/a", "/c", "/c/__transfer__/file", "/c/__transfer__/trace", "/b/file-scatter", "/b/out-gather"}
    assert changed == inner | results | {"/c/__schedule__"}
    assert ours["/c/__schedule__"] == (StreamingScheduleStep, *plain["/c/__schedule__"][1:])
    assert ours["/a"][0] is StreamingExecuteStep
    assert ours["/b/file-scatter"][0] is StreamingScatterStep
    assert ours["/b/out-gather"][0] is OrderedGatherStep
    # Only what is made from something that is delivered early waits for it; it is not wired otherwise.
    assert [ours[name] for name in results] == [(ConfirmedTransferStep, *plain[name][1:]) for name in results]
    assert ours["/list-collector"] == plain["/list-collector"]
    assert ours["/list-collector-transformer"] == plain["/list-collector-transformer"]


def test_plan(bench: Bench) -> None:
    plans = plan_file(bench.write(document(hints=True), {}, io=True))
    shown = plans.to_json()["workflows"]["main"]
    edges = {(edge["output"], edge["input"]): edge for edge in shown["edges"]}
    assert edges["/a/list", "/b/file"]["delivery"] == "commit"
    assert edges["/a/list", "/b/file"]["byElement"]
    assert edges["/a/log", "/c/file"]["delivery"] == "stream"
    assert shown["gangs"] == [
        {"steps": ("/a", "/c"), "heads": ("/a",), "cores": 1.0, "apart": None, "on_one_location": None}
    ]
    assert plans.inactive is None


def test_plan_without_our_scheduler_says_so(bench: Bench) -> None:
    plans = plan_file(bench.write(document(hints=True), {}, io=False))
    assert "scheduling: {scheduler: {type: sfio.io-aware, config: {}}}" in (plans.inactive or "")
    assert len(plans.plans["main"].graph.edges) == 2


def test_plan_without_hints_says_what_there_could_be(bench: Bench) -> None:
    plans = plan_file(bench.write(document(hints=False), {}, io=True))
    assert plans.plans["main"].graph.edges == ()
    ways = {(one["output"], one["input"]): one for one in plans.to_json()["workflows"]["main"]["possible"]}
    assert ways["/a/log", "/c/file"]["delivery"] == "termination"
    assert ways["/a/log", "/c/file"]["not_streamed"] is None
    console = Console(file=io.StringIO(), width=80)
    plans.show(console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "main: 3 steps; nothing is delivered early" in shown
    assert re.search(r"│ /a/log *│ streams or at commit", shown)
    assert "config: {streaming: auto}" in shown


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_page_for_upstream_has_each_protected_method() -> None:
    """The names are those at the head of `_streamflow.py`; a name that begins with a dot is of the class before."""
    page, owner = (Path(__file__).parents[2] / "docs" / "upstream.md").read_text(), ""
    found = re.findall(r"`(\w*)\.(_\w+)`", _streamflow.__doc__ or "")
    assert len(found) > 15
    for name, method in found:
        owner = name or owner
        assert f"`{owner}.{method}`" in page


#: What a run without hints, and without anything in the scheduler's config, has no use for.
UNUSED = (
    "streamflow_io.engine.planning",
    "streamflow_io.features.",
    "streamflow_io.proofs",
    "streamflow_io.report",
    "streamflow_io.storage.sharing.client",
    "streamflow_io.storage.sharing.directory",
    "streamflow_io.storage.sharing.entries",
)


def test_a_run_without_hints_imports_little_and_builds_no_model(bench: Bench) -> None:
    """The CPU time of such a run is to be at most 0.1 s above StreamFlow's. Times cannot be tested.

    With another scheduler, only the module of the plugin itself is imported: the whole takes ten times as long.
    """
    script = """
import gc, json, sys
from streamflow.main import main
import streamflow_io.plugin
first = sorted(sys.modules)
collect, looked = gc.collect, []
def count(*generation):
    looked.append([len(gc.get_objects()), gc.get_freeze_count()])
    return collect(*generation)
gc.collect = count
code = main(sys.argv[1:])
from streamflow_io.hints.fields import Model
built = [each.__name__ for each in Model.__subclasses__() if each.__pydantic_complete__]
print(json.dumps([first, sorted(sys.modules), built, looked]), file=sys.stderr)
sys.exit(code)
"""
    file = bench.write(without_hints(), {}, io=True)
    words = [sys.executable, "-c", script, "run", str(file), "--outdir", str(file.parent / "out")]
    environment = {**os.environ, "XDG_DATA_HOME": str(bench.data), "TMPDIR": str(file.parent / "tmp")}
    ran = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    first, modules, built, looked = json.loads(ran.stderr.splitlines()[-1])
    ours = [name for name in first if name.startswith("streamflow_io")]
    assert "pydantic" not in first
    assert not any(name.startswith(("streamflow_io.graph", "streamflow_io.hints")) for name in ours)
    assert len(ours) < 30
    assert {"streamflow_io.engine.context", "streamflow_io.engine.translator"} <= {*modules}
    # A collection takes as long as what it looks at: the modules of StreamFlow are most of all objects.
    assert looked
    assert all(2 * objects < frozen for objects, frozen in looked)
    assert [name for name in modules if name.startswith(UNUSED)] == []
    assert built == []


def test_the_seam() -> None:
    """The seam is the list in _streamflow.py. If this breaks, StreamFlow has changed: read how, before mending it."""
    assert hasattr(streamflow.cwl.main, "CWLTranslator")
    assert parameters(DependencyResolver.eval) == ["self", "scan", "jslib", "kwargs"]
    assert "engine = DependencyResolver(context_key)" in inspect.getsource(streamflow.cwl.utils.resolve_dependencies)
    assert "context_key" not in inspect.getsource(DependencyResolver.eval)
    assert "shlex.split(" in inspect.getsource(streamflow.core.utils.run_in_subprocess)
    assert streamflow.provenance.prov_classes["run_crate"]["cwl"] is crate_writer
    assert "prov_classes[args.type][wf_type](" in inspect.getsource(streamflow.main._async_prov)
    assert parameters(CWLRunCrateProvenanceManager.get_property_value) == ["self", "name", "token"]
    assert parameters(streamflow.cwl.main._parse_args) == ["workflow_config", "context"]
    assert "return args" in inspect.getsource(streamflow.cwl.main._parse_args)
    inner = ["cwl_element", "inner_cwl_element", "cwl_name_prefix", "inner_cwl_name_prefix", "default_ports"]
    names = ["name_prefix", "step_name", "workflow"]
    assert parameters(CWLTranslator._handle_inner_inputs) == ["self", *inner, *names]
    called = "".join(inspect.getsource(CWLTranslator._translate_workflow_step).split())
    assert "self._handle_inner_inputs(cwl_element=cwl_element,inner_cwl_element=run_command," in called
    assert parameters(ExecuteStep._execute_command) == ["self", "job", "connectors"]
    assert "self._execute_command(job, connectors)" in inspect.getsource(ExecuteStep._run_job)
    assert parameters(ScheduleStep._set_job_directories) == ["self", "connector", "locations", "job"]
    assert parameters(_streamflow.schedule_once) == ["self", "job"]
    scheduled = inspect.getsource(ScheduleStep._schedule)
    assert "scheduler.schedule(" in scheduled
    assert "self._set_job_directories(" in scheduled
    assert scheduled.lstrip().startswith("@recoverable")
    check = ["inputs", "input_ports", "inputs_map", "connectors", "unfinished"]
    assert parameters(ExecuteStep._check_inputs) == ["self", *check]
    assert parameters(ExecuteStep._run_job) == ["self", "job", "inputs", "connectors"]
    assert parameters(BaseStep._get_inputs) == ["self", "input_ports"]
    checked = inspect.getsource(ExecuteStep._check_inputs)
    assert [name in checked for name in ("_run_job(", 'name="retrieve_inputs"', "Status.FIREABLE")] == [True] * 3
    assert parameters(BaseStep._get_status) == ["self", "status"]
    assert parameters(GatherStep._gather) == ["self", "key"]
    assert {"self.size_map", "self.token_map"} <= set(inspect.getsource(GatherStep._gather).replace("[", " ").split())
    assert parameters(TransferStep._run_transfer) == ["self", "job", "inputs", "port_name", "token"]
    assert "self.terminate(self._get_status(status))" in inspect.getsource(TransferStep.run)
    assert "self._retry_requests.setdefault(" in inspect.getsource(RollbackFailureManager.get_request)
    assert "retry_request.workflow = workflow" in inspect.getsource(RollbackFailureManager._synchronize_workflows)
    assert parameters(ScatterStep._scatter) == ["self", "token"]
    assert parameters(DefaultRetagTransformer._get_next_token) == ["self", "token", "inputs"]
    assert "if k != self.primary_port" in inspect.getsource(DefaultRetagTransformer._filter_input_ports)
    assert parameters(CWLExecuteStep._is_recoverable) == ["self", "job"]
    assert parameters(BaseStep._persist_token) == ["self", "token", "port", "input_token_ids"]
    prepare = ["options", "element", "base_path", "dst_path", "writable"]
    assert parameters(streamflow.cwl.command._prepare_work_dir) == prepare
    sizes = ["size_ports", "replicas_port", "step_name", "workflow"]
    assert parameters(streamflow.cwl.translator._create_nested_size_tag) == sizes
    execute = inspect.getsource(CWLCommand.execute)
    assert execute.index("if self.initial_work_dir is not None") < execute.index("await _prepare_work_dir(")
    assert execute.count("initial_work_dir") == 2
    assert parameters(DefaultScheduler._is_valid) == [
        "self",
        "connector",
        "location",
        "hardware_requirements",
        "job_name",
    ]
    assert parameters(DefaultScheduler._get_locations)[1:4] == ["job", "hardware_requirement", "locations"]
    assert parameters(DefaultScheduler._get_locations)[4:] == ["scheduling_policy", "available_locations"]
    allocation = ["self", "job", "hardware", "connector", "selected_locations", "target"]
    assert parameters(DefaultScheduler._allocate_job) == allocation
    assert parameters(DefaultScheduler._get_binding_filter) == ["self", "config"]
    assert parameters(DefaultScheduler._free_resources) == ["self", "connector", "job_allocation"]
    assert parameters(DefaultScheduler._process_target) == ["self", "target", "job_context", "hardware_requirement"]
    tasks = "".join(inspect.getsource(DefaultScheduler.schedule).split())
    assert "asyncio.create_task(self._process_target(" in tasks
    process = inspect.getsource(DefaultScheduler._process_target)
    places = [process.index(f"self.{name}(") for name in ("_is_valid", "_get_locations", "_allocate_job")]
    assert process.index("async with self.wait_queue") < places[0] < places[1] < places[2]
    assert parameters(QueueManagerConnector._remove_jobs) == ["self", "location", "jobs"]
    queued = inspect.getsource(_streamflow._run_queued)
    assert "self._scheduled_jobs[job_id] = location" in queued
    # Slurm is asked again. Once StreamFlow looks at the exit code of `squeue`, it need not be.
    asked = inspect.getsource(SlurmConnector)
    assert ["stdout, _ = await super().run(" in asked, '"squeue",' in asked, "ExitCode=" in asked] == [True] * 3
    assert "if job_id not in running_jobs:" in queued
    collected = inspect.getsource(CWLCommandOutputProcessor._process_command_output)
    assert collected.count("token_value=flatten_list(location_globpaths.values())") == 2
    # What ends each command with `2>&1`.
    created = "".join(queued.partition("create_command(")[2].partition(")")[0].split())
    assert created == "class_name=self.__class__.__name__,command=command,environment=environment,workdir=workdir,"
    assert "if self.stderr is not None else stdout" in " ".join(execute.split())
    assert "workdir=job.output_directory, stdin=stdin, stdout=stdout, stderr=stderr," in " ".join(execute.split())
    # What is logged before a job is said to have failed is why.
    failing = "".join(inspect.getsource(ExecuteStep._run_job).split())
    assert failing.count("logger.error(err)job_status=Status.FAILED") == 2
    assert "finally:#Notifycompletiontoschedulerawaitself.workflow.context.scheduler.notify_status(" in failing
    assert "self._scheduled_jobs = {}" in inspect.getsource(QueueManagerConnector.undeploy)
    assert "get_inner_location(location)" in inspect.getsource(QueueManagerConnector.undeploy)
    assert "self._connector = connector" in inspect.getsource(FutureConnector.deploy)
    assert "if not self.deploying" in inspect.getsource(FutureConnector.get_available_locations)
    undeployed = inspect.getsource(SSHConnector.undeploy)
    assert [f"self.{kind}_factories.values()" in undeployed for kind in ("ssh_context", "data_transfer_context")] == [
        True
    ] * 2
    assert "c.close()) for c in self._contexts" in inspect.getsource(SSHContextFactory.close)
    assert "await self._ssh_connection.wait_closed()" in inspect.getsource(SSHContext.close)
    assert parameters(StreamFlowExecutor._wait_outputs) == ["self", "output_consumer", "output_tokens"]
    assert parameters(StreamFlowExecutor._cancel) == ["self", "tasks"]
    execution = "".join(inspect.getsource(StreamFlowExecutor.run).split())
    assert "name=step.name,)self.executions.append(execution)" in execution
    assert "whilenotawaitself.closed():output_tokens=awaitself._wait_outputs(" in execution
    assert "executor = StreamFlowExecutor(workflow)" in inspect.getsource(streamflow.cwl.main.main)
    # An SSH host is handed locations that are not its own. Once it is not, `mend_containers_on_ssh_hosts` can go.
    deployed = "".join(inspect.getsource(SingularityConnector._populate_instance).split())
    assert 'self.connector.run(location=location,command=["singularity","buildcfg"' in deployed
    for copy, handed in (("local_to_remote", "locations=locations"), ("remote_to_local", "location=location")):
        copied = inspect.getsource(getattr(ContainerConnector, f"copy_{copy}"))
        assert f"{handed}, read_only" in copied[copied.index(f"self.connector.copy_{copy}(") :]
        asked = ["self", "src", "dst", handed.partition("=")[0], "read_only"]
        assert parameters(getattr(BaseConnector, f"copy_{copy}")) == asked
    for engine in (DockerBaseConnector, SingularityConnector):
        assert parameters(engine._get_run_command) == ["self", "command", "location", "interactive"]
        assert "shlex.quote(command)" in inspect.getsource(engine._get_run_command)
    assert "async with self._lock" in inspect.getsource(_streamflow._execute)
    asked = ["self", "src_location", "src_path", "dst_locations", "dst_path", "writable"]
    assert parameters(_streamflow._transfer_data) == asked
    assert "DataLocation(" in inspect.getsource(_streamflow._transfer_data)
    for shell in (SubprocessShell, SSHShell, KubernetesShell):
        assert ["self._reader" in inspect.getsource(shell), "self._writer" in inspect.getsource(shell)] == [True, True]
    assert inspect.getsource(KubernetesShell.__init__).count("stream") >= 3
    assert 'location.name.split(":")' in inspect.getsource(KubernetesBaseConnector._create_shell)
    assert "connect_get_namespaced_pod_exec(" in inspect.getsource(KubernetesBaseConnector._create_shell)
    assert 'namespace=self.namespace or "default"' in inspect.getsource(KubernetesBaseConnector._get_container)
    assert "self._get_running_pods()" in inspect.getsource(KubernetesBaseConnector.get_available_locations)
    written = inspect.getsource(KubernetesResponseWriterWrapper)
    assert "STREAM_CLOSE + bytes(chr(ws_client.STDIN_CHANNEL)" in written
    assert 'hash("".join(command))' in inspect.getsource(BaseConnector.get_shell)
    # What `LoopConnection` stands in for, whose transactions are short: StreamFlow rolls nothing back.
    used = inspect.getsource(SqliteDatabase)
    assert set(re.findall(r"\bdb\.(\w+)\(", used)) == {"execute", "executemany"}
    assert set(re.findall(r"\bcursor\.(\w+)", used)) == {"lastrowid", "fetchone", "fetchall"}
    assert used.count("async with self.connection as db:") == used.count("async with self.connection")
    assert set(re.findall(r"self\.connection\.(\w+)", used)) == {"close"}
    connected = inspect.getsource(SqliteConnection)
    assert connected.count("commit()") == connected[connected.index("async def close") :].count("commit()") == 1
    assert "if self.init_db:" in connected
    assert parameters(SqliteConnection.__init__) == ["self", "connection", "mmap_size", "timeout", "init_db"]
    # What is looked up in constant time. Once StreamFlow does so, `look_up_in_constant_time` can go.
    assert "for token in token_list:" in inspect.getsource(workflow_utils.get_job_token)
    for module in (streamflow.workflow.step, streamflow.cwl.step, streamflow.cwl.command):
        assert "get_job_token(" in inspect.getsource(module)
    assert parameters(workflow_utils.get_job_token) == ["job_name", "token_list"]
    assert "self.token_list.append(token)" in inspect.getsource(Port.put)
    assert "get_token_value(token)" in inspect.getsource(streamflow.cwl.utils.build_context)
    assert "build_context(inputs)" in inspect.getsource(CWLTokenProcessor._process_file_token)
    # What a rehearsal has stand-ins for.
    asked = {word.split("(")[0] for word in execute.replace("\n", " ").split() if "context.database." in word}
    assert asked == {f"self.step.workflow.context.database.{name}" for name in ("add_execution", "update_execution")}
    assert parameters(DefaultDataManager.__init__) == ["self", "context"]
    managed = inspect.getsource(DefaultDataManager)
    assert set(re.findall(r"self\.path_mapper\.(\w+)", managed)) == {"get", "put", "invalidate_location"}
    assert set(re.findall(r"self\.context\.(\w+)", managed)) == {"checkpoint_manager", "deployment_manager"}
    assert parameters(_RemotePathMapper.get) == ["self", "path", "data_type", "deployment", "name"]
    assert parameters(RollbackFailureManager.__init__) == ["self", "context", "max_retries", "retry_delay"]
    assert "retry_request.version < self.max_retries" in inspect.getsource(RollbackFailureManager._update_request)
