from __future__ import annotations

import importlib.util
import sys
from importlib import metadata

import pytest

from trainer_service.commands.doctor import installation
from trainer_service.commands.doctor.report import Check, Finding
from trainer_service.learning.kernels import SLOW
from trainer_service.learning.kernels.compiled import check
from trainer_service.learning.kernels.compiled.library import CompiledLibrary, UnavailableError
from unity_bridge.simulators.schemes import SCHEMES


def declare(monkeypatch: pytest.MonkeyPatch, *requirements: str) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: list(requirements))


def dependencies() -> dict[str, Finding]:
    return {finding.subject: finding for finding in installation.dependencies()}


def test_this_python_will_do_and_others_will_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert installation.python().verdict == "ok"
    monkeypatch.setattr(sys, "version_info", (3, 10, 12, "final", 0))
    finding = installation.python()
    assert (finding.verdict, finding.found) == ("fail", "3.10.12")
    assert "expected 3.11 to 3.14" in finding.remedy


def test_what_is_installed_here_is_within_its_bounds() -> None:
    assert {finding.verdict for finding in installation.dependencies()} == {"ok"}


def test_a_dependency_out_of_bounds_is_told_with_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version("numpy")
    declare(monkeypatch, "numpy>=99,<100", "pydantic>=2")
    found = dependencies()
    assert found["numpy"].verdict == "fail"
    assert found["numpy"].found.startswith(f"{version}, expected ")
    assert "pip install 'numpy" in found["numpy"].remedy
    assert found["pydantic"].verdict == "ok"


def test_a_dependency_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, "no-such-distribution-here>=1")
    finding = dependencies()["no-such-distribution-here"]
    assert (finding.verdict, finding.found) == ("fail", "not installed, expected >=1")


def test_what_only_an_extra_needs_is_no_dependency(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(
        monkeypatch,
        'no-such-distribution-here>=1; extra == "gym"',
        'other-system-only; platform_system == "Amiga"',
        "numpy",
    )
    assert set(dependencies()) == {installation.DISTRIBUTION, "numpy"}


@pytest.mark.parametrize(
    ("scheme", "package"), [("gym", "gymnasium"), ("pettingzoo", "pettingzoo"), ("pettingzoo", "mpe2")]
)
def test_what_only_some_environments_need_may_be_missing(
    scheme: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metadata.version(package) in installation.environments(SCHEMES[scheme]).found
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    finding = installation.environments(SCHEMES[scheme])
    assert (finding.verdict, finding.found.split()[-2:]) == ("ok", ["not", "installed"])
    assert 'pip install -e ".[' in finding.remedy


def test_a_device_that_is_not_there_fails() -> None:
    assert installation.torch_device("cpu").verdict == "ok"
    finding = installation.torch_device("abacus")
    assert finding.verdict == "fail"
    assert "'abacus': expected cpu, cuda" in finding.found


def test_another_grpc_core_is_slower_but_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unity_bridge.transport.inbox.cygrpc", None)
    assert installation.grpc_server().verdict == "warn"


def test_the_compiled_kernel_is_named_or_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> None:
        raise UnavailableError("there is no C compiler")

    monkeypatch.setattr(check, "checked_library", lambda: CompiledLibrary("AVX2", None, None, None))
    assert installation.compiled_kernel().found == "for AVX2, equal to torch and faster"
    monkeypatch.setattr(check, "checked_library", unavailable)
    assert installation.compiled_kernel().found == "none: there is no C compiler"
    assert installation.compiled_kernel().verdict == "ok"
    monkeypatch.setenv(SLOW, "1")
    assert installation.compiled_kernel().verdict == "warn"


def test_a_look_that_breaks_is_a_finding_too() -> None:
    def broken() -> Finding:
        raise KeyError("surprise")

    (finding,) = Check("something", broken).findings()
    assert str(finding).startswith("fail  something: KeyError: 'surprise'; ")
