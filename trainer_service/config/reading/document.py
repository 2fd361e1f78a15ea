"""YAML files as plain values with their line numbers, so that messages can point at mistakes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trainer_service.config.reading.bundled import bundled_configs, is_bundled_name
from trainer_service.config.section import Location
from trainer_service.config.values import shown
from trainer_service.errors import ConfigError
from unity_bridge.names import nearest_choice

_LARGEST_FILE = 2**18
_MAX_VALUES = 10_000
_MAX_DEPTH = 50
_LONGEST_NUMBER = 100
"""Limit of the characters of scalars that are no texts: numbers, dates, flags."""
_MAPPING, _SEQUENCE, _TEXT, _MERGE = (f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "merge"))


@dataclass(frozen=True)
class Problem:
    """A message about one key of a configuration."""

    location: Location
    text: str
    line: int | None = None
    """Line, where the location alone does not tell it."""


@dataclass(frozen=True)
class Document:
    """The values of a file with their lines. A document without a file has no lines."""

    label: str
    """Name of the file in messages."""

    values: dict[str, Any]

    lines: dict[Location, int] = field(default_factory=dict)
    """Line of each key and list entry, counted from 1."""

    problems: tuple[Problem, ...] = ()
    """Mistakes that YAML itself would pass over: duplicate keys, keys that are not texts."""

    def known_part(self, location: Location) -> Location:
        """The longest beginning of ``location`` that the file contains."""
        while location and location not in self.lines:
            location = location[:-1]
        return location

    def line_of(self, problem: Problem) -> int | None:
        """The problem's line, or that of the nearest key above it that the file contains."""
        return problem.line or self.lines.get(self.known_part(problem.location))

    def at(self, problem: Problem) -> str:
        """``file:line: dotted.path: text``."""
        line = self.line_of(problem)
        where = self.label if line is None else f"{self.label}:{line}"
        path = f"{dotted(problem.location)}: " if problem.location else ""
        return f"{where}: {path}{problem.text}"


