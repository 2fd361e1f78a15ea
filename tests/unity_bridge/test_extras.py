"""Messages name the command that installs an extra where the project was installed from."""

from __future__ import annotations

import pytest

from unity_bridge import extras


def test_in_a_checkout_the_extra_is_installed() -> None:
    assert extras.install_hint("watch") == 'pip install -e ".[watch]" (in a checkout of Trainer Service)'


def test_elsewhere_the_packages_of_the_extra_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [
        'starlette>=1; extra == "watch"',
        "uvicorn>=0.4 ; extra == 'watch'",
        'ray>=2; extra == "ray"',
        "numpy",
    ]
    monkeypatch.setattr(extras, "_IN_CHECKOUT", False)
    monkeypatch.setattr(extras.metadata, "requires", lambda name: listed)
    assert extras.install_hint("watch") == "pip install 'starlette>=1' 'uvicorn>=0.4'"
    assert extras.install_hint("none") == 'pip install -e ".[none]" (in a checkout of Trainer Service)'
