"""Runs that are pushed to a server which answers as the Hugging Face Hub does, and loaded from it."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
import yaml
from hub_server import COMMIT, FakeHub, running_hub

from trainer_service import evaluate, load_from_hub, push_to_hub
from trainer_service.config import load_run_options
from trainer_service.config.run_options import EnvironmentSettings
from trainer_service.errors import UserError
from trainer_service.running.runs.checkpoint import load_checkpoint, plain_checkpoint
from trainer_service.running.runs.tensor_file import write_values

pytest.importorskip("huggingface_hub")
MLAGENTS_RUNS = Path(__file__).parents[2] / "mlagents_runs"
HOST, USER = "grace-workstation-7", "grace.hopper"
SHARED = {
    "README.md", "configuration.yaml", "config.json", "results.json", "metrics.jsonl", "run_logs/training_status.json",
    "Hybrid.onnx", "Hybrid/checkpoint.safetensors",
}  # fmt: skip


@pytest.fixture
def hub(
    processes: None, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FakeHub]:
    """The server, and a huggingface_hub that knows no other."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "huggingface_hub"]:
        monkeypatch.delitem(sys.modules, name)
    with running_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("huggingface")))
        monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield running


@pytest.fixture
def run(mlagents_style: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A run whose files hold the host's name, and paths in every setting that has one."""
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    home = tmp_path / USER
    home.mkdir()
    monkeypatch.chdir(home)
    said = mlagents_style(
        "record-demo", "sim:hybrid", "--policy=heuristic", "--episodes=2", "-o", home / "e.demo"
    )
    assert said.code == 0, said.err
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 32, "buffer_size": 128},
        "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
        "behavioral_cloning": {"demo_path": str(home / "e.demo"), "strength": 0.1},
        "max_steps": 600,
        "summary_freq": 200,
    }
    (home / "c.yaml").write_text(yaml.safe_dump({"behaviors": {"Hybrid": settings}}))
    said = mlagents_style(
        "learn", home / "c.yaml", "--env=sim:hybrid", "--run-id=hybrid", f"--results-dir={home / 'results'}",
        "--seed=3",
    )  # fmt: skip
    assert said.code == 0, said.err
    return home / "results" / "hybrid"


def private_words(run: Path) -> list[bytes]:
    return [word.encode() for word in (HOST, USER, str(run.parents[1]), "e.demo/", str(Path.home()) + "/")]


def test_what_is_pushed_is_the_allow_list_without_hosts_and_paths(hub: FakeHub, run: Path) -> None:
    (run / "notes.txt").write_text("for my eyes only")
    (run / "Hybrid" / "replay.npz").write_bytes(b"experience")
    shared = push_to_hub(run, "ada/hybrid", episodes=4)
    files = hub.files["ada/hybrid"]
    (events,) = [name for name in files if "tfevents" in name]
    assert set(files) == SHARED | {events} == set(shared.files)
    assert HOST.encode() in b"".join(path.name.encode() for path in (run / "Hybrid").iterdir())
    for name, content in files.items():
        for word in private_words(run):
            assert word not in content, (name, word)
            assert word.decode() not in name
    # The user agent and the like are no exception.
    assert not any(word in request for request in hub.received for word in private_words(run))
    assert hub.created[0]["name"] == "hybrid"
    assert "private" not in json.dumps(hub.created)
    assert hub.messages == ["Push to Hub"]


def test_the_card_and_the_results_are_those_that_readers_expect(hub: FakeHub, run: Path) -> None:
    push_to_hub(run, "ada/hybrid", episodes=6, private=True, commit_message="Mine")
    files = hub.files["ada/hybrid"]
    _, metadata, text = files["README.md"].decode().split("---\n", 2)
    card = yaml.safe_load(metadata)
    assert card["library_name"] == "ml-agents"
    assert card["tags"][:4] == [
        "Hybrid", "deep-reinforcement-learning", "reinforcement-learning", "ML-Agents-Hybrid",
    ]  # fmt: skip
    results = json.loads(files["results.json"])
    score = evaluate(run, episodes=6)["Hybrid"]
    assert results["mean_reward"] == pytest.approx(score.mean_return)
    assert (results["n_eval_episodes"], results["is_deterministic"]) == (len(score.returns), True)
    low, high = results["confidence_interval"]
    assert low <= results["mean_reward"] <= high
    (metric,) = card["model-index"][0]["results"][0]["metrics"]
    assert metric["type"] == "mean_reward"
    assert metric["value"] == f"{results['mean_reward']:.2f} +/- {results['std_reward']:.2f}"
    assert "# **ppo** Agent playing **Hybrid**" in text
    assert "mlagents-style load ada/hybrid" in text
    assert "mlagents-style export hybrid --bundle" in text
    assert json.loads(files["config.json"])["behaviors"]["Hybrid"]["trainer_type"] == "ppo"
    # As "private": true, or as "visibility": "private", by the version of the library.
    assert "private" in json.dumps(hub.created)
    assert hub.messages == ["Mine"]


