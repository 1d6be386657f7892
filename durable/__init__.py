"""Workflows for Python that survive crashes, deploys and long waits."""

from __future__ import annotations

from durable import tables
from durable.association import workflow_of
from durable.creation import Created
from durable.errors import (
    AlreadyOngoing,
    ClaimLost,
    ClassNotLoaded,
    DurableError,
    HeroUnresolvable,
    InsideStep,
    InvalidDuration,
    InvalidHero,
    InvalidInput,
    InvalidTransition,
    NoBroker,
    NonRetryable,
    NotConfigured,
    NotJson,
    NoWorkflows,
    OutsideStep,
    SessionAborted,
    SessionMisused,
    StepConfigurationError,
    StepNotDefined,
    StepTimeout,
    WorkflowNotFound,
)
from durable.policies import ExceptionPolicy
from durable.runtime import configure
from durable.schema import metadata
from durable.settings import ErrorReport, Settings
from durable.states import ExecutionState, Outcome, WorkflowState
from durable.steps import cancel_if, on_exception, removed_step, step
from durable.store.rows import AuditEntry, Execution
from durable.worker import prepare_under_dramatiq
from durable.workflow import Workflow

__version__ = "0.1.0"

__all__ = [
    "AlreadyOngoing",
    "AuditEntry",
    "ClaimLost",
    "ClassNotLoaded",
    "Created",
    "DurableError",
    "ErrorReport",
    "ExceptionPolicy",
    "Execution",
    "ExecutionState",
    "HeroUnresolvable",
    "InsideStep",
    "InvalidDuration",
    "InvalidHero",
    "InvalidInput",
    "InvalidTransition",
    "NoBroker",
    "NoWorkflows",
    "NonRetryable",
    "NotConfigured",
    "NotJson",
    "Outcome",
    "OutsideStep",
    "SessionAborted",
    "SessionMisused",
    "Settings",
    "StepConfigurationError",
    "StepNotDefined",
    "StepTimeout",
    "Workflow",
    "WorkflowNotFound",
    "WorkflowState",
    "cancel_if",
    "configure",
    "metadata",
    "on_exception",
    "removed_step",
    "step",
    "tables",
    "workflow_of",
]

prepare_under_dramatiq()
