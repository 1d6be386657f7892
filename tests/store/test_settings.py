"""Settings: from the call, else from the environment, checked."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError
from sqlalchemy import create_engine, text

from durable import NotConfigured, Settings
from durable.errors import DurableError
from durable.runtime import Runtime


def test_a_setting_comes_from_the_environment_unless_it_is_given(monkeypatch):
    monkeypatch.setenv("DURABLE_LOST_WORKER_AFTER", "1m30s")
    monkeypatch.setenv("DURABLE_MAX_CRASHES", "5")

    settings = Settings(max_crashes=7)

    assert (settings.lost_worker_after, settings.max_crashes) == (timedelta(seconds=90), 7)


@pytest.mark.parametrize(
    "wrong", [{"max_crashes": 0}, {"lost_worker_after": "soon"}, {"on_lost_worker": "shrug"}, {"nope": 1}]
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Settings(**wrong)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgres", "postgresql+psycopg2"])
def test_the_database_url_works_with_or_without_a_driver(runtime, scheme):
    url = runtime.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    other = Runtime(Settings(database_url=url.replace("postgresql://", f"{scheme}://")))

    with other.engine.connect() as conn:
        assert conn.exec_driver_sql("SELECT 1").scalar() == 1
    other.engine.dispose()


def test_without_a_database_the_error_says_how_to_name_one(monkeypatch):
    monkeypatch.delenv("DURABLE_DATABASE_URL", raising=False)
    with pytest.raises(NotConfigured, match=r"durable\.configure\(database_url=\.\.\.\)"):
        _ = Runtime(Settings()).engine


def test_an_engine_of_another_database_is_refused():
    with pytest.raises(DurableError, match="durable needs Postgres, not sqlite"):
        Runtime(Settings(), engine=create_engine("sqlite://"))


def test_a_password_is_not_shown():
    assert "secret" not in repr(Settings(database_url="postgresql://me:secret@host/db"))


def test_an_engine_made_from_a_url_gives_up_on_a_machine_that_is_gone_and_so_does_its_server(runtime):
    engine = Runtime(Settings(database_url=runtime.settings.database_url)).engine
    with engine.connect() as conn:
        server = {name: conn.scalar(text(f"SHOW {name}")) for name in ("tcp_keepalives_idle", "tcp_user_timeout")}
        client = conn.connection.driver_connection.info.get_parameters()
    engine.dispose()

    assert server == {"tcp_keepalives_idle": "10", "tcp_user_timeout": "25000"}
    assert (client["keepalives_idle"], client["tcp_user_timeout"]) == ("10", "25000")


def test_limits_in_the_url_stand(runtime):
    engine = Runtime(Settings(database_url=f"{runtime.settings.database_url}?keepalives_idle=77")).engine
    with engine.connect() as conn:
        client = conn.connection.driver_connection.info.get_parameters()
    engine.dispose()

    assert (client["keepalives_idle"], client["keepalives_count"]) == ("77", "3")
