"""The bandwidth of a run: which jobs may use a storage when, how fast they move data, and what is measured of both."""

from __future__ import annotations

from streamflow_io.adapters.jobs import Listener
from streamflow_io.bandwidth.learned_windows import RememberedWindows
from streamflow_io.bandwidth.rates import Limits, Rates, storages_of_steps
from streamflow_io.bandwidth.requests import Requests
from streamflow_io.bandwidth.stream_rates import StreamRates, remembered_streams
from streamflow_io.bandwidth.windows import Windows
from streamflow_io.bandwidth.write_channels import WriteChannels
from streamflow_io.storage.learned_limits import RememberedLimits
from streamflow_io.storage.shared_storages import Meeting
from streamflow_io.storage.storage_admission import StorageAdmission

from .services import Services


class BandwidthOfRun:
    """Makes the parts of a run that have to do with bandwidth, and connects them.

    :ivar remembered: the limits that earlier runs have learned
    :ivar limits: which jobs are held to their storageBW
    :ivar streams: measures byte streams, and keeps them to the required bandwidth
    :ivar admission: keeps jobs back until their storage has room
    :ivar listeners: in the order in which they are told of jobs
    """

    def __init__(self, services: Services) -> None:
        plan, config, learned = services.plan, services.config, services.learned
        self.remembered = RememberedLimits(learned, plan.bandwidth.tools)
        windows, writes = Windows(), WriteChannels(services.storages, services.write)
        used = storages_of_steps(plan.annotations, plan.bandwidth.storages, config.storages)
        rates = Rates(
            plan.workflow,
            plan.annotations,
            config.limits and config.runtime != "off",
            windows,
            RememberedWindows(learned, plan.bandwidth.tools, used),
            lambda place, way: writes.left(self.admission.capacity(place, way), place, way),
            lambda step: self.admission.behind(step),
            services.jobs.find,
            services.more_jobs,
            services.write,
        )
        self.limits = Limits(services.storages, config.limits, rates)
        self.streams = StreamRates(
            config.limits,
            remembered_streams(learned, plan.annotations, plan.bandwidth.tools),
            services.jobs.find,
            services.write,
        )
        self.admission = StorageAdmission(
            services.context,
            config,
            services.storages,
            self.remembered,
            services.more_jobs,
            services.arrived,
            services.scheduler.wake,
            services.record,
            rates,
            Meeting(plan.workflow.name, config.storages, services.context.config.get("deployments", {}))
            if config.storages
            else None,
        )
        routes, delivered = (
            (*plan.graph.routes, *plan.graph.names),
            plan.graph.delivered if plan.service.streams else (),
        )
        requests = Requests(plan.workflow, plan.annotations, routes, delivered, windows, rates, services.write)
        self.listeners: tuple[Listener, ...] = (self.admission, rates, requests, self.streams, writes, self.limits)
