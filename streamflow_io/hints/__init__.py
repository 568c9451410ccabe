"""The hints that a user writes: models, parsing, inheritance, checks.

The `read_...` functions read files, and :mod:`~streamflow_io.hints.resolution`; everything else is pure. All mistakes
of a document are raised together, as :class:`HintErrors`.
"""

from .bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW, parse_storage_bw
from .commit import CommitKind, CommitRule, parse_commit_rule
from .config import SchedulerConfig, StorageConfig
from .errors import HintError, HintErrors, Level, Located, Source
from .globs import matches
from .inheritance import Annotations, StepAnnotations
from .models import (
    NAMESPACE,
    AnnotationsFile,
    Direction,
    FiringRule,
    Hint,
    IOTask,
    Start,
    StorageBandwidth,
    Streaming,
    StreamingRule,
)
from .rules import check_storages
from .yaml_files import parse_scheduler_config, read_annotations, read_scheduler_config, scheduler_config_source

__all__ = [
    "NAMESPACE",
    "Annotations",
    "AnnotationsFile",
    "AutoConstraint",
    "Bounds",
    "CommitKind",
    "CommitRule",
    "Direction",
    "FiringRule",
    "Hint",
    "HintError",
    "HintErrors",
    "IOTask",
    "Level",
    "Located",
    "SchedulerConfig",
    "Source",
    "Start",
    "StaticConstraint",
    "StepAnnotations",
    "StorageBW",
    "StorageBandwidth",
    "StorageConfig",
    "Streaming",
    "StreamingRule",
    "check_storages",
    "matches",
    "parse_commit_rule",
    "parse_scheduler_config",
    "parse_storage_bw",
    "read_annotations",
    "read_scheduler_config",
    "scheduler_config_source",
]
