"""A guard that nothing from the wire or a file is ever run: the words for that are nowhere in the packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]

MODULES = ("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle")
"""They make objects of bytes, or run them."""

BUILTINS = ("eval", "exec", "compile", "__import__")

CALLS = (
    "torch.load",
    "torch.jit.load",
    "torch.hub.load",
    "torch.package.PackageImporter",
    "yaml.load",
    "yaml.load_all",
    "yaml.full_load",
    "yaml.full_load_all",
    "yaml.unsafe_load",
    "yaml.unsafe_load_all",
    "yaml.Loader",
    "yaml.FullLoader",
    "yaml.UnsafeLoader",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "runpy.run_path",
    "runpy.run_module",
)
LOADS = ("np.load", "numpy.load", "np.lib.npyio.NpzFile")


OF_THIS_PROGRAM = {
    "trainer_service/running/runs/archive.py: torch.load",  # weights alone, after a look at every name in the file
    "unity_bridge/programs/program_environment.py: cloudpickle",
    "unity_bridge/programs/program_environment.py: cloudpickle.dumps",
    "unity_bridge/programs/program_environment.py: pickle",
    "unity_bridge/simulators/objects.py: pickle",
}
"""An environment object goes from the user's program to a process that this program starts, by that process's standard
input. No file, message or command line leads there."""


def sources() -> list[Path]:
    return [
        path
        for package in ("unity_bridge", "trainer_service")
        for path in sorted((REPOSITORY / package).rglob("*.py"))
    ]


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a name with attributes; nothing of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def keyword(call: ast.Call, name: str) -> object:
    """A keyword's constant value; None where it is not given."""
    return next(
        (
            each.value.value
            for each in call.keywords
            if each.arg == name and isinstance(each.value, ast.Constant)
        ),
        None,
    )


def ways_to_run_code(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names if alias.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                found = [module, *(f"{module}.{alias.name}" for alias in names)]
                yield from (
                    name for name in found if name.partition(".")[0] in MODULES or name in CALLS + LOADS
                )
            case ast.Name(name) if name in BUILTINS:
                yield name
            case ast.Attribute() if dotted(node) in CALLS:
                yield dotted(node)
            case ast.Call(func) if dotted(func) in LOADS and keyword(node, "allow_pickle") is not False:
                yield f"{dotted(func)} without allow_pickle=False"
            case ast.Call() if keyword(node, "shell") not in (None, False):
                yield "shell=True"


def test_packages_cannot_run_what_they_read() -> None:
    assert len(sources()) > 200
    found = {
        f"{path.relative_to(REPOSITORY)}: {way}"
        for path in sources()
        for way in ways_to_run_code(path.read_text(encoding="utf-8"))
    }
    assert found == OF_THIS_PROGRAM


def test_torch_loads_weights_alone() -> None:
    source = (REPOSITORY / "trainer_service" / "running" / "runs" / "archive.py").read_text(encoding="utf-8")
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    loads = [call for call in calls if dotted(call.func) == "torch.load"]
    assert [keyword(call, "weights_only") for call in loads] == [True]
