"""Names of applications in a coordination configuration.

An application is a step, or an instance of a step that is scattered.
"""

from __future__ import annotations

import re

_INSTANCE = re.compile(r"-(\d+(?:\.\d+)*)\Z")
MAIN = "main"


def application_name(step: str, tag: str | None = None) -> str:
    """Name the application of a step: `/chromosome/individuals` is `chromosome.individuals`, `/` is `main`.

    :param step: a StreamFlow step path
    :param tag: the StreamFlow tag of an instance, as in `0.3`: `chromosome.individuals-0.3`
    """
    name = step.strip("/").replace("/", ".") or MAIN
    return name if tag is None else f"{name}-{tag}"


def step_of(application: str) -> tuple[str, str | None]:
    """The step path and the tag of an application, which :func:`application_name` has made a name of.

    A name is read as an instance if it ends like one. A `.` in a step's own name cannot be told apart from a
    subworkflow: look the step up among those of the workflow.
    """
    tag = None
    if (match := _INSTANCE.search(application)) is not None:
        tag, application = match[1], application[: match.start()]
    return ("/" if application == MAIN else "/" + application.replace(".", "/")), tag
