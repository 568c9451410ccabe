"""Workloads of the feature `schedules`."""

from .forecast import FORECAST

WORKLOADS = (FORECAST,)
