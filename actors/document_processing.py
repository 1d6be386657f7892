"""Document processing: a scan becomes text, figures and a summary."""

from __future__ import annotations

from actors.gateways import reader, summarizer
from actors.models import Document
from durable import ExceptionPolicy, Workflow, removed_step, step


class DocumentProcessing(Workflow[Document], queue="documents", version=2):
    """Read, analyze, summarize.

    A file that cannot be read (`UnreadableFile` is a `NonRetryable`) fails at once, everything else is tried for a
    while first.
    """

    policies = [ExceptionPolicy("reattempt", wait="1m", max_reattempts=10, terminal_action="fail")]

    @step
    def extract_text(self) -> None:
        self.hero.text = reader.read(self.hero.path)

    detect_language = removed_step()  # version 1 had it; documents that stand there go on with the next step

    @step(wait="5m")  # the search index gets to see the text first
    def analyze(self) -> None:
        words = self.hero.text.split()
        self.hero.analysis = {"words": len(words), "longest": max(words, key=len)}

    @step(wait="10m")
    async def summarize(self) -> None:
        self.hero.summary = await summarizer.summarize(self.hero.text)
