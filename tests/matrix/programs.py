"""The tool matrix: the types of its table, as data, and the whole of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """How a case ends, compared with the native run of the same programs."""

    EQUAL = "equal"
    #: Equal, but the program asked for more than the bytes of its stream (by path; under the net, also by what it has
    #: open), and so got the whole file.
    WAITS = "waits"
    #: The program itself fails, with a code other than 0; nothing is committed.
    FAILS = "fails"
    #: sfio-node ends the job (75) and says why; nothing is committed.
    STOPPED = "stopped"
    #: The same, under the net: the job has to start again with the file.
    AGAIN = "starts again"
    #: The program succeeds with another result: it must not get this rule.
    DIFFERS = "differs"
    #: A consumer behind a gate ended before its input was committed, or was not held where it should.
    NOT_HELD = "not held"
    #: A limited program that writes has ended without a pause: nothing was tried.
    NOT_PAUSED = "not paused"
    #: A program that failed has committed something, or left a FIFO.
    WRONG_COMMIT = "wrong commit"
    HANGS = "hangs"
    #: The producer failed, or something was left behind.
    ERROR = "error"


@dataclass(frozen=True)
class Expectation:
    """The behaviour of a program under a rule, and why, where it is not equal."""

    outcome: Outcome = Outcome.EQUAL
    because: str = ""
    #: Equal is right, too: it depends on what had been read by then.
    or_equal: bool = False

    def allows(self, outcome: Outcome) -> bool:
        """Whether an outcome is as expected."""
        return outcome is self.outcome or (self.or_equal and outcome is Outcome.EQUAL)


STREAMS = Expectation()
#: Equal where it asks only after its producer has ended, as on a busy machine.
WAITS = Expectation(Outcome.WAITS, or_equal=True)


def fails(because: str) -> Expectation:
    """The program says itself that it cannot use the input."""
    return Expectation(Outcome.FAILS, because)


def stopped(because: str) -> Expectation:
    """sfio-node notices, and ends the job."""
    return Expectation(Outcome.STOPPED, because)


def rewrites(because: str) -> Expectation:
    """A producer that changes what it has written: sfio-node ends the consumer, if it had read that already."""
    return Expectation(Outcome.STOPPED, because, or_equal=True)


def unfit(because: str) -> Expectation:
    """The difference is silent: the input or output must not be declared ``streamable``."""
    return Expectation(Outcome.DIFFERS, because)


def held(because: str) -> Expectation:
    """Under the net, the program asks for what a pipe has not, and so gets the file."""
    return Expectation(Outcome.WAITS, because)


#: What fails of a stream, or stops, waits.
HELD = held("")


def found_by_rehearsal(because: str) -> Expectation:
    """The program asks what it has open for its size or type, which is not held: only a run shows that it must not get
    a stream."""
    return Expectation(Outcome.DIFFERS, because)


def fails_in_rehearsal(because: str) -> Expectation:
    """The same, and it says an error."""
    return Expectation(Outcome.FAILS, because)


#: How a script is run; it is the last argument.
SHELL = ("sh", "-ec")
BASH = ("bash", "-ec")
PYTHON = ("python3", "-ISc")
PERL = ("perl", "-e")
NODE = ("node", "-e")


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """A program that reads ``$IN``, or (``stdin``) its standard input, and writes to its output or into its directory.

    ``needs`` are the executables that must be there; ``data`` names an entry of ``data.DATA``. What fails natively is a
    mistake in the table.
    """

    name: str
    script: str
    needs: tuple[str, ...]
    data: str = "words"
    interpreter: tuple[str, ...] = SHELL
    stdin: bool = False
    stream: Expectation = STREAMS
    gate: Expectation = STREAMS
    #: None: streams where a stream does, and else waits.
    net: Expectation | None = None


@dataclass(frozen=True, kw_only=True)
class Producer:
    """A program that writes the file ``out/FILE``, fed slowly by ``slow "$DATA/..."``; ``then`` reads it as ``$IN``.

    ``globs`` are more than one file where it writes several; ``closes`` is the N of ``on_close:N``. What is
    ``never_closed`` is committed when the producer ends, also under on_close.
    """

    name: str
    script: str
    needs: tuple[str, ...]
    file: str
    globs: tuple[str, ...] = ()
    data: str = "words"
    interpreter: tuple[str, ...] = SHELL
    then: str = 'cat "$IN"'
    closes: int = 1
    never_closed: bool = False
    stream: Expectation = STREAMS
    gate: Expectation = STREAMS


@dataclass(frozen=True, kw_only=True)
class Walker:
    """A program that reads the directory ``$IN``."""

    name: str
    script: str
    needs: tuple[str, ...]
    interpreter: tuple[str, ...] = SHELL
    update: Expectation = STREAMS
    no_update: Expectation = STREAMS


@dataclass(frozen=True, kw_only=True)
class Filler:
    """A program that writes the directory ``out/d``; its consumer lists it and reads all that is there."""

    name: str
    script: str
    needs: tuple[str, ...]
    data: str = "words"
    interpreter: tuple[str, ...] = SHELL
    update: Expectation = STREAMS
    no_update: Expectation = STREAMS


Program = Consumer | Producer | Walker | Filler


@dataclass(frozen=True)
class Limit:
    """A limit of an I/O task, so low that a program is paused in the middle of its work.

    ``rate`` is in bytes per second; ``storage``: what the kernel writes to the storage counts, else what system calls
    move, in either direction, through pipes, too, as in memory.
    """

    rate: int
    storage: bool


CALLS = Limit(500_000, storage=False)
STORAGE = Limit(150_000, storage=True)


@dataclass(frozen=True)
class Rule:
    """A commit rule with a way of delivery, and the kinds of programs that it is for."""

    name: str
    delivery: str  # fifo | stdin | gate | directory
    committed: str
    kinds: tuple[type, ...]
    mode: str = "update"
    #: Part of the tests; the others are run for the page only.
    tested: bool = True
    #: What the program, an I/O task, is held to.
    limit: Limit | None = None
    #: The input is not declared `streamable`.
    net: bool = False


RULES = (
    Rule("FIFO, on_termination", "fifo", "on_termination", (Consumer, Producer), tested=False),
    Rule("FIFO, on_close", "fifo", "on_close", (Consumer, Producer)),
    Rule("stdin, on_termination", "stdin", "on_termination", (Consumer,)),
    Rule("stdin, on_close", "stdin", "on_close", (Consumer,), tested=False),
    Rule("gate, on_termination", "gate", "on_termination", (Consumer, Producer), tested=False),
    Rule("gate, on_close", "gate", "on_close", (Consumer, Producer)),
    Rule("update, on_termination", "directory", "on_termination", (Filler,)),
    Rule("update, on_termination", "directory", "on_termination", (Walker,), tested=False),
    Rule("update, on_n_files", "directory", "on_n_files", (Walker,)),
    Rule("no_update, on_termination", "directory", "on_termination", (Walker, Filler), "no_update", tested=False),
    Rule("no_update, on_n_files", "directory", "on_n_files", (Walker,), "no_update"),
    Rule("net, FIFO", "fifo", "on_close", (Consumer,), tested=False, net=True),
    Rule("net, stdin", "stdin", "on_close", (Consumer,), tested=False, net=True),
    Rule("limited, FIFO", "fifo", "on_close", (Consumer,), tested=False, limit=CALLS),
    Rule("limited, stdin", "stdin", "on_close", (Consumer,), tested=False, limit=CALLS),
    Rule("limited, on_close", "gate", "on_close", (Producer,), tested=False, limit=CALLS),
    Rule("limited, on_termination", "directory", "on_termination", (Walker, Filler), tested=False, limit=CALLS),
    Rule("limited storage, on_close", "gate", "on_close", (Producer,), tested=False, limit=STORAGE),
    Rule("limited storage, on_termination", "directory", "on_termination", (Filler,), tested=False, limit=STORAGE),
)


@dataclass(frozen=True)
class Case:
    """A program under a rule."""

    program: Program
    rule: Rule

    def __str__(self) -> str:
        return f"{type(self.program).__name__} {self.program.name}, {self.rule.name}"

    @property
    def expected(self) -> Expectation:
        """The expectation of the table."""
        if isinstance(self.program, (Walker, Filler)):
            return self.program.no_update if self.rule.mode == "no_update" else self.program.update
        if self.rule.net and isinstance(self.program, Consumer):
            return self.program.net or (STREAMS if self.program.stream is STREAMS else HELD)
        return self.program.gate if self.rule.delivery == "gate" else self.program.stream


def applies(program: Program, rule: Rule) -> bool:
    """Whether a program can be run under a rule at all."""
    if isinstance(program, Consumer) and program.stdin != (rule.delivery == "stdin"):
        return False
    return isinstance(program, rule.kinds)


def cases(programs: tuple[Program, ...]) -> list[Case]:
    """Every program under every rule that applies to it."""
    return [Case(program, rule) for program in programs for rule in RULES if applies(program, rule)]
