"""The same as `periodic.fluid` in small steps of time, as simple as can be: what that is compared with."""

from __future__ import annotations

from streamflow_io.features.schedules.model import ApplicationSet
from streamflow_io.features.schedules.policies import Policy, State


def stepped(of: ApplicationSet, policy: Policy, seconds: float, step: float) -> list[float]:
    """MB that each application has moved; all begin at 0."""
    state, count = State(of), len(of.applications)
    computing = [one.work for one in of.applications]
    left = [one.volume for one in of.applications]
    rates: dict[int, float] = {}
    for number in range(round(seconds / step)):
        state.time = number * step
        active = [index for index in range(count) if computing[index] <= 0]
        active.sort(key=lambda index: (policy.key(index, state), state.ready[index], index))
        rates = {index: rate for index, rate in rates.items() if index in active and policy.whole}
        rest = of.platform.bandwidth - sum(rates.values())
        for index in active:
            if policy.whole and index not in rates and of.peaks[index] > rest + 1e-9:
                break
            if index not in rates and rest > 1e-9:
                rates[index] = min(rest, of.peaks[index])
                rest -= rates[index]
        if policy.shares and not policy.whole:
            rates = policy.share(active, state)
        for index, one in enumerate(of.applications):
            if computing[index] > 0:
                computing[index] -= step
                state.ready[index] = state.time + step
            else:
                left[index] -= rates.get(index, 0.0) * step
            if left[index] <= 0:
                # What was moved too much in this step belongs to the next instance, and so does the time for it.
                computing[index] = one.work + left[index] / rates[index]
                left[index] = one.volume
                state.ended[index] += 1
                state.worked[index] += one.work
                state.served[index] = state.time + step
                rates.pop(index)
    return [state.ended[index] * one.volume + one.volume - left[index] for index, one in enumerate(of.applications)]
