"""The containers: what compose.yaml and the Dockerfile name exists, fits together and is configured as it should be."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import dramatiq.cli
import pytest
import typer
from sqlalchemy import make_url

from durable import durations
from durable.cli import app
from durable.schema import SCHEMA
from durable.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "compose"
OURS = {"migrate", "worker", "relay", "reaper"}
LAST_WORDS = durations.parse("5s")
"""What a worker needs to end after its grace: interrupted bodies, the last messages, its farewell."""


class Yaml:
    """Reads as much of YAML as compose.yaml uses: mappings, lists, JSON on one line, anchors and merges."""

    def __init__(self, text: str) -> None:
        without_comments = (re.sub(r"(^|\s)#.*", "", line).rstrip() for line in text.splitlines())
        self.lines = [line for line in without_comments if line]
        self.anchors: dict[str, Any] = {}

    def read(self) -> Any:
        """Return what the next lines say, as far as they are indented like the first of them."""
        depth = self.depth
        made = self._items(depth) if self.lines[0].lstrip().startswith("- ") else self._mapping(depth)
        assert self.depth < depth or not self.lines, f"{self.lines[0]!r} is out of line"
        return made

    @property
    def depth(self) -> int:
        return len(self.lines[0]) - len(self.lines[0].lstrip()) if self.lines else -1

    def _items(self, depth: int) -> list[Any]:
        made = []
        while self.depth == depth:
            made.append(self._scalar(self.lines.pop(0).strip().removeprefix("- ")))
        return made

    def _mapping(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while self.depth == depth:
            key, colon, rest = self.lines.pop(0).strip().partition(":")
            assert colon, f"{key!r} is no key"
            found = self._value(rest.strip(), depth)
            made = {**found, **made} if key == "<<" else {**made, key: found}
        return made

    def _value(self, word: str, depth: int) -> Any:
        if word and not word.startswith("&"):
            return self._scalar(word)
        found = self.read() if self.depth > depth else None
        if word:
            self.anchors[word[1:]] = found
        return found

    def _scalar(self, word: str) -> Any:
        if word.startswith("*"):
            return self.anchors[word[1:]]
        if word[0] in '["{':
            return json.loads(word)
        return int(word) if word.isdecimal() else {"true": True, "false": False}.get(word, word)


def read_dockerfile(text: str) -> list[tuple[str, str]]:
    """Return the instructions, each with its arguments."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    parts = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(word, rest.strip()) for word, _, rest in parts]


PAGE = (FOLDER / "README.md").read_text()
COMPOSE = Yaml((FOLDER / "compose.yaml").read_text()).read()
SERVICES = COMPOSE["services"]
DOCKERFILE = read_dockerfile((FOLDER / "Dockerfile").read_text())
FINAL = DOCKERFILE[max(place for place, (word, _) in enumerate(DOCKERFILE) if word == "FROM") :]


def arguments(word: str) -> list[str]:
    """Return the arguments of an instruction, in the stage that becomes the image."""
    return [rest for instruction, rest in FINAL if instruction == word]


[HEALTHCHECK] = re.findall(r"compose/healthcheck\.py (\S+)", "\n".join(arguments("COPY")))
"""Where the image has the script that tells whether a container is well."""


def commands() -> list[list[str]]:
    """Return every command that a container of ours runs, its health checks too."""
    found = [json.loads(arguments("CMD")[0])]
    for name in sorted(OURS):
        found.append(SERVICES[name]["command"])
        test = SERVICES[name].get("healthcheck", {}).get("test")
        if test:
            assert test[0] == "CMD"
            found.append(test[1:])
    return found


def variables() -> dict[str, str]:
    """Return the variables of the image and of the worker that are settings of durable, with their defaults."""
    of_image = dict(pair.split("=", 1) for rest in arguments("ENV") for pair in rest.split())
    return {
        name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value)
        for name, value in (of_image | SERVICES["worker"]["environment"]).items()
        if name.startswith("DURABLE_")
    }


