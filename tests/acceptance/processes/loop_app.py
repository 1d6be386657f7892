"""More workflows of these tests: steps that await."""

from __future__ import annotations

import asyncio
import threading

from durable import Workflow, step
from tests.acceptance.processes import app
from tests.acceptance.processes.app import Effect, Subject

__all__ = ["Loops", "app"]


class Loops(Workflow[Subject], name="loops"):
    """Steps that run on an event loop."""

    @step
    async def tell(self) -> str:
        """Tell where it runs."""
        await asyncio.sleep(0)
        thread = threading.current_thread()
        return f"{type(thread).__name__} {thread.ident} {id(asyncio.get_running_loop())}"

    @step(timeout="300ms", on_exception="skip")
    async def too_long(self) -> None:
        """Await for longer than it may."""
        self.session.add(Effect(workflow_id=self.id, step="too_long"))
        self.session.flush()
        await asyncio.sleep(600)
