"""Sets of periodic applications, at random."""

from __future__ import annotations

from hypothesis import strategies as st

from streamflow_io.features.schedules.model import Application, ApplicationSet, Platform


@st.composite
def application_sets(draw: st.DrawFn, most: int = 5) -> ApplicationSet:
    applications = tuple(
        Application(
            f"a{index}",
            draw(st.integers(1, 8)),
            draw(st.floats(0, 50)),
            draw(st.floats(1, 500)),
            draw(st.none() | st.floats(1, 40)),
        )
        for index in range(draw(st.integers(1, most)))
    )
    nodes = sum(one.nodes for one in applications)
    return ApplicationSet(Platform(nodes, 10, draw(st.floats(5, 100))), applications)
