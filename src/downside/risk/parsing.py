"""Risk measures as text: `0.5*mean + 0.5*cvar(20%)`.

    sum    := term ("+" term)*
    term   := [number "*"] factor (("*" | "/") number)*
    factor := name ["(" [argument ("," argument)*] ")"] | "(" sum ")"
    argument := [name "="] number
    number := digits, with a point, an exponent or a percent sign if you like, or a fraction 1/3

Nothing here evaluates code: the text is cut into tokens and read by hand.
"""

import math
import re
from typing import Any, NamedTuple, NoReturn

from downside._names import did_you_mean
from downside.risk.base import AbstractSpectralRisk
from downside.risk.combination import WeightedSum
from downside.risk.registry import names

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?%?)|(?P<name>[^\W\d]\w*)|(?P<sign>.))",
    re.DOTALL,
)
_DEEPEST = 20
_LONGEST, _MOST_TERMS = 100_000, 2_500
"""Characters of a text, and measures in it: what is read within a second."""


class RiskSyntaxError(ValueError):
    """A text that is not a risk measure; the message points at the offending character."""


class _Token(NamedTuple):
    kind: str
    text: str
    position: int

    @property
    def shown(self) -> str:
        """As error messages show it."""
        return repr(self.text) if self.text else "the end"


def parse(text: str) -> AbstractSpectralRisk:
    """Reads a risk measure, e.g. `"cvar(0.2)"` or `"0.5*mean + 0.5*cvar(20%)"`.

    `downside risks` lists the names. Raises `RiskSyntaxError`, a `ValueError`, which shows where
    the text is wrong and suggests the nearest name.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"`text` must be a string such as '0.5*mean + 0.5*cvar(0.2)', got {text!r}."
        )
    if len(text) > _LONGEST:
        raise RiskSyntaxError(
            f"`text` must have at most {_LONGEST:,} characters, got {len(text):,}. Write a "
            "spectrum with so many parts as ds.WeightedCVaR(levels, weights)."
        )
    return _Reader(text).read()


def as_risk(risk: AbstractSpectralRisk | str) -> AbstractSpectralRisk:
    """A risk measure from a measure or its text, checked to be complete."""
    if isinstance(risk, str):
        return parse(risk)
    if isinstance(risk, WeightedSum):
        risk.check()
    if not isinstance(risk, AbstractSpectralRisk):
        raise TypeError(
            f"`risk` must be a risk measure or its text, such as CVaR(0.2) or 'cvar(0.2)', got "
            f"{risk!r}."
        )
    return risk


class _Reader:
    def __init__(self, text: str):
        self.text = text
        self.tokens = [
            _Token(kind, match[kind], match.start(kind))
            for match in _TOKEN.finditer(text.rstrip())
            if (kind := match.lastgroup)
        ]
        self.tokens.append(_Token("end", "", len(text.rstrip())))
        self.at, self.measures = 0, 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.next
        self.at += 1
        return token

    def skip(self, sign: str) -> bool:
        matched = self.next.kind == "sign" and self.next.text == sign
        self.at += matched
        return matched

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        position = self.next.position if position is None else position
        line = self.text.replace("\n", " ").replace("\t", " ")
        start, end = max(0, position - 60), position + 40
        shown = line[start:end]
        raise RiskSyntaxError(f"{message}\n  {shown}\n  {' ' * (position - start)}^")

    def read(self) -> AbstractSpectralRisk:
        if self.next.kind == "end":
            self.fail("The text of a risk measure is empty; try 'cvar(0.2)'.")
        risk = self.sum(depth=0)
        if self.next.kind != "end":
            self.fail(f"Expected '+' or the end, found {self.next.text!r}.")
        if isinstance(risk, WeightedSum):
            try:
                risk.check()
            except ValueError as error:
                self.fail(str(error), position=0)
            if len(risk.parts) == 1:
                return risk.parts[0][1]
        return risk

    def sum(self, depth: int) -> AbstractSpectralRisk:
        terms = [self.term(depth)]
        while self.skip("+"):
            terms.append(self.term(depth))
        # All at once: adding them one by one copies the sum each time.
        if len(terms) == 1:
            return terms[0]
        return WeightedSum(part for term in terms for part in term.terms)

    def term(self, depth: int) -> AbstractSpectralRisk:
        weight = None
        if self.next.kind == "number":
            weight = self.number()
            if not self.skip("*"):
                self.fail(f"Expected '*' and a risk measure after {weight:g}.")
        elif self.next.text == "-":
            self.fail("The weight of a risk measure must be non-negative.")
        risk = self.factor(depth)
        if weight is not None:
            risk = weight * risk
        while (times := self.skip("*")) or self.skip("/"):
            position = self.next.position
            by = self.number()
            try:
                risk = risk * by if times else risk / by
            except (ValueError, OverflowError) as error:
                self.fail(str(error), position)
        return risk

    def factor(self, depth: int) -> AbstractSpectralRisk:
        if self.skip("("):
            if depth >= _DEEPEST:
                self.fail(f"Brackets may be nested at most {_DEEPEST} deep.")
            risk = self.sum(depth + 1)
            if not self.skip(")"):
                self.fail("Expected ')'.")
            return risk
        token = self.next
        if token.kind != "name":
            self.fail(f"Expected the name of a risk measure, found {token.shown}.")
        return self.measure(self.take())

    def measure(self, token: _Token) -> AbstractSpectralRisk:
        self.measures += 1
        if self.measures > _MOST_TERMS:
            self.fail(
                f"A text may name at most {_MOST_TERMS:,} measures. Write a spectrum with so many "
                "parts as ds.WeightedCVaR(levels, weights).",
                token.position,
            )
        known = names()
        entry = known.get(token.text.lower())
        if entry is None:
            hint = did_you_mean(token.text, known) or f" There are: {', '.join(known)}."
            self.fail(f"There is no risk measure {token.text!r}.{hint}", token.position)
        first = self.tokens[min(self.at + 1, len(self.tokens) - 1)].position
        positional: list[float] = []
        named: dict[str, float] = {}
        allowed = [name for name, _ in entry.parameters]
        if self.skip("(") and not self.skip(")"):
            while True:
                self.argument(positional, named, allowed)
                if self.skip(")"):
                    break
                if not self.skip(","):
                    self.fail("Expected ',' or ')'.")
        values: dict[str, Any] = dict(zip(allowed, positional, strict=False))
        missing = [name for name in allowed if name not in values and name not in named]
        if len(positional) > len(allowed) or missing or values.keys() & named.keys():
            wanted = ", ".join(allowed) or "no arguments"
            got = len(positional) + len(named)
            self.fail(
                f"{entry.name!r} takes {wanted}, e.g. {entry.example}; got {got} argument(s).",
                token.position,
            )
        try:
            return entry.factory(**values, **named)
        except (TypeError, ValueError) as error:
            self.fail(str(error), first)

    def argument(
        self, positional: list[float], named: dict[str, float], allowed: list[str]
    ) -> None:
        if self.next.kind != "name":
            positional.append(self.number())
            return
        token = self.take()
        if token.text not in allowed:
            wanted = ", ".join(allowed) or "none"
            self.fail(
                f"There is no argument {token.text!r} here; allowed: {wanted}.", token.position
            )
        if token.text in named:
            self.fail(f"The argument {token.text!r} is given twice.", token.position)
        if not self.skip("="):
            self.fail("Expected '='.")
        named[token.text] = self.number()

    def number(self) -> float:
        token = self.next
        negative = self.skip("-")
        if self.next.kind != "number":
            self.fail(f"Expected a number, found {token.shown}.", token.position)
        value = self.plain_number()
        if self.next.text == "/" and self.tokens[self.at + 1].kind == "number":
            self.skip("/")
            position = self.next.position
            below = self.plain_number()
            if below == 0:
                self.fail("The divisor must not be 0.", position)
            value = value / below
        if not math.isfinite(value):
            self.fail("The number is too large.", token.position)
        return -value if negative else value

    def plain_number(self) -> float:
        text = self.take().text
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
