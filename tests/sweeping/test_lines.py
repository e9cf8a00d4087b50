"""Where keys and entries stand, in TOML as people write it."""

import tomllib

from downside.sweeping.lines import key_lines

TEXT = '''\
title = "a # b = [c]"  # not = a key
"quoted \\" key" = 1.5e-3
a.b."c.d" = 'x'

[study]
risks = [
  "mean",   # the first
  # not an entry
  "cvar(0.2)", "]",

  """two
lines ]""",
]
empty = []
point = { x = 1, y = [2, 3], "z" = { deep = true } }
when = 1979-05-27 07:32:00

[[environments]]
id = 'one'
[[environments]]
id = "two"
[environments.more]
sigma = [[1, 2], [
 3, 4]]
[[environments.inner]]
k = 1
[[environments.inner]]
k = 2
[last . table]
k = "end"'''


def places(value, path=()):
    """Every key and entry of a document."""
    if path:
        yield path
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for name, one in pairs:
        yield from places(one, (*path, name))


def test_every_key_and_every_entry_has_a_line_and_nothing_else_has():
    assert set(key_lines(TEXT)) == set(places(tomllib.loads(TEXT)))


def test_the_lines_are_those_of_the_text():
    found = key_lines(TEXT)
    wanted = {
        ("title",): 1,
        ('quoted " key',): 2,
        ("a", "b", "c.d"): 3,
        ("study",): 5,
        ("study", "risks"): 6,
        ("study", "risks", 0): 7,
        ("study", "risks", 1): 9,
        ("study", "risks", 2): 9,
        ("study", "risks", 3): 11,
        ("study", "empty"): 14,
        ("study", "point", "z", "deep"): 15,
        ("study", "point", "y", 1): 15,
        ("study", "when"): 16,
        ("environments", 0, "id"): 19,
        ("environments", 1): 20,
        ("environments", 1, "more", "sigma", 1, 1): 24,
        ("environments", 1, "inner", 1, "k"): 28,
        ("last", "table", "k"): 30,
    }
    assert {path: found[path] for path in wanted} == wanted


def test_windows_line_ends_and_no_text_at_all():
    assert key_lines("a = 1\r\n\r\n[b]\r\nc = [\r\n1]\r\n")["b", "c", 0] == 5
    assert key_lines("") == {}
    assert key_lines("# nothing\n") == {}
