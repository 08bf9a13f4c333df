"""Reads YAML that people write: within bounds, with the line of each value, and without a name that is given twice."""

from dataclasses import dataclass
from typing import Any

import yaml

YamlPath = tuple[str | int, ...]  # where a value stands in the document: names of fields, and positions in lists


@dataclass(frozen=True, slots=True)
class YamlBounds:
    """How deep a document may be nested, how many values and aliases it may have, and how many values what an anchor
    names."""

    depth: int
    nodes: int
    aliases: int
    shared: int = 64


class YamlFault(ValueError):
    """A document cannot be used; the message says in which line and why."""


class YamlOutline:
    """What a document is made of, as its parser tells it before anything is built: from a thousand bytes a document
    could be built that is nested without end, or that has millions of parts by aliases of aliases."""

    def __init__(self, bounds: YamlBounds) -> None:
        self._bounds = bounds
        self._depth = self._nodes = self._aliases = 0
        self._shared: tuple[int, int] | None = None  # the depth of what an anchor names, and the node that it begins at
        self._lines: list[int] = []

    def read(self, text: bytes | str) -> list[int]:
        """Returns the lines at which the entries of the list begin, from 1. Raises YamlFault where a bound is passed,
        and YAMLError."""
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
                self._node(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._depth -= 1
                if self._shared is not None and self._depth == self._shared[0]:
                    self._shared = None
        return self._lines

    def _alias(self, event: yaml.AliasEvent) -> None:
        self._count(event)
        self._aliases += 1
        if self._aliases > self._bounds.aliases:
            raise _beyond(event, f"it has more than {self._bounds.aliases} aliases")
        if self._shared is not None:
            raise _beyond(event, "what an anchor names must hold no alias")

    def _node(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        self._count(event)
        if event.tag is not None:
            raise _beyond(event, f"the tag {event.tag[:64]!r} is of no use here: leave it out")
        begins = isinstance(event, yaml.CollectionStartEvent)
        if event.anchor is not None and begins and self._shared is None:
            self._shared = self._depth, self._nodes
        if begins:
            self._depth += 1
            if self._depth > self._bounds.depth:
                raise _beyond(event, f"it is nested more than {self._bounds.depth} deep")

    def _count(self, event: yaml.NodeEvent) -> None:
        self._nodes += 1
        if self._depth == 1:
            self._lines.append(_line(event))
        if self._nodes > self._bounds.nodes:
            raise _beyond(event, f"it has more than {self._bounds.nodes} values")
        if self._shared is not None and self._nodes - self._shared[1] > self._bounds.shared:
            raise _beyond(event, f"what an anchor names has more than {self._bounds.shared} values")


def _beyond(event: yaml.NodeEvent, reason: str) -> YamlFault:
    return YamlFault(f"line {_line(event)}: {reason}")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


class YamlDocument:
    """A document as plain Python values, with the line of each value for error messages."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._lines: dict[YamlPath, int] = {}
        self._written: dict[YamlPath, str] = {}
        self._values: dict[int, Any] = {}  # by the id of a node, because a YAML alias has the value of its anchor

    def fault(self, path: YamlPath, problem: str) -> ValueError:
        """Returns the error of a value, which names its line and its field."""
        return YamlFault(self.located(path, problem))

    def whole(self) -> Any:
        """Returns the plain value of the document, None if it is empty. Raises as `plain`, and YAMLError."""
        root = self._loader.get_single_node()
        return None if root is None else self.plain(root, ())

    def plain(self, node: yaml.Node, path: YamlPath) -> Any:
        """Returns the plain value of a node that stands at `path`. Raises the error of `fault` if a name in it is not a
        text or is given twice."""
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            self._written[path] = node.value
        if id(node) in self._values:
            return self._values[id(node)]
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Any] = {}
            self._values[id(node)] = mapping
            own: set[str] = set()
            given = {id(name_node) for name_node, _ in node.value}  # by the mapping itself, not by a merge (`<<`)
            self._loader.flatten_mapping(node)
            for name_node, value_node in node.value:
                name = self._scalar(name_node, path)
                inside = (*path, str(name))
                self._lines[inside] = name_node.start_mark.line + 1
                if not isinstance(name, str) or not name:
                    raise self.fault(inside, "a name must be a text that is not empty: put it in quotes")
                if name in own:
                    raise self.fault(inside, "this name is given twice in one mapping: remove one")
                if id(name_node) in given:
                    own.add(name)
                mapping[name] = self.plain(value_node, inside)
            return mapping
        if isinstance(node, yaml.SequenceNode):
            items: list[Any] = []
            self._values[id(node)] = items
            items.extend(self.plain(each, (*path, index)) for index, each in enumerate(node.value))
            return items
        return self._scalar(node, path)

    def _scalar(self, node: yaml.Node, path: YamlPath) -> Any:
        try:
            return self._loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            raise self.fault(path, str(error)) from None

    def located(self, path: YamlPath, problem: str) -> str:
        names = ".".join(part for part in path if isinstance(part, str))
        return f"line {self.line(path)}, {names or 'top level'}: {problem}"

    def line(self, path: YamlPath) -> int:
        """Returns the line of the value at `path`, or of the nearest value around it if its own line is not known, as
        inside a YAML alias."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def written(self, path: YamlPath) -> str | None:
        """Returns the characters of the text, number or word at `path`, of which YAML makes a value (`off` is false);
        None if they are not known, as inside an alias."""
        return self._written.get(path)
