"""On which line of a TOML file each key and each entry of a list stands.

Python's own reader gives the values but not the places. This goes over text that it has accepted,
and so need not check anything: it only keeps track of brackets, strings and keys.
"""

import re
import tomllib
from typing import NamedTuple

Path = tuple[str | int, ...]
"""Where something is in the document: keys, and numbers for the entries of a list."""

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r]+|\#[^\n]*)
    |(?P<end>\n)
    |(?P<text>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<sign>[\[\]{}=,.])
    |(?P<word>[^\s\[\]{}=,.\#"']+)""",
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def key_lines(text: str) -> dict[Path, int]:
    """The line of every key, table and entry of a list in a valid TOML document."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str):
        self.tokens: list[_Token] = []
        line = 1
        for match in _TOKEN.finditer(text):
            if match.lastgroup != "skip":
                self.tokens.append(_Token(str(match.lastgroup), match[0], line))
            line += match[0].count("\n")
        self.tokens.append(_Token("end", "", line))
        self.at = 0
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}

    @property
    def next(self) -> _Token:
        return self.tokens[min(self.at, len(self.tokens) - 1)]

    def take(self) -> _Token:
        token = self.next
        self.at += 1
        return token

    def skip_lines(self) -> None:
        while self.next.kind == "end" and self.at < len(self.tokens):
            self.at += 1

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        self.skip_lines()
        while self.at < len(self.tokens):
            if self.next.text == "[":
                table = self.header()
            else:
                self.pair(table)
            self.skip_lines()
        return self.lines

    def header(self) -> Path:
        line = self.take().line
        many = self.next.text == "["
        self.at += many
        *above, name = self.key()
        self.at += 1 + many
        path: Path = ()
        for part in above:
            path = self.entered((*path, part))
            self.lines.setdefault(path, line)
        path = (*path, name)
        if many:
            self.lines.setdefault(path, line)
            self.counts[path] = self.counts.get(path, 0) + 1
        path = self.entered(path)
        self.lines.setdefault(path, line)
        return path

    def entered(self, path: Path) -> Path:
        """Of a list of tables, the last one so far."""
        return (*path, self.counts[path] - 1) if path in self.counts else path

    def key(self) -> list[str]:
        parts = []
        while True:
            token = self.take()
            quoted = token.kind == "text"
            parts.append(tomllib.loads(f"k = {token.text}")["k"] if quoted else token.text)
            if self.next.text != ".":
                return parts
            self.at += 1

    def pair(self, table: Path) -> None:
        line, path = self.next.line, table
        for part in self.key():
            path = (*path, part)
            self.lines.setdefault(path, line)
        self.at += 1  # the equals sign
        self.value(path)

    def value(self, path: Path) -> None:
        opening = self.next.text if self.next.kind == "sign" else ""
        if opening not in ("[", "{"):
            while self.next.kind != "end" and self.next.text not in (",", "]", "}"):
                self.at += 1
            return
        self.at += 1
        number = 0
        self.skip_lines()
        while self.next.text not in ("]", "}"):
            if opening == "{":
                self.pair(path)
            else:
                self.lines[(*path, number)] = self.next.line
                self.value((*path, number))
            number += 1
            self.skip_lines()
            self.at += self.next.text == ","
            self.skip_lines()
        self.at += 1
