"""The proofs that `streamflow-io plan` shows with `streaming: auto`: whether each route streams, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text
from streamflow.workflow.step import ExecuteStep

from streamflow_io.engine.plan import Plan
from streamflow_io.graph.candidates import Candidate
from streamflow_io.graph.io_graph import Delivery, StreamEdge
from streamflow_io.graph.possible import PossibleRoute
from streamflow_io.graph.sites import SiteKind
from streamflow_io.hints.inheritance import port_path
from streamflow_io.messages import Code, coded
from streamflow_io.proofs.rehearsable_jobs import why_once
from streamflow_io.records.learned.extents import bound_of
from streamflow_io.records.learned.proofs import Proof, ProofKey, Way
from streamflow_io.wording import counted

from .console import table
from .learned_entries import proven_how

_UNKNOWN = "not yet tried: its job runs once more on an idle core when it has succeeded"
_INCONCLUSIVE = "it was tried, and nothing is known yet"
_HOPELESS = "it was tried in vain in {} runs, and now only a run with `rehearse: wait` tries it again"
_UNREADABLE = "what earlier runs have proven cannot be read"
_NOT_WHOLE = "its job reads or writes {}, which has a window: run once with `intermediates: remove`"
_LEFT = "its name, or whether it is there, decides something else"
_REFUSED = "it was tried, and does not stream"
# Codes for states whose reasons may have none.
_CODES = {"refused": Code.NOT_PROVEN, "unknown": Code.NOT_TRIED, "impossible": Code.VALUE_COMPUTED}
# The texts for routes that proofs do not concern.
_SAID = {
    "hinted": "hints say how; the table of edges has it",
    "by element": "each element goes on when its job has ended",
}


class Prospect(Struct, frozen=True):
    """Whether a file streams from an output to an input without a hint.

    :ivar state: `hinted`: hints decide. `streams`: proven with some options. `by element`: not a stream, and each
        element goes on when its job has ended. `unknown`: not tried yet. `refused`: tried, and refused. `impossible`:
        the workflow does not allow it
    :ivar reason: why the file does not stream
    :ivar way: how the file is read
    :ivar runs: the number of jobs in which the file has streamed
    :ivar excerpt: the number of first bytes with which the proof was made. None: the whole file was used
    :ivar bound: the largest file for which the proof holds, in bytes. None: any file
    :ivar begins: the condition for a reader of a whole list to begin. None: the reader reads no such list
    """

    output: str
    input: str
    state: Literal["hinted", "by element", "streams", "unknown", "refused", "impossible"]
    reason: str | None = None
    way: Way | None = None
    runs: int = 0
    excerpt: int | None = None
    bound: int | None = None
    begins: str | None = None


def prospects(plan: Plan) -> list[Prospect]:
    """Return the prospects of all routes of a workflow with `streaming: auto`."""
    return (
        [_with_elements(plan, _with_code(_prospect(plan, one))) for one in plan.graph.possible]
        if plan.proofs.is_auto
        else []
    )


def _with_code(found: Prospect) -> Prospect:
    """Return a prospect with its reason and code, if the route does not stream."""
    if (code := _CODES.get(found.state)) is None:
        return found
    return replace(found, reason=coded(found.reason or _REFUSED, code))


def _with_elements(plan: Plan, found: Prospect) -> Prospect:
    """Return a prospect that says that elements of a list go on one by one, if they do so without a stream."""
    if found.state in ("hinted", "streams"):
        return found
    of, to = found.output, found.input
    if any(edge.by_element and _is_between(edge, of, to) for edge in plan.graph.edges if not edge.delivery.joins):
        return replace(found, state="by element")
    return found


def _prospect(plan: Plan, one: PossibleRoute) -> Prospect:
    of, to = one.output, one.input
    if one.delivery is not Delivery.TERMINATION and of not in plan.proofs.proven:
        return Prospect(of, to, "hinted")
    if (refused := next((proof for proof in _proofs(plan, of, "writes") if proof.is_refused), None)) is not None:
        return Prospect(of, to, "refused", f"{of}: {refused.reason}")
    step, _, port = to.rpartition("/")
    candidate = plan.proofs.candidates.get(step or "/")
    is_candidate = candidate is not None and port in candidate.inputs
    known = [*_proofs(plan, to, "reads")] if is_candidate else []
    proven = [proof for proof in known if proof.way is not None]
    if one.delivery is Delivery.STREAM:
        way = proven[0].way if proven else "pipe"
        runs = sum(proof.runs for proof in proven)
        begins = next(
            (edge.begins for edge in plan.graph.edges if edge.delivery.joins and _is_between(edge, of, to)), None
        )
        if not proven:
            return Prospect(of, to, "streams", way=way, runs=runs, begins=begins)
        excerpt, bound = proven[0].excerpt, bound_of(proven[0].extents)
        return Prospect(of, to, "streams", way=way, runs=runs, excerpt=excerpt, bound=bound, begins=begins)
    if one.not_streamed is None and plan.proofs.known is None:
        return Prospect(of, to, "unknown", _UNREADABLE)
    if one.not_streamed is not None or (not is_candidate and not proven):
        return Prospect(of, to, "impossible", one.not_streamed or _LEFT)
    if proven:
        mixed = "another reader of the same file cannot read it so"
        return Prospect(of, to, "impossible", coded(mixed, Code.SHARED_TOKEN))
    if known:
        return Prospect(of, to, "refused", max(known, key=lambda proof: proof.learned).reason)
    if candidate is not None and candidate.once is not None:
        return Prospect(of, to, "refused", candidate.once)
    if candidate is not None and (never := _why_never(plan, step or "/", candidate)) is not None:
        return Prospect(of, to, "refused", never)
    if (window := _window_of(plan, step)) is not None:
        return Prospect(of, to, "unknown", _NOT_WHOLE.format(window))
    tried = [each for each in plan.proofs.inconclusive if _is_about(plan, each.key, to, "reads")]
    last = max(tried, key=lambda each: each.learned, default=None)
    if last is None:
        return Prospect(of, to, "unknown", _UNKNOWN)
    reason = f"{_HOPELESS.format(last.vain)}: {last.reason}" if last.is_hopeless else f"{_INCONCLUSIVE}: {last.reason}"
    return Prospect(of, to, "unknown", reason)


def _why_once(plan: Plan, step: str) -> str | None:
    """Why no job of a step runs once more. None: one does, as far as is known before the run."""
    runs, site = plan.workflow.steps.get(step), plan.graph.steps[step].site
    if isinstance(runs, ExecuteStep) and (why := why_once(runs)) is not None:
        return why
    if all(deployment.kind is SiteKind.QUEUE for deployment in site.deployments):
        return f"nothing is tried {site.where}; a proof from elsewhere holds with the same programs"
    return None


def _why_never(plan: Plan, step: str, candidate: Candidate) -> str | None:
    """Why nothing is proven about a step. None: something may be, as far as is known before the run."""
    if (why := _why_once(plan, step)) is not None:
        return why
    site = plan.graph.steps[step].site
    kinds = {deployment.kind for deployment in site.deployments}
    if candidate.directory is not None and SiteKind.LOCAL not in kinds:
        return f"nothing is proven {site.where} for a job with the Directory `{candidate.directory}`"
    return None


def _is_between(edge: StreamEdge, of: str, to: str) -> bool:
    consumer = edge.route.consumer
    return edge.route.output.name == of and consumer is not None and consumer.name == to


def _proofs(plan: Plan, name: str, kind: Literal["reads", "writes", "declared"]) -> Iterator[Proof]:
    """Yield the proofs about an input, or about an output that is not written front to back."""
    return (proof for proof in plan.proofs.known or () if _is_about(plan, proof.key, name, kind))


def _is_about(plan: Plan, key: ProofKey, name: str, kind: Literal["reads", "writes", "declared"]) -> bool:
    step, _, port = name.rpartition("/")
    return key.about == (plan.proofs.contents.get(step or "/"), kind, port)


def declared(plan: Plan, edge: StreamEdge) -> str | None:
    """Return the proof about an input that is declared `streamable`, as text. None: the input is not declared."""
    to = edge.route.consumer
    if to is not None and to.refuted is not None:
        return "refuted"
    candidate = None if to is None else plan.proofs.candidates.get(to.step)
    if to is None or candidate is None or to.port not in candidate.declared:
        return None
    known = [proof for proof in _proofs(plan, to.name, "declared") if proof.is_proven]
    if any(proof.reason is None for proof in known):
        return "compared"
    if why := next((proof.reason for proof in known), candidate.once or _why_once(plan, to.step)):
        return f"cannot be compared: {why}"
    if (window := _window_of(plan, to.step)) is not None:
        return f"not compared: {window} has a window"
    return "not compared yet"


def _window_of(plan: Plan, step: str) -> str | None:
    """Return an output with a window that jobs of a step write or read. Such jobs run only once."""
    windows = {port_path(each.step, each.port): each.step for each in plan.intermediates.windows if each.why is None}
    consumers = ((edge.route.output.name, edge.route.consumer) for edge in plan.graph.edges)
    read = {name for name, consumer in consumers if consumer is not None and consumer.step == step}
    return next((name for name, writer in windows.items() if writer == step or name in read), None)


_STATES = {
    "hinted": Text("as hints say"),
    "by element": Text("by element", "green"),
    "streams": Text("streams", "green"),
    "unknown": Text("not yet", "cyan"),
    "refused": Text("at termination"),
    "impossible": Text("at termination"),
}


def prospects_table(found: Sequence[Prospect]) -> Table:
    rows = [(f"{one.output}\n-> {one.input}", _STATES[one.state], _why(one)) for one in found]
    return table("Streaming without hints", ("way", "delivered", "why"), rows, unfolded=("way",))


def _why(one: Prospect) -> str:
    if one.state != "streams":
        return "; ".join(filter(None, (_SAID.get(one.state), one.reason)))
    how = [proven_how(one.excerpt, one.bound)]
    if one.runs:
        how.append(f"it has streamed in {counted(one.runs, 'job')}")
    if one.begins is not None:
        how.append(f"its reader begins once {one.begins}")
    return "; ".join(how)
