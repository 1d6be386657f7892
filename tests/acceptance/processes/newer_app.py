"""The application of these tests one deploy later: it has a class that workers of the deploy before do not know."""

from __future__ import annotations

from durable import Workflow, step
from tests.acceptance.processes.app import Effect, Subject


class Newcomer(Workflow[Subject], name="newcomer"):
    """Two steps, each of which writes one effect."""

    @step
    def first(self) -> None:
        self.session.add(Effect(workflow_id=self.id, step="first"))

    @step
    def second(self) -> None:
        self.session.add(Effect(workflow_id=self.id, step="second"))
