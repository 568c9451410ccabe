"""The order of packages and modules, and the purity of decisions, read from the imports.

Every import counts, also one inside a function or for a type checker only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import requires
from pathlib import Path

import pytest
from msgspec import Struct
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamflow_io.engine.plan import Plan
from streamflow_io.runtime.protocol import JobSpec

ROOT = Path(__file__).parents[2] / "streamflow_io"

# Small modules that know nothing of the plugin; each imports only those before it.
COMMON = {
    "wording": "words for people",
    "errors": "what others' exceptions say",
    "files": "files, written whole and not believed where others may write",
    "capacity": "how much a job asks for and a location has",
    "grouping": "things by what they have in common",
    "series": "numbers over time",
    "nested": "what is in nested data",
    "messages": "the codes of messages, and what they mean",
    "installed_features": "what the core asks of features",
    "loop_connection": "an SQLite file, in the thread of the event loop",
    "tasks": "tasks of asyncio that are cancelled, and looks at files in a thread",
    "processes": "processes of this machine, whose pipes others may hold",
    "_streamflow": "what StreamFlow does not promise to keep",
}


@dataclass(frozen=True)
class Room:
    """A package of the plugin.

    :ivar holds: what belongs into it
    :ivar above: the rooms right below it; a room may import these, and all that they may import
    """

    holds: str
    above: tuple[str, ...] = ()


ROOMS = {
    "hints": Room("what a user writes"),
    "graph": Room("the I/O graph, how each edge is delivered, gangs; writes CAPIO-CL", ("hints",)),
    "runtime": Room("node runtimes, and the messages between driver and node", ("graph",)),
    "adapters": Room("StreamFlow as the plugin extends it: steps, tokens, connectors, the state of jobs", ("runtime",)),
    "records": Room("the facts of a run, and what earlier runs have learned", ("runtime",)),
    "storage": Room("who may use how much of a storage: admit, learn, share between runs", ("adapters", "records")),
    "bandwidth": Room("how fast data must move", ("storage",)),
    "parts": Room("splits that write nothing, and reading ahead", ("storage",)),
    "jobs": Room("the life of one job: attempts, deliveries, ends", ("bandwidth", "parts")),
    "proofs": Room("what is tried and proven on the user's data", ("jobs",)),
    "report": Room("what the records of runs mean, and how this is shown", ("proofs",)),
    "engine": Room("what StreamFlow calls: plan, rewire, scheduler; the parts of a run put together", ("report",)),
    "commands": Room("one file for each command", ("engine",)),
    "cli": Room("the program", ("commands",)),
    "plugin": Room("what StreamFlow finds", ("engine",)),
}

# Modules that decide: plain data in, plain data out. The others of these packages read files.
PURE = (
    "grouping",
    "series",
    "nested",
    "wording",
    "messages",
    "graph",
    "graph.capio_cl",
    "storage.admission",
    "bandwidth",
    "features.schedules",
    "parts.chunks",
    "parts.director",
    "runtime.extents",
    "storage.intermediates.disk_ledger",
    "storage.intermediates.ledger",
    "storage.sharing",
    "hints",
    "report.analysis",
    "report.suggestions",
    "features.capio.language",
    "features.capio.runtime.reports",
    "features.capio.runtime.supported",
    "features.cuts.split_key",
    "proofs.clocks",
    "jobs.delivery",
    "jobs.delivered",
    "parts.said_parts",
    "proofs.rehearsal_rules",
    "proofs.same_outputs",
    "records.files",
    "records.history",
    "records.job_files",
    "records.jobs",
    "records.records",
    "report.chart",
    "report.graph_drawing",
    "report.live_view",
    "report.formats",
)
NOT_PURE = {
    "bandwidth.rates": "knows the jobs of a run",
    "bandwidth.requests": "knows the jobs of a run",
    "bandwidth.write_channels": "knows the jobs of a run",
    "hints.cwl": "reads what `run` names",
    "hints.yaml_files": "reads annotations files and StreamFlow files",
    "hints.resolution": "reads a document and its annotations file",
    "hints.schemas": "writes the schemas, as a program",
    "storage.sharing.directory": "has files and locks",
    "storage.sharing.client": "has a thread",
    "storage.sharing.other_entries": "reads files",
    "storage.sharing.session": "looks at files and clocks",
    "storage.sharing.status": "reads the files",
    "features.schedules.commands": "has commands",
    "features.schedules.files": "reads set files",
    "features.schedules.plan_program": "is a program",
    "features.schedules.plans": "has files, and starts a program",
    "features.schedules.policy": "opens plans",
}
# Where what a pure module must not import belongs.
EFFECTS = {
    "streamflow": "what knows StreamFlow's objects belongs into adapters/, jobs/ or engine/",
    "asyncio": "what waits belongs into jobs/ or runtime/",
    "time": "time is an argument; who reads the clock belongs into jobs/",
    "random": "chance is an argument",
    "os": "what touches files or processes belongs into jobs/, runtime/ or a reader",
    "pathlib": "what touches files belongs into jobs/, runtime/ or a reader; `PurePosixPath` may be imported",
    "subprocess": "what starts processes belongs into runtime/",
}
EFFECTS |= dict.fromkeys(("io", "shutil", "tempfile", "glob", "aiofiles"), EFFECTS["pathlib"])
EFFECTS |= dict.fromkeys(("socket", "requests", "threading", "logging", "signal"), EFFECTS["os"])
EFFECTS |= {"datetime": EFFECTS["time"], "secrets": EFFECTS["random"]}


#: The methods of StreamFlow's connectors and scheduler that get the name of a job.
STREAMFLOWS = ("run", "get_connector", "get_hardware")


@dataclass(frozen=True)
class Import:
    """An import statement.

    :ivar importer: the module that it stands in, without `streamflow_io.`
    :ivar imported: our module, without `streamflow_io.`, or the full name of another's
    """

    importer: str
    imported: str
    is_ours: bool
    line: int

    def __str__(self) -> str:
        return f"{MODULES[self.importer].relative_to(ROOT.parent)}:{self.line} imports {self.imported}"


def modules() -> dict[str, Path]:
    """All modules by name; a package by the name of its directory."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST, *, in_branches: bool = True) -> Iterator[ast.AST]:
    """The statements in a node. Expressions have none.

    :param in_branches: also those in functions and conditions, which an import of the module need not execute
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            if in_branches or not isinstance(child, ast.If | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from statements(child, in_branches=in_branches)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports_of(module: str, path: Path, names: Iterable[str], *, in_branches: bool = True) -> Iterator[Import]:
    package = ["streamflow_io", *module.split(".")]
    if path.name != "__init__.py":
        package.pop()
    for node in statements(tree(path), in_branches=in_branches):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from package import module` imports the module; of a module, the names in it.
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in dict.fromkeys(targets):
            is_ours = target.split(".")[0] == "streamflow_io"
            found = target.removeprefix("streamflow_io.")
            while is_ours and found not in names and "." in found:
                found = found.rpartition(".")[0]
            yield Import(module, found, is_ours, node.lineno)


MODULES = modules()


@cache
def imports() -> tuple[Import, ...]:
    """All imports, each once; every process that collects tests would otherwise look for them."""
    return tuple(dict.fromkeys(each for name, path in MODULES.items() for each in imports_of(name, path, MODULES)))


@cache
def ours() -> tuple[Import, ...]:
    """Imports of other modules of ours."""
    found = (each for each in imports() if each.is_ours and each.imported in MODULES)
    return tuple(each for each in found if each.imported != each.importer)


def package(module: str) -> str:
    """The package of a module; a feature is a package of its own. The folder of all features is none."""
    if module == "features":
        return ""
    if module.startswith("features."):
        return ".".join(module.split(".")[:2])
    return module.partition(".")[0]


def is_feature(package: str) -> bool:
    return package.startswith("features.")


def ways(start: str, graph: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """How a module comes to those that it needs: the modules before each."""
    found: dict[str, list[str]] = {}
    ahead = [(start, [start])]
    while ahead:
        module, before = ahead.pop(0)
        for needed in graph[module]:
            if needed not in found:
                found[needed] = before
                ahead.append((needed, [*before, needed]))
    return found


def allowed(room: str) -> frozenset[str]:
    """The rooms that a room may import."""
    above = ROOMS[room].above
    return frozenset(above).union(*map(allowed, above))


def test_every_package_is_a_room() -> None:
    found = {package(name) for name in MODULES if not is_feature(package(name))} - {"", "__main__"}
    missing = found - COMMON.keys() - ROOMS.keys()
    assert not missing, f"say in ROOMS what belongs into {', '.join(sorted(missing))}, and what is below"
    assert found == COMMON.keys() | ROOMS.keys()


def test_rooms_import_only_those_below_them() -> None:
    common = list(COMMON)
    for each in ours():
        inner, outer = package(each.importer), package(each.imported)
        if is_feature(inner) or is_feature(outer) or inner == outer or not outer:
            continue
        if inner in COMMON:
            assert outer in COMMON, f"{each}: a common module knows no room"
            assert common.index(outer) < common.index(inner), f"{each}: {inner} comes before {outer}"
        elif outer not in COMMON:
            assert outer in allowed(inner), (
                f"{each}: {inner} ({ROOMS[inner].holds}) is not above {outer} ({ROOMS[outer].holds}). What both "
                f"need belongs into a room below; or {inner} is given by its caller what it imports now"
            )


def test_nothing_imports_a_feature() -> None:
    for each in ours():
        outer = package(each.imported)
        assert not is_feature(outer) or outer == package(each.importer), (
            f"{each}: the core and other features work without {outer}. Let the core ask for it through a method of "
            "installed_features.Feature, which does nothing by default"
        )


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: {each.imported for each in ours() if each.importer == name} for name in MODULES}
    for module in MODULES:
        circle = ways(module, graph).get(module)
        assert circle is None, (
            f"a circle of imports: {' -> '.join([*circle, module])}. What several of them need belongs into a module "
            "of its own, which imports none of them; or one is given by its caller what it imports now, by a protocol"
        )


def test_a_small_module_has_several_importers() -> None:
    """Modules that are imported when they are needed stay apart: programs that do not need them start faster."""
    importers: dict[str, set[str]] = {}
    for each in ours():
        importers.setdefault(each.imported, set()).add(each.importer)
    for module, found in importers.items():
        path, [importer, *others] = MODULES[module], sorted(found)
        if others or path.name == "__init__.py" or len(path.read_text("utf-8").splitlines()) >= 100:
            continue
        at_once = {each.imported for each in imports_of(importer, MODULES[importer], MODULES, in_branches=False)}
        assert module not in at_once, f"{module} is short, and only {importer} imports the module: put it there"


def test_pure_modules_import_no_effects() -> None:
    for each in imports():
        if not is_pure(each.importer):
            continue
        top, _, rest = each.imported.partition(".")
        reason = None if rest.startswith("Pure") else EFFECTS.get(top)
        assert each.is_ours or reason is None, f"{each}: {each.importer} is pure. {reason}"
        assert not each.is_ours or each.imported not in NOT_PURE or each.importer == "hints", (
            f"{each}: {each.importer} is pure, and {each.imported} {NOT_PURE[each.imported]}: take what it gives as an "
            "argument"
        )
    packages = {package(name) for name in MODULES}
    missing = {name for name in (*PURE, *NOT_PURE) if name not in MODULES and package(name) in packages}
    assert not missing, "take out of PURE and NOT_PURE what there is not"


def test_pure_modules_call_no_effects() -> None:
    for name, path in MODULES.items():
        if not is_pure(name):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "print", "input"), (
                    f"{path.relative_to(ROOT.parent)}:{node.lineno} calls {node.func.id}: {name} is pure; return what "
                    "is to be written, or take what is read as an argument"
                )


def is_pure(module: str) -> bool:
    return is_one_of(module, PURE) and not is_one_of(module, NOT_PURE)


def is_one_of(module: str, others: Iterable[str]) -> bool:
    """Whether a module is one of others, or in a package that is one of them."""
    return any(module == other or module.startswith(f"{other}.") for other in others)


def test_every_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in statements(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("kind", [Plan, JobSpec])
def test_what_each_capability_would_extend_has_few_fields(kind: type[Struct]) -> None:
    assert len(kind.__struct_fields__) <= 10, f"{kind.__name__}: a capability has one object there, and no more fields"


def test_rooms_below_the_engine_take_no_names_of_jobs() -> None:
    """Only methods that StreamFlow calls get the names of jobs."""
    found = [
        f"{MODULES[name].relative_to(ROOT.parent)}:{node.lineno} {node.name}"
        for name, path in MODULES.items()
        if package(name) in {*allowed("engine"), "features"} or is_feature(package(name))
        for node in statements(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in STREAMFLOWS
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.arg == "job_name"
    ]
    assert found == []


def test_few_distributions_come_with_the_plugin() -> None:
    """Things that few users need are extras. StreamFlow's own distributions are installed in any case."""
    added = installed_with("streamflow-io") - installed_with("streamflow")
    assert len(added) <= 8, sorted(added)


def installed_with(name: str) -> set[str]:
    """The distributions that `pip install` brings here, by their normalized names."""
    found: set[str] = set()
    to_do = [name]
    while to_do:
        one = canonicalize_name(to_do.pop())
        if one not in found:
            found.add(one)
            needed = map(Requirement, requires(one) or ())
            to_do += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found
