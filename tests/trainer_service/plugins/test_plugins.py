"""Plugins as configurations name them: found, refused, broken, missing."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from installed_plugins import install, install_example, uninstall

from trainer_service.commands.doctor.plugins import plugins as doctors_findings
from trainer_service.config import (
    PPOSettings,
    TrainerSettings,
    json_schema,
    load_run_options,
    parse_run_options,
    plugins_in,
    refused_plugins,
)
from trainer_service.distributed.worker_process import WorkerFailure, WorkerProcess
from trainer_service.errors import ConfigError, UserError
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.callbacks import load_callback
from trainer_service.running.runs.checkpoint import parse_checkpoint, plain_checkpoint
from unity_bridge.errors import PluginError

ALGORITHMS = "trainer_service.algorithms"


def mistakes(behavior: dict[str, Any], **sections: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_run_options({"behaviors": {"Ball": behavior}, **sections})
    return list(refused.value.problems)


def offer(site: Path, text: str, name: str = "mine", distribution: str = "my-plugins") -> None:
    module = distribution.replace("-", "_")
    install(site, distribution, {ALGORITHMS: {name: f"{module}:PLUGIN"}}, {f"{module}.py": text})


GOOD = """
from trainer_service.config import PPOSettings
from trainer_service.plugins import AlgorithmPlugin
PLUGIN = AlgorithmPlugin(PPOSettings, "trainer_service.learning.algorithms:PPO", api=2)
"""


def test_a_name_of_a_plugin_is_a_trainer_type(site: Path) -> None:
    offer(site, GOOD)
    options = parse_run_options({"behaviors": {"Ball": {"trainer_type": "mine"}}}).options
    assert isinstance(options.behaviors["Ball"].hyperparameters, PPOSettings)
    assert plugins_in(options) == {"algorithms.mine": "my-plugins 0.1.0"}


def test_names_of_plugins_are_suggested_without_loading_them(site: Path) -> None:
    offer(site, "raise RuntimeError('loaded')", name="curly")
    install(site, "pictures", {"trainer_service.encoders": {"large_cnn": "nowhere:Encoder"}})
    install(site, "payers", {"trainer_service.reward_signals": {"kindness": "nowhere:PLUGIN"}})
    (said,) = mistakes({"trainer_type": "curli"})
    assert said.endswith("random, curly, got 'curli' (did you mean 'curly'?)")
    (said,) = mistakes({"network_settings": {"vis_encode_type": "larg_cnn"}})
    assert "did you mean 'large_cnn'?" in said
    (said,) = mistakes({"reward_signals": {"kindnes": {}}})
    assert said.endswith("unknown key (did you mean 'kindness'?)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("raise SystemExit('no')", "cannot be loaded: SystemExit: no"),
        ("raise SystemExit(0)", "cannot be loaded: SystemExit: 0"),
        ("import os; os._exit(0)", "cannot be loaded: OsExit: 0"),
        (r"raise RuntimeError('\x1b[31mred')", r"cannot be loaded: RuntimeError: \x1b[31mred"),
        ("import no_such_module", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("", "cannot be loaded: AttributeError: "),
        ("PLUGIN = 5", "expected an object of class AlgorithmPlugin, got 5"),
        (GOOD.replace("PPOSettings,", "int,"), "expected settings derived from Hyperparameters, got <class 'int'>"),
        (GOOD.replace("api=2", "api=3"), "written for version 3 of the plugin interfaces, this trainer has version 2: "
         "upgrade trainer-service"),
        (GOOD.replace("api=2", "api=1"), "written for version 1 of the plugin interfaces, this trainer has version 2: "
         "upgrade my-plugins"),
        (GOOD.replace("api=2", "api='two'"), "written for version 'two' of the plugin interfaces"),
    ],
)  # fmt: skip
def test_a_plugin_that_is_needed_and_broken_is_named(site: Path, text: str, said: str) -> None:
    offer(site, text)
    (problem,) = mistakes({"trainer_type": "mine"})
    assert "behaviors.Ball.trainer_type: trainer type 'mine' of my-plugins 0.1.0" in problem
    assert said in problem


@pytest.mark.parametrize("value", ["evil:", ":PLUGIN", "no module:PLUGIN", "\x1b[31m"])
def test_an_entry_point_that_names_no_object_is_refused(site: Path, value: str) -> None:
    install(site, "my-plugins", {ALGORITHMS: {"mine": value}, "trainer_service.callbacks": {"told": value}})
    (problem,) = mistakes({"trainer_type": "mine"})
    assert f"of my-plugins 0.1.0: expected an entry point MODULE:OBJECT, got {value!r}" in problem
    with pytest.raises(UserError, match=r"callback 'told' of my-plugins 0\.1\.0: expected an entry point"):
        load_callback("told")


@pytest.mark.parametrize("where", ["trainer_type", "factory"])
def test_a_plugin_that_changes_the_process_while_it_is_imported_changes_nothing(
    site: Path, where: str, spec_and_compute: Any
) -> None:
    change = "import os, numpy, torch\nos.chdir('/')\nnumpy.seterr(all='raise')\n"
    change += "torch.set_default_dtype(torch.float64)\n"
    before = os.getcwd(), np.geterr(), torch.get_default_dtype()
    if where == "factory":
        (site / "factories.py").write_text(change + "from trainer_service.learning.algorithms import PPO\n")
        offer(site, GOOD.replace("trainer_service.learning.algorithms:PPO", "factories:PPO"))
        make_learner(
            spec_and_compute[0], TrainerSettings.model_validate({"trainer_type": "mine"}), spec_and_compute[1]
        )
    else:
        offer(site, change + GOOD)
        parse_run_options({"behaviors": {"Ball": {"trainer_type": "mine"}}})
    assert (os.getcwd(), np.geterr(), torch.get_default_dtype()) == before


def test_a_factory_that_makes_no_learner_is_refused(site: Path, spec_and_compute: Any) -> None:
    offer(
        site, GOOD.replace('"trainer_service.learning.algorithms:PPO"', "lambda spec, settings, compute: 5")
    )
    settings = TrainerSettings.model_validate({"trainer_type": "mine"})
    with pytest.raises(PluginError, match=r"^trainer type 'mine': expected a Learner, got 5"):
        make_learner(spec_and_compute[0], settings, spec_and_compute[1])


def test_an_error_in_a_plugins_learner_is_named(site: Path, spec_and_compute: Any) -> None:
    text = "def make(spec, settings, compute):\n    return 1 / 0\n"
    offer(site, text + GOOD.replace('"trainer_service.learning.algorithms:PPO"', "make"))
    settings = TrainerSettings.model_validate({"trainer_type": "mine"})
    spec, compute = spec_and_compute
    with pytest.raises(UserError) as failed:
        Behavior("Ball", spec, settings, compute)
    assert str(failed.value) == (
        "behavior 'Ball': trainer type 'mine' of my-plugins 0.1.0 failed: ZeroDivisionError: division by zero "
        f"({site / 'my_plugins.py'}:2)"
    )


def test_a_built_in_name_stays_ours(site: Path) -> None:
    offer(site, "raise RuntimeError", name="ppo")
    options = parse_run_options({"behaviors": {"Ball": {}}}).options
    assert isinstance(options.behaviors["Ball"].hyperparameters, PPOSettings)
    assert plugins_in(options) == {}
    assert refused_plugins(options) == [
        "trainer type 'ppo' of my-plugins 0.1.0: refused, because trainer-service has a trainer type of this name "
        "itself"
    ]


def test_trainer_types_for_ml_agents_are_refused_by_name(site: Path) -> None:
    install(site, "their-a2c", {"mlagents.trainer_type": {"a2c": "their_a2c.trainer:get_type_and_setting"}})
    (problem,) = mistakes({"trainer_type": "a2c"})
    assert "'a2c' is offered by their-a2c 0.1.0 for ML-Agents' own trainer" in problem
    assert "docs/plugins.md" in problem


def test_the_schema_has_what_plugins_offer(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    install_example(site)
    offer(site, "1 / 0", name="broken")
    with caplog.at_level(logging.WARNING):
        schema = json_schema(plugins=True)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith("trainer type 'broken' of my-plugins 0.1.0 cannot be loaded: ZeroDivisionError")
    validate = jsonschema.Draft7Validator(schema)
    good = {"trainer_type": "a2c", "hyperparameters": {"beta": 0.1}, "reward_signals": {"effort": {}}}
    good["network_settings"] = {"vis_encode_type": "small_cnn"}
    assert not list(validate.iter_errors({"behaviors": {"Ball": good}}))
    for bad in (
        {"hyperparameters": {"epsilon": 0.1}},
        {"trainer_type": "broken"},
        {"reward_signals": {"x": {}}},
    ):
        assert list(validate.iter_errors({"behaviors": {"Ball": {**good, **bad}}}))
    assert "a2c" not in json_schema()["$defs"]["TrainerSettings"]["properties"]["trainer_type"]["enum"]


def test_the_distribution_of_a_missing_plugin_is_named(site: Path, spec_and_compute: Any) -> None:
    from trainer_service.running.runs.checkpoint import Checkpoint

    install_example(site)
    raw = {"behaviors": {"Ball": {"trainer_type": "a2c"}}}
    options = parse_run_options(raw).options
    used = plugins_in(options)
    assert used == {"algorithms.a2c": "example-plugin 0.1.0"}
    content = plain_checkpoint(Checkpoint("Ball", 5, spec_and_compute[0], options.behaviors["Ball"], {}))
    uninstall(site, "example-plugin")
    forget("a2c")
    assert mistakes(raw["behaviors"]["Ball"], plugins=used)[-1] == (
        "configuration: plugins.algorithms.a2c: is of example-plugin 0.1.0, which is not installed here"
    )
    with pytest.raises(
        UserError, match=r"algorithms\.a2c is of example-plugin 0\.1\.0, which is not installed here"
    ):
        parse_checkpoint(content, Path("checkpoint.safetensors"))


def test_a_run_that_is_resumed_remembers_its_plugins(site: Path, workplace: Path) -> None:
    (workplace / "results" / "run").mkdir(parents=True)
    (workplace / "results" / "run" / "configuration.yaml").write_text("plugins: {algorithms.gone: 'old 1.0'}")
    (workplace / "config.yaml").write_text("behaviors: {Ball: {trainer_type: gone}}")
    overrides = {"checkpoint_settings": {"run_id": "run", "resume": True}}
    for given, named in ((overrides, True), ({}, False)):
        with pytest.raises(ConfigError) as refused:
            load_run_options("config.yaml", given)
        said = "config.yaml: plugins.algorithms.gone: is of old 1.0, which is not installed here"
        assert (said in refused.value.problems) == named


def test_a_machine_of_a_cluster_without_the_plugin_is_named(site: Path) -> None:
    install_example(site)
    used = {"algorithms.a2c": "example-plugin 0.1.0", "callbacks.mine": "elsewhere 1.0"}
    assert isinstance(WorkerProcess(0).place(used), str)
    uninstall(site, "example-plugin")
    failure = WorkerProcess(0).place(used)
    assert isinstance(failure, WorkerFailure)
    assert failure.kind == "user"
    assert failure.message.endswith("algorithms.a2c is of example-plugin 0.1.0, which is not installed here")


def test_the_doctor_lists_what_was_found_and_what_failed(site: Path) -> None:
    install_example(site)
    offer(site, "1 / 0", name="broken")
    install(site, "their-a2c", {"mlagents.trainer_type": {"theirs": "nowhere:f"}})
    found = {finding.subject: finding for finding in doctors_findings()}
    kinds = ("trainer type 'a2c'", "picture encoder 'small_cnn'", "reward signal 'effort'", "callback 'best_return'",
             "environment scheme 'hotcold'", "tracker 'csv'")  # fmt: skip
    for kind in kinds:
        assert found[f"plugin {kind}"].verdict == "ok"
        assert found[f"plugin {kind}"].found == "example-plugin 0.1.0"
    broken = found["plugin trainer type 'broken'"]
    assert broken.verdict == "warn"
    assert "ZeroDivisionError" in broken.found
    assert "my-plugins" in broken.remedy
    assert "ML-Agents' own trainer" in found["plugin trainer type 'theirs'"].found


def forget(trainer_type: str) -> None:
    """Forgets a trainer type that was loaded, as a new process would."""
    from trainer_service.config import HYPERPARAMETERS

    del HYPERPARAMETERS[trainer_type]


@pytest.fixture
def spec_and_compute() -> Any:
    from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

    spec = BehaviorSpec((ObservationSpec("numbers", (3,)),), ActionSpec(1, (2,)))
    return spec, Compute(torch.device("cpu"), 1)
