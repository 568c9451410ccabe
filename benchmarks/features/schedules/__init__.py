"""Workloads of the feature `schedules`."""

from .forecast import FORECAST
from .simulated import SCHEDULES

WORKLOADS = (FORECAST, SCHEDULES)
