"""Log records that say which workflow, hero, execution and step they are about."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from durable.store.rows import Claim


class TaggedLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry tags in front of the message and as attributes."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the tags to a record."""
        tags = dict(self.extra or {})
        kwargs["extra"] = {**tags, **(kwargs.get("extra") or {})}
        label = " ".join(f"{key}={value}" for key, value in tags.items() if value is not None)
        return f"[{label.replace('%', '%%')}] {msg}", kwargs


def logger_of(claim: Claim) -> TaggedLogger:
    """Return the logger of a running step."""
    return TaggedLogger(
        logging.getLogger(f"durable.{claim.name}"),
        {
            "workflow": claim.name,
            "workflow_id": str(claim.workflow_id),
            "hero_type": claim.hero_type,
            "hero_key": claim.hero_key,
            "execution_id": str(claim.execution_id),
            "step": claim.step,
        },
    )