def test_a_loaded_run_plays_initializes_and_resumes(
    hub: FakeHub, run: Path, mlagents_style: Callable[..., Any]
) -> None:
    push_to_hub(run, "ada/hybrid", episodes=4)
    loaded = load_from_hub("ada/hybrid", run_id="theirs", results_dir="results")
    assert (loaded.folder, loaded.commit, loaded.left_out) == (Path("results/theirs"), COMMIT, ())
    assert (
        evaluate(loaded.folder, episodes=4)["Hybrid"].returns == evaluate(run, episodes=4)["Hybrid"].returns
    )
    for flags in (["--run-id=mine", "--initialize-from=theirs"], ["--run-id=theirs", "--resume"]):
        said = mlagents_style(
            "learn", "c.yaml", "--env=sim:hybrid", *flags, "--set=behaviors.Hybrid.max_steps=1000"
        )
        assert said.code == 0, said.err
    assert load_checkpoint(Path("results/theirs/Hybrid/checkpoint.safetensors")).step >= 1000
    assert not list(Path("results").glob(".load-*"))


def test_only_with_state_do_optimizers_travel(hub: FakeHub, run: Path) -> None:
    for name, with_state in (("weights", False), ("state", True)):
        push_to_hub(run, f"ada/{name}", episodes=0, with_state=with_state)
        assert "results.json" not in hub.files[f"ada/{name}"]
    original = load_checkpoint(run / "Hybrid" / "checkpoint.safetensors").algorithm
    moments = {}
    for name in ("weights", "state"):
        loaded = load_from_hub(f"ada/{name}", results_dir="results").folder / "Hybrid/checkpoint.safetensors"
        algorithm = load_checkpoint(loaded).algorithm
        moments[name] = algorithm["optimizer"]["square"]
        assert torch.equal(algorithm["network"]["value.weight"], original["network"]["value.weight"])
        with safetensors.safe_open(loaded, "pt") as file:  # as other programs read it
            assert "algorithm.network.value.weight" in file.keys()  # noqa: SIM118
    assert torch.equal(moments["state"], original["optimizer"]["square"])
    assert not moments["weights"].any()
    assert original["optimizer"]["square"].any()


class Payload:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {Path.cwd() / 'executed'}",)


def pickles() -> Iterator[bytes]:
    """Payloads as pickle, and as files that torch.save writes."""
    yield pickle.dumps(Payload())
    file = io.BytesIO()
    torch.save({"Policy": Payload(), "global_step": 1}, file)
    yield file.getvalue()


def is_untouched(folder: Path) -> bool:
    return not (folder / "executed").exists() and not list(folder.rglob("checkpoint.*"))


@pytest.mark.parametrize("name", ["Hybrid/checkpoint.pt", "Hybrid/checkpoint.safetensors"])
def test_a_pickle_is_refused_and_executes_nothing(hub: FakeHub, workplace: Path, name: str) -> None:
    configuration = (MLAGENTS_RUNS / "soft" / "configuration.yaml").read_bytes()
    for content in pickles():
        hub.files["eve/trap"] = {"configuration.yaml": configuration, name: content}
        with pytest.raises(UserError, match="checkpoint"):
            load_from_hub("eve/trap")
        assert is_untouched(workplace)


