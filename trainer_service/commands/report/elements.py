"""Elements of an HTML page. Whatever text they are given stays text."""

from __future__ import annotations

from typing import TypeAlias
from xml.etree.ElementTree import Element, tostring

from unity_bridge.untrusted_text import printable

Content: TypeAlias = Element | str
"""An element or a text. Control characters of a text are removed, and the text is escaped when the page is written."""

_HEAD = '<!doctype html>\n<html lang="en">\n'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content-Security-Policy: the page has no script, and loads nothing."""


def element(name: str, /, *contents: Content, **attributes: str) -> Element:
    """An element with its contents. In names of attributes ``_`` stands for ``-``; one at the end is dropped."""
    made = Element(name, {_attribute(key): printable(value) for key, value in attributes.items()})
    for content in contents:
        if isinstance(content, Element):
            made.append(content)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + printable(content)
        else:
            made.text = (made.text or "") + printable(content)
    return made


def table(header: tuple[str, ...], *rows: tuple[Content, ...], **attributes: str) -> Element:
    """A table that scrolls by itself where a screen is narrow."""
    head = element("thead", element("tr", *(element("th", text) for text in header)))
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows))
    return element("div", element("table", head, body, **attributes), class_="scroll")


def folded(title: str, *contents: Content, **attributes: str) -> Element:
    """Contents that are shown when their title is clicked."""
    return element("details", element("summary", title), *contents, **attributes)


def page(title: str, style: str, *contents: Element) -> str:
    """The text of a page of its own."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title),
        element("style", style),
    )
    parts = [tostring(part, encoding="unicode", method="html") for part in (head, element("body", *contents))]
    return _HEAD + "\n".join(parts) + "\n</html>\n"


def _attribute(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")
