"""Where workflows are looked for: the first place that names a module decides."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durable import discovery, registry
from durable.errors import NoWorkflows
from durable.settings import Settings

WORKFLOW = """
from durable import Workflow, step

class {name}(Workflow, name="discovered.{name}"):
    @step
    def act(self):
        pass
"""


@pytest.fixture
def _nothing_loaded() -> Iterator[None]:
    """A process that has imported no workflow class yet."""
    before = registry.loaded()
    for name in before:
        registry.forget(name)
    yield
    for name, versions in before.items():
        for version, workflow_class in versions.items():
            registry.register(workflow_class, name, version)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _nothing_loaded: None) -> Iterator[Path]:
    """An empty working directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DURABLE_MODULES", raising=False)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for module in set(sys.modules) - before:
        del sys.modules[module]


@pytest.fixture
def module(folder: Path) -> Callable[[str], str]:
    """Write a module with one workflow class of the same name."""

    def write(name: str) -> str:
        (folder / f"{name}.py").write_text(WORKFLOW.format(name=name))
        return name

    return write


def name_in_pyproject(folder: Path, modules: str) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.durable]\nmodules = {modules}\n")


def name_in_entry_points(folder: Path, monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Install a package that names modules."""
    installed = folder / "site"
    about = installed / "shop-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    points = "".join(f"point{number} = {value}\n" for number, value in enumerate(values))
    (about / "entry_points.txt").write_text(f"[durable.workflows]\n{points}")
    monkeypatch.syspath_prepend(str(installed))


def discovered() -> set[str]:
    return {name.removeprefix("discovered.") for name in registry.loaded()}


def load(**settings: object) -> list[tuple[str, str]]:
    return [(source.module, source.origin) for source in discovery.load_workflows(Settings(**settings))]


def test_modules_of_the_settings_come_before_all_others(folder, module, monkeypatch):
    for name in ("flows_set", "flows_project", "flows_package"):
        module(name)
    name_in_pyproject(folder, '["flows_project"]')
    name_in_entry_points(folder, monkeypatch, "flows_package")

    assert load(modules=("flows_set",)) == [("flows_set", "DURABLE_MODULES or configure(modules=...)")]
    assert discovered() == {"flows_set"}


def test_modules_of_the_environment_are_names_with_commas_between(folder, module, monkeypatch):
    module("flows_one")
    module("flows_two")
    monkeypatch.setenv("DURABLE_MODULES", " flows_one, flows_two,")

    assert [name for name, _ in load()] == ["flows_one", "flows_two"]
    assert discovered() == {"flows_one", "flows_two"}


def test_the_nearest_pyproject_comes_before_the_entry_points(folder, module, monkeypatch):
    module("flows_project")
    module("flows_package")
    name_in_pyproject(folder, '["flows_project"]')
    name_in_entry_points(folder, monkeypatch, "flows_package")

    file = folder / "pyproject.toml"
    assert load() == [("flows_project", f"[tool.durable] modules in {file}")]
    assert discovered() == {"flows_project"}


def test_a_pyproject_is_looked_for_in_the_folders_above_too_and_the_nearest_one_decides(folder, module, monkeypatch):
    module("flows_outer")
    name_in_pyproject(folder, '["flows_outer"]')
    inner = folder / "src" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.syspath_prepend(str(folder))

    assert [name for name, _ in load()] == ["flows_outer"]

    (inner / "flows_inner.py").write_text(WORKFLOW.format(name="flows_inner"))
    name_in_pyproject(inner, '["flows_inner"]')
    assert [name for name, _ in load()] == ["flows_inner"]


def test_entry_points_of_installed_packages_come_last(folder, module, monkeypatch):
    module("flows_package")
    (folder / "pyproject.toml").write_text("[project]\nname = 'app'\n")
    name_in_entry_points(folder, monkeypatch, "flows_package")

    assert load() == [("flows_package", "entry point point0")]
    assert discovered() == {"flows_package"}


def test_an_entry_point_may_name_a_class_in_its_module(folder, module, monkeypatch):
    module("flows_package")
    name_in_entry_points(folder, monkeypatch, "flows_package:flows_package")

    load()

    assert discovered() == {"flows_package"}


def test_a_module_of_the_working_directory_is_found(folder, module):
    assert str(folder) not in sys.path

    load(modules=(module("flows_here"),))

    assert discovered() == {"flows_here"}


def test_nowhere_named_says_the_three_places(folder):
    with pytest.raises(NoWorkflows) as refused:
        load()
    for place in ("DURABLE_MODULES", "[tool.durable] modules", "durable.workflows"):
        assert place in str(refused.value)


@pytest.mark.parametrize("missing", ["flows_missing", "flows_missing.inner"])
def test_a_module_that_is_not_there_is_named_with_who_named_it(folder, missing):
    name_in_pyproject(folder, f'["{missing}"]')

    with pytest.raises(NoWorkflows, match=r"there is no module 'flows_missing', which \[tool\.durable\] modules in"):
        load()


def test_an_import_that_fails_inside_a_module_is_the_module_s_own_error(folder):
    (folder / "flows_broken.py").write_text("import no_such_dependency\n")

    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load(modules=("flows_broken",))


def test_a_module_without_workflows_is_named(folder):
    (folder / "flows_empty.py").write_text("")

    with pytest.raises(NoWorkflows, match="there is no workflow class in flows_empty"):
        load(modules=("flows_empty",))


@pytest.mark.parametrize("modules", ['"flows"', "[1]", "{}"])
def test_modules_in_a_pyproject_must_be_a_list_of_names(folder, modules):
    name_in_pyproject(folder, modules)

    with pytest.raises(NoWorkflows, match="must be a list of names"):
        load()


def test_a_pyproject_that_cannot_be_read_is_named(folder):
    (folder / "pyproject.toml").write_text("[tool.durable\n")

    with pytest.raises(NoWorkflows, match=r"pyproject\.toml cannot be read"):
        load()
