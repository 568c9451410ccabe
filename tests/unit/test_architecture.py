"""The order of packages and modules, and the purity of decisions, read from the imports.

Every import counts, also one inside a function or for a type checker only.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "streamflow_io"

# From the innermost to the outermost: each imports only those before it. What belongs into each stands beside it.
ORDER = {
    "errors": "what others' exceptions say",
    "files": "files, written whole and not believed where others may write",
    "capacity": "how much a job asks for and a location has",
    "grouping": "things by what they have in common",
    "series": "numbers over time",
    "nested": "what is in nested data",
    "wording": "words for people",
    "messages": "what messages with a code mean",
    "features": "what the core asks of features, each of which is a package in it",
    "loop_connection": "an SQLite file, in the thread of the event loop",
    "_streamflow": "what StreamFlow does not promise to keep",
    "hints": "what a user writes",
    "graph": "the I/O graph, and how each edge is served",
    "capio_cl": "the graph in CAPIO-CL",
    "admission": "which job starts when, and what is learned of it",
    "bandwidth": "how fast data has to move, and did",
    "sessions": "which bytes of a file that many jobs read are read ahead",
    "storage": "how a storage is measured",
    "runtime": "the node runtimes, and what is said with them",
    "records": "the facts of a run",
    "analysis": "what the records of a run mean",
    "report": "how the results of runs are shown",
    "learned": "what is kept from run to run",
    "sharing": "what runs that use one storage hold of it",
    "run": "all that lives as long as a run",
    "translation": "what is done before a run",
    "suggestions": "what an observed run gives reasons for",
    "commands": "one file for each command",
    "cli": "the program",
    "plugin": "what StreamFlow finds",
}

# Modules that decide: plain data in, plain data out. The others of these packages read files.
PURE = (
    "grouping",
    "series",
    "nested",
    "wording",
    "messages",
    "graph",
    "capio_cl",
    "admission",
    "bandwidth",
    "features.schedules",
    "sessions",
    "sharing",
    "hints",
    "analysis",
    "suggestions",
    "features.capio.language",
    "features.capio.runtime.reports",
    "features.capio.runtime.supported",
    "run.clocks",
    "run.delivery",
    "run.delivered",
    "run.said_parts",
    "run.excerpt_rules",
    "run.rehearsal_rules",
    "run.same_outputs",
    "records.files",
    "records.history",
    "records.job_files",
    "records.jobs",
    "records.records",
    "report.chart",
    "report.figures",
    "report.graph_drawing",
    "report.live_view",
    "report.table_export",
    "report.timeline_data",
    "report.trace_events",
)
NOT_PURE = {
    "hints.cwl": "reads what `run` names",
    "hints.yaml_files": "reads annotations files and StreamFlow files",
    "hints.resolution": "reads a document and its annotations file",
    "hints.schemas": "writes the schemas, as a program",
    "sharing.directory": "has files and locks",
    "sharing.identity": "looks at what is mounted",
    "sharing.locking": "locks files",
    "sharing.client": "has a thread",
    "sharing.other_entries": "reads files",
    "sharing.session": "looks at files and clocks",
    "sharing.status": "reads the files",
    "features.schedules.commands": "has commands",
    "features.schedules.files": "reads set files",
    "features.schedules.plan_program": "is a program",
    "features.schedules.plans": "has files, and starts a program",
    "features.schedules.policy": "opens plans",
    "features.schedules.schedule_file": "reads schedule files",
    "features.schedules.search": "has a clock",
}
# Where what a pure module must not import belongs.
EFFECTS = {
    "streamflow": "what knows StreamFlow's objects belongs into run/ or translation/",
    "asyncio": "what waits belongs into run/ or runtime/",
    "time": "time is an argument; who reads the clock belongs into run/",
    "random": "chance is an argument",
    "os": "what touches files or processes belongs into run/, runtime/ or a reader",
    "pathlib": "what touches files belongs into run/, runtime/ or a reader; `PurePosixPath` may be imported",
    "subprocess": "what starts processes belongs into runtime/",
}
EFFECTS |= dict.fromkeys(("io", "shutil", "tempfile", "glob", "aiofiles"), EFFECTS["pathlib"])
EFFECTS |= dict.fromkeys(("socket", "requests", "threading", "logging", "signal"), EFFECTS["os"])
EFFECTS |= {"datetime": EFFECTS["time"], "secrets": EFFECTS["random"]}

MOST_IN_FUNCTIONS = 19


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
    in_function: bool

    def __str__(self) -> str:
        return f"{MODULES[self.importer].relative_to(ROOT.parent)}:{self.line} imports {self.imported}"


def modules() -> dict[str, Path]:
    """All modules by name; a package by the name of its directory."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(module: str, path: Path, names: Iterable[str]) -> Iterator[Import]:
    tree = ast.parse(path.read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(inner) for function in functions for inner in ast.walk(function)}
    package = ["streamflow_io", *module.split(".")]
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(tree):
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
            yield Import(module, found, is_ours, node.lineno, id(node) in inside)