@pytest.fixture
def settings(monkeypatch):
    """What a worker in its container makes of its variables."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"DURABLE_{name.upper()}", raising=False)
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    return Settings()


def durable_command(name: str) -> Any:
    group: Any = typer.main.get_command(app)
    return group.commands[name]


def test_the_services_are_those_that_are_needed():
    assert SERVICES.keys() == OURS | {"postgres", "valkey"}


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_is_understood(command):
    program, *words = command
    if program == "dramatiq":
        understood = dramatiq.cli.make_argument_parser().parse_args(words)
        assert (understood.broker, understood.processes) == ("durable.actors", 1)
        assert importlib.util.find_spec(understood.broker)
    elif program == "python":
        assert words[0] == HEALTHCHECK
        assert words[1:] == ["schema"]
    else:
        assert program == "durable"
        durable_command(words[0]).make_context(words[0], words[1:])


def test_every_variable_is_a_setting():
    assert {name.removeprefix("DURABLE_").lower() for name in variables()} <= Settings.model_fields.keys()


def test_workers_reach_the_services_and_leave_relay_and_reaper_to_them(settings):
    assert (settings.relay_in_workers, settings.reaper_in_workers) == (False, False)
    assert make_url(settings.database_url).host == "postgres"
    assert settings.redis_url.startswith("redis://valkey:6379/")
    assert settings.modules
    assert all(importlib.util.find_spec(module) for module in settings.modules)


def test_the_database_of_the_workers_is_the_one_that_postgres_makes(settings):
    url = make_url(settings.database_url)
    made = SERVICES["postgres"]["environment"]

    assert (url.username, url.database) == (made["POSTGRES_USER"], made["POSTGRES_DB"])
    assert url.username != SCHEMA
    assert made["POSTGRES_PASSWORD"] in SERVICES["worker"]["environment"]["DURABLE_DATABASE_URL"]


@pytest.mark.parametrize("name", sorted(OURS))
def test_whoever_waits_for_a_service_waits_for_what_will_be(name):
    waits = SERVICES[name]["depends_on"]

    assert waits.keys() <= SERVICES.keys() - {name}
    for other, how in waits.items():
        if how["condition"] == "service_completed_successfully":
            assert SERVICES[other]["restart"].startswith("on-failure")
        else:
            assert how["condition"] == "service_healthy"
            assert SERVICES[other]["healthcheck"]["test"][0] == "CMD"
    assert "postgres" in waits
    assert ("migrate" in waits) == (name != "migrate")


def test_a_worker_that_is_stopped_has_the_time_it_needs(settings):
    period = durations.parse(SERVICES["worker"]["stop_grace_period"])

    assert period >= settings.shutdown_grace + LAST_WORDS


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_port_is_open_to_other_machines(name):
    assert all(str(port).startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_data_outlives_the_containers():
    kept = {name: service["volumes"] for name, service in SERVICES.items() if "volumes" in service}

    # The images of Postgres from 18 on keep their data one folder higher than those before.
    assert kept == {"postgres": ["postgres:/var/lib/postgresql"], "valkey": ["valkey:/data"]}
    assert COMPOSE["volumes"].keys() == kept.keys()


def test_the_images_are_of_versions_that_are_known():
    assert {SERVICES[name]["image"] for name in ("postgres", "valkey")} == {"postgres:18", "valkey/valkey:9"}
    assert {rest.partition(" AS ")[0] for word, rest in DOCKERFILE if word == "FROM"} == {"python:3.13-slim"}


@pytest.mark.parametrize("name", sorted(OURS))
def test_all_processes_of_ours_are_of_one_image_that_is_built_from_here(name):
    build = SERVICES[name]["build"]

    assert SERVICES[name]["image"] == "durable"
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


def sources() -> list[str]:
    """Return what the image copies from here."""
    copies = [rest.split() for word, rest in DOCKERFILE if word == "COPY" and not rest.startswith("--from")]
    return [source for words in copies for source in words[:-1]]


@pytest.mark.parametrize("source", sources())
def test_what_the_image_copies_is_there_and_not_ignored(source):
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert (ROOT / source).exists()
    assert (ROOT / source).is_dir() == source.endswith("/")
    assert "*" in ignored
    assert f"!{source.rstrip('/')}" in ignored


def test_the_image_runs_as_nobody_special_and_can_be_stopped_and_looked_at():
    assert FINAL.index(("USER", "worker")) > max(place for place, (word, _) in enumerate(FINAL) if word == "RUN")
    assert any("useradd" in rest and rest.endswith(" worker") for rest in arguments("RUN"))
    assert arguments("STOPSIGNAL") == ["SIGTERM"]
    [check] = arguments("HEALTHCHECK")
    assert json.loads(check.partition("CMD ")[2]) == ["python", HEALTHCHECK]


def test_the_image_installs_what_the_lock_says():
    built = " ".join(rest for word, rest in DOCKERFILE if word == "RUN")

    assert "--constraint requirements.lock" in built
    assert "uv pip sync --python /venv --require-hashes runtime.lock" in built


def test_the_page_names_services_that_are_there():
    named = re.findall(r"docker compose (?:exec|logs --follow|run --rm -T|kill --signal \w+) (\w+)", PAGE)

    assert named
    assert set(named) <= SERVICES.keys()


@pytest.mark.parametrize("command", re.findall(r"exec \w+ durable (\w+)", PAGE))
def test_the_page_names_commands_that_are_there(command):
    assert durable_command(command)


def test_docker_compose_itself_understands_the_file():
    if not has_compose():
        pytest.skip("there is no docker compose on this machine")
    subprocess.run(["docker", "compose", "--file", FOLDER / "compose.yaml", "config", "--quiet"], check=True)


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
