"""Features beside the core. The core imports no feature, and works where the folder of one is missing.

A feature is a package in the folder `features`, with a module `feature`. There, `FEATURE` is an instance of a subclass
of :class:`Feature`. The core asks each feature through the methods of that class alone. Where the core has a class
whose methods do nothing, a feature can have a subclass of that class; the core asks for the subclass by
:func:`subclass_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TypeVar

from msgspec import Struct

_Class = TypeVar("_Class")
_PACKAGE = "streamflow_io.features"


class Subcommand(Struct, frozen=True):
    """A subcommand of `streamflow-io`, as `--help` shows it.

    :ivar text: what the subcommand does, in one line of a narrow terminal
    :ivar examples: of its arguments
    :ivar package: has a module with the name of the subcommand, which is imported when needed
    :ivar group: the title under which `--help` shows the subcommand
    """

    text: str
    examples: tuple[str, ...] = ()
    package: str = "streamflow_io.commands"
    group: str = "with other programs"


class Feature:
    """Answers what the core asks of a feature. Each method does nothing, unless a feature has its own.

    A method that is called before a run, or for `--help`, imports what it needs when it is called: the module `feature`
    itself imports nothing that takes time.
    """

    def commands(self) -> Mapping[str, Subcommand]:
        """The subcommands of the feature, by name."""
        return {}

    def runtimes(self) -> Mapping[str, str]:
        """The modules that choose what a node runtime serves, by the value of `runtime` in the scheduler's config."""
        return {}

    def subclasses(self) -> Mapping[str, str]:
        """The classes of the feature by the classes of the core that they extend, each as `module:name`."""
        return {}


@cache
def features() -> tuple[Feature, ...]:
    """All features that are installed, in the order of their names."""
    names = sorted(module.name for module in iter_modules(import_module(_PACKAGE).__path__) if module.ispkg)
    return tuple(import_module(f"{_PACKAGE}.{name}.feature").FEATURE for name in names)


def runtimes() -> Mapping[str, str]:
    """The modules of all node runtimes that features bring, by the value of `runtime`."""
    return {name: module for feature in features() for name, module in feature.runtimes().items()}


def missing(feature: str) -> str | None:
    """Why what needs a feature cannot be used. None: the feature is installed."""
    if any(type(each).__module__.startswith(f"{_PACKAGE}.{feature}.") for each in features()):
        return None
    return f"the feature {feature!r} is not in this installation: {_PACKAGE.replace('.', '/')}/{feature} is missing"


def subclass_of(core: type[_Class]) -> type[_Class]:
    """The class that extends a class of the core; the class of the core itself if no feature has one."""
    for feature in features():
        if (found := feature.subclasses().get(f"{core.__module__}:{core.__qualname__}")) is not None:
            module, _, name = found.partition(":")
            extended: type[_Class] = getattr(import_module(module), name)
            return extended
    return core
