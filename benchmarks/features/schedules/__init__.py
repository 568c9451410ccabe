"""Workloads of the feature `schedules`."""

from streamflow_io.x.forecast import FORECAST
from streamflow_io.x.simulated import SCHEDULES

WORKLOADS = (FORECAST, SCHEDULES)
