"""The scheduler's config in the StreamFlow file, as models."""

from __future__ import annotations

import posixpath
from itertools import combinations
from typing import Annotated, Literal

from pydantic import (
    Field,
    PlainValidator,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from streamflow_io.grouping import grouped
from streamflow_io.installed_features import missing, runtimes
from streamflow_io.wording import shortened

from .bandwidth import HIGHEST
from .commit import MOST
from .fields import ALLOWED_LIMIT, Model, Text, mistake, parse_limit, parsed_by
from .models import Direction


def _one_mistake(allowed: str) -> WrapValidator:
    """Return a validator that reports one mistake for a union, where pydantic reports one for each member."""

    def validated(value: object, validate: ValidatorFunctionWrapHandler) -> object:
        try:
            return validate(value)
        except ValidationError:
            raise mistake(f"{shortened(repr(value))} is not allowed", allowed) from None

    return WrapValidator(validated)


# Runtimes of features that may be missing.
_FEATURES = ("capio",)


def _runtime(value: object) -> object:
    known = ("embedded", *runtimes(), "off")
    if value in known:
        return value
    message = f"{shortened(repr(value))} is not allowed"
    if value in _FEATURES:
        message = missing(str(value)) or message
    raise mistake(message, f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}")


Runtime = Annotated[
    str,
    PlainValidator(_runtime),
    WithJsonSchema({"enum": ["embedded", *_FEATURES, "off"], "type": "string"}),
]
BandwidthOf = Annotated[float, Field(strict=True, gt=0, le=HIGHEST, allow_inf_nan=False)]
ReadersOf = Annotated[StrictInt, Field(ge=1, le=64), _one_mistake("a whole number, 1 to 64")]


DiskLimitOf = Annotated[int, parsed_by(parse_limit, ALLOWED_LIMIT), WithJsonSchema({"type": "string"})]


class StorageConfig(Model):
    """A device or file system with a bandwidth."""

    name: Text = Field(description="the name that hints use")
    deployment: Text | None = Field(
        None, description="the deployment with this storage, also as the host of containers (default: all deployments)"
    )
    path: Text = Field(description="an absolute path: all files below the path are on this storage")
    scope: Literal["shared", "node"] = Field(
        "shared", description="shared (default): one storage for all locations; node: one storage per node"
    )
    write: BandwidthOf | None = Field(
        None, description="write bandwidth: a number of MB/s above 0, up to 10^12, without a unit"
    )
    read: BandwidthOf | None = Field(
        None,
        description="read bandwidth: a number of MB/s above 0, up to 10^12, without a unit. If only one of "
        "`read` and `write` is given, that one holds for both",
    )

    readers: ReadersOf | None = Field(
        None,
        description="the number of chunks that read sessions read at the same time: a whole number, 1 to 64 "
        "(default: 4)",
    )

    share: Text | None = Field(
        None,
        description="the runs that share the bandwidth: mine (default), all runs of this user; off, no other "
        "run; or an absolute directory that `streamflow-io storage share` has made. Always off with `scope: node`",
    )

    @field_validator("path", mode="after")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if not path.startswith("/"):
            raise mistake(f"{path!r} is not absolute", "an absolute path")
        return path

    @field_validator("share", mode="after")
    @classmethod
    def _shared(cls, share: str | None) -> str | None:
        if share not in (None, "mine", "off") and not posixpath.isabs(share):
            raise mistake(f"{share!r} is no absolute path", "mine, off, an absolute directory")
        return share

    @model_validator(mode="after")
    def _one_for_all(self) -> StorageConfig:
        if self.scope == "node" and self.share not in (None, "off"):
            raise mistake(f"storage {self.name!r} is not shared: scope: node", "off")
        return self

    @model_validator(mode="after")
    def _some_bandwidth(self) -> StorageConfig:
        if self.write is None and self.read is None:
            raise mistake(f"storage {self.name!r} has no bandwidth", "write, read or both, in MB/s")
        return self

    @property
    def shared_with(self) -> str:
        """With which runs the bandwidth is shared: `mine`, `off`, or a directory."""
        return "off" if self.scope == "node" else self.share or "mine"

    def bandwidth(self, direction: Direction) -> float:
        """Return the bandwidth in MB/s in one direction; for `both`, the lower of the two."""
        given = [limit for limit in (self.write, self.read) if limit is not None]
        limit = {"write": self.write, "read": self.read, "both": min(given)}[direction]
        return limit if limit is not None else given[0]


_ANNOTATIONS = (
    "the path of an annotations file, relative to the StreamFlow file; or a path for each workflow, by its name"
)


AnnotationsOf = Annotated[Text | Annotated[dict[str, Text], Field(min_length=1)], _one_mistake(_ANNOTATIONS)]


class SchedulerConfig(Model):
    """`config` of the scheduler of type `sfio.io-aware` in the StreamFlow file."""

    annotations: AnnotationsOf | None = Field(None, description=_ANNOTATIONS)
    storages: tuple[StorageConfig, ...] = Field((), description="a list of storages")
    io_executors: StrictInt | None = Field(
        None,
        alias="ioExecutors",
        ge=1,
        le=MOST,
        description="a whole number from 1, below 10^9: the most I/O tasks at once on one location (default: 4 x "
        "cores)",
    )
    oversubscribe: Literal["idle", "gangs", "never"] = Field(
        "idle",
        description="idle (default): streaming consumers may exceed the cores, and other jobs may use the cores "
        "of waiting jobs; gangs: only streaming consumers may exceed the cores; never: no job may",
    )
    streaming: Literal["hints", "auto"] = Field(
        "hints",
        description="hints (default): inputs stream as hints and `streamable` declare; auto: inputs that were "
        "proven on your own data stream, too",
    )
    rehearse: Literal["idle", "wait", "never"] = Field(
        "idle",
        description="idle (default): tools run once more on idle cores, and the outputs are compared. The "
        "comparison verifies declared streams, and with `streaming: auto` proves other inputs. wait: the run also "
        "waits at its end for these trials; never: no tool runs once more",
    )
    declarations: Literal["recover", "strict"] = Field(
        "recover",
        description="the reaction to a job that fails with an input declared `streamable`: recover (default): "
        "the job runs again with the complete file, and later runs do not stream that input; strict: the job has "
        "failed",
    )
    learned: Text | None = Field(
        None, description="the file with learned facts (default: `learned.db` in your data directory)"
    )
    limits: StrictBool = Field(
        True,
        description="true (default): `limited` and `required` limit how fast data moves; false: they only measure",
    )
    runtime: Runtime = Field("embedded", description="embedded (default), capio or off")
    containers: Literal["on", "off"] = Field(
        "on", description="on (default): steps in containers stream, too; off: they run as with plain StreamFlow"
    )
    observe: StrictBool = Field(
        False,
        description="true: the run records how each job uses its files, for `streamflow-io suggest`; false (default)",
    )
    tls: StrictBool = Field(
        False,
        description="true: byte streams between hosts (SSH or an allocation) are encrypted by TLS 1.3; false (default)",
    )
    intermediates: Literal["keep", "remove", "window"] = Field(
        "keep",
        description="keep (default): files of jobs stay in the work directories; remove: each file goes when no job "
        "needs it any more, unless it is a result of the workflow or its rule has `permanent: true`; window: also, "
        "what byte streams have read of a file goes while the job still writes",
    )
    disk_limit: DiskLimitOf | None = Field(
        None,
        alias="diskLimit",
        description="the most in the directories of jobs, as in 500GB, with `intermediates: remove` or `window`. Nodes "
        "that share a work directory have one limit together, other nodes have one each",
    )
    memory: DiskLimitOf | None = Field(
        None,
        description="the most in /dev/shm of each node, as in 8GB, with `intermediates: remove` or `window`",
    )
    session_window: StrictInt | None = Field(
        None,
        alias="sessionWindow",
        ge=1,
        le=MOST,
        description="a whole number of MB from 1, below 10^9: the most that a read session reads ahead. The "
        "default is a quarter of the free memory, at most 2048, and at most half of the cgroup's limit",
    )
    retry_delay: StrictInt | None = Field(
        None,
        le=MOST,
        description="seconds, below 10^9, between attempts to schedule a job, as in StreamFlow's default scheduler",
    )

    @field_validator("storages", mode="after")
    @classmethod
    def _different(cls, storages: tuple[StorageConfig, ...]) -> tuple[StorageConfig, ...]:
        for name, named in grouped(storages, lambda storage: storage.name).items():
            if len(named) > 1:
                raise mistake(f"two storages are named {name!r}", "a different name for each storage")
        for alike in grouped(storages, lambda storage: posixpath.normpath(storage.path)).values():
            for one, other in combinations(alike, 2):
                if one.deployment == other.deployment or None in (one.deployment, other.deployment):
                    message = f"storages {one.name!r} and {other.name!r} have one path, {one.path!r}"
                    raise mistake(message, "a path, or a deployment, of its own for each storage")
        return storages

    @field_validator("disk_limit", "memory", mode="after")
    @classmethod
    def _with_removal(cls, limit: int | None, info: ValidationInfo) -> int | None:
        if limit is not None and info.data.get("intermediates", "remove") == "keep":
            raise mistake("it has no effect with `intermediates: keep`", "`intermediates: remove` or `window`")
        return limit

    @model_validator(mode="after")
    def _of_files(self) -> SchedulerConfig:
        if self.intermediates != "keep" and self.runtime not in ("embedded", "off"):
            what = f"`intermediates: {self.intermediates}`"
            raise mistake(f"{what} does not work with `runtime: {self.runtime}`", "keep")
        return self

    def annotations_of(self, workflow: str) -> str | None:
        """Return the annotations file of a workflow, as written in the config. None: no such file."""
        return self.annotations.get(workflow) if isinstance(self.annotations, dict) else self.annotations