@pytest.mark.parametrize(
    "name",
    ["../outside.onnx", "Hybrid/../../outside.onnx", "/tmp/outside", "a\\..\\b", "C:/x", "Hybrid//x", ""],
)
def test_a_name_that_leads_out_refuses_the_repository(
    hub: FakeHub, workplace: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    hub.files["eve/trap"] = {"Hybrid/checkpoint.safetensors": b"", name: b"malice"}
    with pytest.raises(UserError, match="could lead out of its folder"):
        load_from_hub("eve/trap")
    assert not hub.downloads
    assert not (workplace.parent / "outside.onnx").exists()


def test_a_configuration_that_would_start_a_program_loses_it(hub: FakeHub, run: Path) -> None:
    push_to_hub(run, "ada/hybrid", episodes=0)
    plain = yaml.safe_load(hub.files["ada/hybrid"]["configuration.yaml"])
    for number, env in enumerate(
        ("/bin/sh", "evil.x86_64", "gym:evil:Env-v0", "pettingzoo:evil", "sim:evil.py:Scene")
    ):
        plain["env_settings"] |= {"env_path": env, "env_args": ["-c", "touch executed"]}
        plain["behaviors"]["Hybrid"]["init_path"] = "/etc/passwd"
        plain["track"] = ["wandb"]
        hub.files["ada/hybrid"]["configuration.yaml"] = yaml.safe_dump(plain).encode()
        folder = load_from_hub("ada/hybrid", results_dir=f"results-{number}").folder
        loaded = yaml.safe_load((folder / "configuration.yaml").read_text())
        assert (loaded["env_settings"]["env_path"], loaded["env_settings"]["env_args"]) == (None, None)
        assert loaded["behaviors"]["Hybrid"]["init_path"] is None
        assert loaded["track"] == []


def test_numbers_that_cost_the_loader_are_not_taken_over(hub: FakeHub, run: Path) -> None:
    push_to_hub(run, "ada/hybrid", episodes=0)
    plain = yaml.safe_load(hub.files["ada/hybrid"]["configuration.yaml"])
    plain["env_settings"] |= {
        "num_envs": 5000, "num_areas": 10**9, "timeout_wait": 10**6, "max_lifetime_restarts": -1, "seed": 7,
        "restarts_rate_limit_n": -1, "restarts_rate_limit_period_s": 10**6, "picture_layout": "chw", "isolate": False,
    }  # fmt: skip
    plain["evaluation"] = {"every_steps": 1, "episodes": 10**9}
    costs = {"keep_checkpoints": 10**9, "checkpoint_interval": 1}
    plain["behaviors"]["Hybrid"] |= costs
    plain["default_settings"] = {"trainer_type": "ppo", **costs}
    hub.files["ada/hybrid"]["configuration.yaml"] = yaml.safe_dump(plain).encode()
    folder = load_from_hub("ada/hybrid", results_dir="results", run_id="theirs").folder
    options = load_run_options(folder / "configuration.yaml").options
    assert options.env_settings == EnvironmentSettings(env_path="sim:hybrid", picture_layout="chw", seed=7)
    assert options.evaluation is None
    for settings in (options.behaviors["Hybrid"], options.default_settings):
        assert settings is not None
        assert (settings.keep_checkpoints, settings.checkpoint_interval) == (5, 500_000)
    assert options.behaviors["Hybrid"].hyperparameters.batch_size == 32, "the lesson is as it was"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(
    hub: FakeHub, run: Path, tmp_path: Path, value: float
) -> None:
    push_to_hub(run, "ada/hybrid", episodes=0)
    checkpoint = load_checkpoint(run / "Hybrid" / "checkpoint.safetensors")
    checkpoint.algorithm["network"]["value.weight"].view(-1)[0] = value
    spoilt = tmp_path / "spoilt.safetensors"
    with spoilt.open("wb") as file:
        write_values(plain_checkpoint(checkpoint), file)
    hub.files["ada/hybrid"]["Hybrid/checkpoint.safetensors"] = spoilt.read_bytes()
    with pytest.raises(
        UserError, match=r"cannot use checkpoint .*: algorithm\.network\.value\.weight is NaN or infinite"
    ):
        load_from_hub("ada/hybrid", results_dir="results", run_id="theirs")
    assert not Path("results/theirs").exists()


def test_a_link_is_refused(hub: FakeHub, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push_to_hub(run, "ada/hybrid", episodes=0)
    from huggingface_hub import HfApi

    def link(self: Any, repo_id: str, name: str, *, local_dir: Path, **_: Any) -> None:
        (local_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (local_dir / name).symlink_to("/etc/passwd")

    monkeypatch.setattr(HfApi, "hf_hub_download", link)
    with pytest.raises(UserError, match="is no regular file"):
        load_from_hub("ada/hybrid", results_dir="results", run_id="theirs")
    assert not Path("results/theirs").exists()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (None, "not found; check its name"),
        ({"model.safetensors": b""}, "expected a run, found no configuration.yaml"),
        (
            {"configuration.yaml": b"behaviors: {}", "model.onnx": b""},
            "expected a checkpoint .* found 2 other files",
        ),
        ({"configuration.yaml": b"[1", "A/checkpoint.safetensors": b""}, "configuration.yaml"),
        ({"configuration.yaml": b"behaviors: {A: {}}", "A/checkpoint.safetensors": b""}, "is damaged"),
    ],
)
def test_a_repository_without_a_run_is_named(
    hub: FakeHub, workplace: Path, files: dict[str, bytes] | None, expected: str
) -> None:
    if files is not None:
        hub.files["ada/none"] = files
    with pytest.raises(UserError, match=expected):
        load_from_hub("ada/none")
    assert not Path("results/none").exists()


@pytest.mark.parametrize("repo_id", ["walker", "a/b/c", "../walker", "ada/", "ada/-walker", "https://x/y"])
def test_a_repository_must_be_named_fully(hub: FakeHub, workplace: Path, repo_id: str) -> None:
    with pytest.raises(UserError, match="expected USER/NAME"):
        load_from_hub(repo_id)
    assert not hub.received


def test_a_token_that_the_hub_refuses_is_named(
    hub: FakeHub, run: Path, mlagents_style: Callable[..., Any]
) -> None:
    hub.refuses_tokens = True
    said = mlagents_style("push", run, "--repo=ada/hybrid", "--no-evaluation")
    assert said.code == 2
    assert f"repository 'ada/hybrid' at {hub.endpoint}: " in said.err
    assert "log in with: hf auth login" in said.err
    assert "Traceback" not in said.err