MODULES = modules()


@cache
def imports() -> tuple[Import, ...]:
    """All imports, each once; every process that collects tests would otherwise look for them."""
    return tuple(dict.fromkeys(each for name, path in MODULES.items() for each in imports_of(name, path, MODULES)))


@cache
def ours() -> tuple[Import, ...]:
    """Those of other modules of ours."""
    found = (each for each in imports() if each.is_ours and each.imported in MODULES)
    return tuple(each for each in found if each.imported != each.importer)


def package(module: str) -> str:
    """The package of a module; a feature is a package of its own."""
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


def test_every_package_has_its_position_in_the_order() -> None:
    found = {package(name) for name in MODULES if not is_feature(package(name))} - {"", "__main__"}
    missing = found - ORDER.keys()
    assert not missing, f"say in ORDER what belongs into {', '.join(sorted(missing))}, and after what it comes"


def test_packages_import_only_those_before_them() -> None:
    order = list(ORDER)
    for each in ours():
        if is_feature(package(each.importer)) or is_feature(package(each.imported)):
            continue
        is_outer = package(each.imported) and order.index(package(each.imported)) > order.index(package(each.importer))
        inner, outer = package(each.importer), package(each.imported)
        assert not is_outer, (
            f"{each}: {inner} ({ORDER[inner]}) comes before {outer} ({ORDER[outer]}). What both need belongs into "
            f"{inner} or before it; what needs {outer} belongs into {outer} or after it"
        )


def test_records_import_no_feature() -> None:
    allowed = {"errors", "files", "grouping", "wording", "messages", "hints", "graph", "runtime", "records"}
    for each in ours():
        assert package(each.importer) != "records" or package(each.imported) in allowed, (
            f"{each}: records are output. What they share with {package(each.imported)} belongs into hints, as "
            "hints.reasons"
        )


def test_nothing_imports_a_feature() -> None:
    for each in ours():
        outer = package(each.imported)
        assert not is_feature(outer) or outer == package(each.importer), (
            f"{each}: the core and other features work without {outer}. Let the core ask for it through a method of "
            "features.Feature, which does nothing by default"
        )


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: {each.imported for each in ours() if each.importer == name} for name in MODULES}
    for module in MODULES:
        circle = ways(module, graph).get(module)
        assert circle is None, (
            f"a circle of imports: {' -> '.join([*circle, module])}. What several of them need belongs into a module "
            "of its own, which imports none of them; or one is given by its caller what it imports now, by a protocol"
        )


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
    missing = {name for name in NOT_PURE.keys() - MODULES.keys() if package(name) in packages}
    assert not missing, "take out of NOT_PURE what there is not"


def test_pure_modules_call_no_effects() -> None:
    for name, path in MODULES.items():
        if not is_pure(name):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
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


def test_few_imports_stand_inside_functions() -> None:
    inside = {(each.importer, each.line) for each in imports() if each.in_function}
    lines = ", ".join(f"{importer}:{line}" for importer, line in sorted(inside))
    assert len(inside) <= MOST_IN_FUNCTIONS, (
        f"{len(inside)} imports stand inside functions, {MOST_IN_FUNCTIONS} may: {lines}. An import belongs to the top "
        "of its module; what a run without hints does not need is imported by `translation.planning`, "
        "`translation.serving` or `run.context`, which are themselves imported when there are hints"
    )


def test_who_imports_the_scheduler() -> None:
    importers = {
        each.importer for each in ours() if each.imported == "run.scheduler" and package(each.importer) == "run"
    }
    assert importers <= {"run.scheduler"}, (
        f"{', '.join(sorted(importers))} imports run.scheduler: what it needs of the run is a protocol beside it, "
        "which the scheduler or `Run` fulfils"
    )


def test_only_modules_of_the_standard_library_are_taken_for_such() -> None:
    known = {name for name in EFFECTS if name not in ("streamflow", "aiofiles", "requests")}
    assert known <= sys.stdlib_module_names
