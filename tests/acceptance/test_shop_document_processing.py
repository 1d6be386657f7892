"""A scan becomes text, figures and a summary."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from actors.document_processing import DocumentProcessing
from actors.gateways import ServiceDown, UnreadableFile, reader, summarizer
from actors.models import Document
from durable import Outcome
from durable.testing import assert_step_executed, assert_workflow_state, perform_next_step, speedrun
from tests.acceptance.conftest import due_in


@pytest.fixture
def document(shop, user):
    made = Document(user_id=user.id, path="lease.pdf")
    shop.add(made)
    shop.commit()
    return made


@pytest.fixture
def processing(shop, document):
    made = DocumentProcessing.create(document)
    shop.commit()
    return made


def test_a_document_is_read_analyzed_and_summarized(shop, document, processing):
    speedrun(processing)

    assert_workflow_state(processing, "finished")
    shop.refresh(document)
    assert document.text == "This is what lease.pdf says. It says it at length."
    assert document.analysis == {"words": 10, "longest": "lease.pdf"}
    assert document.summary == "This is what lease."


def test_each_step_gives_the_one_before_it_time(processing):
    waits = []
    while processing.state == "ready":
        waits.append(due_in(processing))
        perform_next_step(processing)

    assert waits == [timedelta(0), timedelta(minutes=5), timedelta(minutes=10)]


def test_an_unreadable_file_fails_at_once(processing):
    reader.will_raise(UnreadableFile("it is a cat"))
    speedrun(processing)

    assert_workflow_state(processing, "failed")
    assert assert_step_executed(processing, "extract_text", state="failed").attempt == 1


def test_trouble_is_met_with_patience(processing):
    summarizer.will_raise(ServiceDown("busy"), ServiceDown("busy"))
    speedrun(processing)

    assert_workflow_state(processing, "finished")
    assert assert_step_executed(processing, "summarize").attempt == 3


def test_patience_ends_after_ten_reattempts(processing):
    summarizer.go_down()
    speedrun(processing)

    assert_workflow_state(processing, "failed")
    assert assert_step_executed(processing, "summarize", state="failed").attempt == 11


def test_a_failed_document_is_processed_again_when_a_person_retries_it(shop, document, processing):
    reader.will_raise(UnreadableFile("it is a cat"))
    speedrun(processing)

    speedrun(processing.retry(by="ann", reason="a better scan is there"))

    assert_workflow_state(processing, "finished")
    shop.refresh(document)
    assert document.summary


def test_a_document_from_before_the_deploy_goes_on_after_the_step_that_is_gone(shop, durable, processing):
    perform_next_step(processing)
    with durable.engine.begin() as conn:
        conn.execute(text("UPDATE durable.workflows SET version = 1, step = 'detect_language'"))
        conn.execute(text("UPDATE durable.executions SET step = 'detect_language' WHERE state = 'scheduled'"))

    speedrun(processing)

    gone = assert_step_executed(processing, "detect_language", state="skipped")
    assert gone.outcome is Outcome.REMOVED
    assert_step_executed(processing, "analyze")
    assert_workflow_state(processing, "finished")