def dotted(location: Location) -> str:
    """``behaviors.Walker.max_steps``, ``curriculum[0].name``."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def read_document(path: Path, content: str = "'behaviors'") -> Document:
    """The YAML mapping in ``path``: a file, else the name of a bundled one. Raises ConfigError where there is none.

    content: the expected content of the mapping, in words.
    """
    if is_bundled_name(path) and not path.is_file():
        path = bundled_configs()[path.name].path
    document = _parsed(_read_text(path), str(path))
    if document.values is None:
        raise ConfigError(f"{path}: the file is empty; expected a mapping with {content}")
    if not isinstance(document.values, dict):
        raise ConfigError(f"{path}: expected a mapping with {content}, got {shown(document.values)}")
    return document


def read_value(text: str, label: str) -> Any:
    """The value of one setting, which is written as in a file. Raises ConfigError. label: its name in messages."""
    document = _parsed(text, label)
    if document.problems:
        raise ConfigError(*map(document.at, document.problems))
    return document.values


def _parsed(text: str, label: str) -> Document:
    """The document of a YAML text, whose values are of any type. Raises ConfigError."""
    try:
        loader = _Loader(text, label)
        builder, node = _Builder(label, loader), loader.get_single_node()
        values: Any = None if node is None else builder.build(node, ())
    except yaml.YAMLError as error:
        raise ConfigError(f"{_where(label, error, text)}: {_why(error)}") from None
    return Document(label, values, builder.lines, tuple(builder.problems))


def _read_text(path: Path) -> str:
    if os.path.isdir(path):  # False for a name that is too long
        raise ConfigError(f"{path}: expected a file, got a folder")
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        looked = f"looked for {path.absolute()}{_nearest_file(path)}"
        raise ConfigError(f"{path}: configuration file not found ({looked})") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _LARGEST_FILE:
        raise ConfigError(f"{path}: expected a configuration of at most {_LARGEST_FILE} bytes, got more")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}:{line}: not UTF-8 (byte 0x{data[error.start]:02x}); save the file as UTF-8"
        ) from None


def _where(label: str, error: yaml.YAMLError, text: str) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{label}:{error.problem_mark.line + 1}"
    if isinstance(error, yaml.reader.ReaderError) and isinstance(error.position, int):
        return f"{label}:{text.count(chr(10), 0, error.position) + 1}"
    return label


def dump_document(values: Mapping[str, Any], *, width: int = 80) -> str:
    """Returns values as YAML in their order. width: length from which a line may be broken."""
    text: str = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True, width=width)
    return text


def _nearest_file(missing: Path) -> str:
    """Suggests a YAML file beside a missing one, or a bundled one, as the end of a message; empty if none is alike."""
    beside = [each.name for ending in ("*.yaml", "*.yml") for each in missing.parent.glob(ending)]
    near = nearest_choice(missing.name, [*beside, *(Path(name).stem for name in beside)])
    file = next((name for name in beside if near in (name, Path(name).stem)), None)
    if file:
        return f"; did you mean {missing.with_name(file)}?"
    bundled = nearest_choice(missing.stem, bundled_configs())
    return (
        f"; a bundled one is called '{bundled}': give that name without folder and ending" if bundled else ""
    )


def _why(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        context = f" ({error.context})" if error.context else ""
        if "'\\t'" in (error.problem or ""):
            context += "; indent with spaces"
        return f"not valid YAML: {error.problem}{context}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"not valid YAML: {error.reason}"
    return f"not valid YAML: {error}"


class _Loader(yaml.SafeLoader):
    """PyYAML's loader with limits of depth and size; its own time is quadratic in open brackets."""

    def __init__(self, text: str, label: str) -> None:
        super().__init__(text)
        self._label = label
        self._depth = 0
        self._nodes = 0

    def fetch_flow_collection_start(self, token_type: type) -> None:
        if self.flow_level > _MAX_DEPTH:
            raise self._refusal(self.get_mark())
        super().fetch_flow_collection_start(token_type)

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._nodes += 1
        self._depth += 1
        if self._nodes > _MAX_VALUES or self._depth > _MAX_DEPTH + 1:
            raise self._refusal(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _refusal(self, mark: yaml.Mark) -> ConfigError:
        return _too_much(self._label, mark)


def _too_much(label: str, mark: yaml.Mark) -> ConfigError:
    return ConfigError(
        f"{label}:{mark.line + 1}: more than {_MAX_VALUES} values or {_MAX_DEPTH} levels; "
        "do aliases (*name) multiply, or contain themselves?"
    )


class _Builder:
    """A builder of values from YAML nodes.

    Not PyYAML's own constructor, because that keeps the last of duplicate keys silently and forgets the
    lines. An alias is built again wherever it is used, so the number of values is bounded.
    """

    def __init__(self, label: str, loader: yaml.SafeLoader) -> None:
        self.lines: dict[Location, int] = {}
        self.problems: list[Problem] = []
        self._label = label
        self._loader = loader
        self._values = 0

    def build(self, node: Node, location: Location) -> Any:
        self._count(node, len(location))
        if isinstance(node, MappingNode) and node.tag == _MAPPING:
            return self._build_mapping(node, location)
        if isinstance(node, SequenceNode) and node.tag == _SEQUENCE:
            return [self._build_at(child, child, (*location, i)) for i, child in enumerate(node.value)]
        return self._build_scalar(node)

    def _count(self, node: Node, depth: int) -> None:
        self._values += 1
        if self._values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise _too_much(self._label, node.start_mark)

    def _build_at(self, marked: Node, node: Node, location: Location) -> Any:
        self.lines[location] = _line(marked)
        return self.build(node, location)

    def _build_scalar(self, node: Node) -> Any:
        try:
            if node.tag != _TEXT and self._is_too_much(node):
                raise ValueError
            return self._loader.construct_object(node, deep=True)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
            # what PyYAML happens to raise for a date such as 2001-99-99, or for '!!int' and '!!bool' of anything
            kind = node.tag.rsplit(":", 1)[-1]
            raise ConfigError(
                f"{self._label}:{_line(node)}: {shown(node.value)} is not of type {kind}"
            ) from None

    def _is_too_much(self, node: Node) -> bool:
        """Whether a node is a number of too many digits, or a set or the like: their parts are not counted."""
        if isinstance(node, ScalarNode):
            return len(node.value) > _LONGEST_NUMBER
        return node.tag in self._loader.yaml_constructors

    def _build_mapping(self, node: MappingNode, location: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in self._own_entries(node, location):
            values[key_node.value] = self._build_at(key_node, value_node, (*location, key_node.value))
        for key_node, value_node in self._merged_entries(node, depth=len(location)):
            if key_node.value not in values:
                values[key_node.value] = self._build_at(key_node, value_node, (*location, key_node.value))
        return values

    def _own_entries(self, node: MappingNode, location: Location) -> Iterator[tuple[Node, Node]]:
        """Yields entries with text keys, each key once; reports the others."""
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                continue
            key, line = self.build(key_node, location), _line(key_node)
            if not isinstance(key, str):
                text = f"a key must be a text, got {shown(key)}; put it in quotes"
                self.problems.append(Problem(location, text, line))
            elif key in first:
                text = f"duplicate key, already given on line {first[key]}"
                self.problems.append(Problem((*location, key), text, line))
            else:
                first[key] = line
                yield key_node, value_node

    def _merged_entries(self, node: MappingNode, depth: int) -> Iterator[tuple[Node, Node]]:
        """Yields the entries that ``<<: *name`` merges, nearest first; a key may come more than once."""
        for key_node, value_node in node.value:
            if key_node.tag != _MERGE:
                continue
            for source in value_node.value if isinstance(value_node, SequenceNode) else [value_node]:
                self._count(key_node, depth)
                if not isinstance(source, MappingNode):
                    raise ConfigError(f"{self._label}:{_line(key_node)}: '<<' expected a mapping to merge")
                yield from ((key, value) for key, value in source.value if key.tag == _TEXT)
                yield from self._merged_entries(source, depth + 1)


def _line(node: Node) -> int:
    line: int = node.start_mark.line
    return line + 1
