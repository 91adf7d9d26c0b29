"""The example package of docs/plugins.md: installed as a user would, found by its entry point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stretto.config import own_plugins
from stretto.config.common import ConfigError
from stretto.config.scheduler_file import configuration_of
from stretto.model.shape import Shape
from stretto.placement.extension import OwnPlugin
from stretto.placement.kernel import Kernel
from stretto.snapshot.columns import Snapshot
from stretto.snapshot.delta import Delta, NodeChange, NodeRow

EXAMPLE = Path(__file__).parents[2] / "examples" / "licence-plugin"
WANTED = "example.com/licence"
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: stretto
    plugins: {multiPoint: {enabled: [{name: Licence, weight: 5}]}}
    pluginConfig: [{name: Licence, args: {forbidden: [maya]}}]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the installed package."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--target", folder, EXAMPLE]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def configuration(site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(site))
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONFIGURATION)
    yield configuration_of(path)
    sys.modules.pop("stretto_licence", None)


def node(number, **labels):
    allocatable = (("cpu", 4000), ("memory", 1 << 34), ("pods", 10))
    named = tuple(sorted((f"example.com/{key}", value) for key, value in labels.items()))
    row = NodeRow(name=f"n{number}", uid=f"u{number}", labels=named, allocatable=allocatable)
    return NodeChange(number + 1, row)


def shape(licence):
    return Shape("stretto", "default", labels=((WANTED, licence),), label_keys=(WANTED,))


def test_pods_go_where_their_licence_is_and_rather_to_old_hardware(configuration):
    snapshot = Snapshot()
    nodes = [
        node(0), node(1, licences="nuke", gen="1"), node(2, licences="nuke.houdini", gen="2"),
        node(3, licences="houdini", gen="5"),
    ]  # fmt: skip
    snapshot.apply(Delta(epoch=1, sequence=1, nodes=nodes))
    kernel = Kernel(snapshot, configuration.profiles)
    assert kernel.filter(shape("nuke")).tolist() == [False, True, True, False]
    assert kernel.place(shape("nuke"), 1, seed=1).rows == [1]
    assert kernel.place(shape("houdini"), 1, seed=1).rows == [2]
    message = "0/4 nodes are available: 4 node(s) didn't hold the licence."
    assert kernel.diagnose(shape("fusion")).message == message
    message = '0/4 nodes are available: licence "maya" is forbidden.'
    assert kernel.diagnose(shape("maya")).message == message
    assert len(kernel.place(Shape("stretto", "default"), 1, seed=1).rows) == 1
    assert configuration.profiles.label_keys == {WANTED}


def test_the_plugins_version_is_part_of_the_digest(configuration, monkeypatch, tmp_path):
    path = tmp_path / "scheduler.yaml"
    found, versions = own_plugins.installed()
    assert versions == "Licence=stretto-licence-plugin 0.1.0"
    newer = versions.replace("0.1.0", "0.2.0")
    monkeypatch.setattr("stretto.config.scheduler_file.installed", lambda: (found, newer))
    assert configuration_of(path).digest != configuration.digest


class FakeEntry:
    dist = None

    def __init__(self, name, loaded):
        self.name = name
        self.loaded = loaded

    def load(self):
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


class Mute(OwnPlugin):
    name = "Mute"


@pytest.mark.parametrize(
    ("name", "loaded", "words"),
    [
        ("Lost", ImportError("no such\nmodule"), "cannot be loaded: ImportError: no such module"),
        ("Text", "text", "is no subclass of OwnPlugin"),
        ("Other", Mute, "its class has another name"),
        ("Mute", Mute, "has neither mask, scores nor reject"),
        ("NodePorts", Mute, "the name is taken"),
    ],
)
def test_a_package_that_brings_no_usable_plugin_is_named(monkeypatch, name, loaded, words):
    entries = [FakeEntry(name, loaded)]
    monkeypatch.setattr(own_plugins, "entry_points", lambda group: entries)
    with pytest.raises(ConfigError, match=words):
        own_plugins.installed()
