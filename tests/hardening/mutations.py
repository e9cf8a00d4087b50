"""Checkpoints that somebody has changed: at random, or on purpose with a digest that fits."""

import copy
import json
import random
import resource
import time
import warnings

import numpy as np
import safetensors
import safetensors.numpy

import downside as ds
from downside.train.checkpoints import checkpoint

MAX_SECONDS, MAX_BYTES = 2.0, 2**30


# --- trying to load ---------------------------------------------------------------------------


class Attempts:
    """Loads files, and keeps count of what came of it."""

    def __init__(self):
        self.refused, self.loaded, self.slowest = 0, 0, 0.0
        self._memory = _peak()

    def load(self, path, what):
        """Loads a file; anything but an agent and a `CheckpointError` is passed on."""
        begin = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                agent = ds.load(path)
        except ds.CheckpointError:
            self.refused += 1
        except BaseException as error:
            raise AssertionError(f"{type(error).__name__} for {what}: {error}") from error
        else:
            self.loaded += 1
            if hasattr(agent.env, "close"):
                agent.env.close()
        seconds = time.process_time() - begin
        self.slowest = max(self.slowest, seconds)
        assert seconds < MAX_SECONDS, f"{seconds:.1f} s for {what}"
        assert self.memory < MAX_BYTES, f"{self.memory:,} bytes for {what}"

    @property
    def memory(self):
        """How many bytes more than at first were in use at a time."""
        return _peak() - self._memory

    def __str__(self):
        return (
            f"{self.refused + self.loaded} files: {self.refused} refused with a CheckpointError, "
            f"{self.loaded} loaded, slowest {self.slowest:.2f} s, {self.memory / 2**20:.0f} MiB"
        )


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# --- at random --------------------------------------------------------------------------------


def scrambled(raw: bytes, draws: random.Random) -> tuple[bytes, str]:
    """The bytes of a file, changed somewhere, and what was done."""
    data = bytearray(raw)
    # As often in the header as in the arrays, which are much longer.
    size = len(data) if draws.random() < 0.5 else min(len(data), 20_000)
    place, length = draws.randrange(size), draws.randrange(1, 200)
    kind = draws.choice(("flip", "cut", "zero", "insert", "remove", "copy", "length"))
    if kind == "flip":
        data[place] ^= 1 << draws.randrange(8)
    elif kind == "cut":
        del data[place:]
    elif kind == "zero":
        data[place : place + length] = bytes(len(data[place : place + length]))
    elif kind == "insert":
        data[place:place] = draws.randbytes(length)
    elif kind == "remove":
        del data[place : place + length]
    elif kind == "copy":
        other = draws.randrange(len(data))
        data[place : place + length] = data[other : other + length]
    else:
        data[:8] = draws.choice((0, 1, 7, 2**20, 2**31, 2**62, 2**64 - 1)).to_bytes(8, "little")
    return bytes(data), f"{kind} at {place}"


# --- on purpose -------------------------------------------------------------------------------

DEEP = json.loads("[" * 200 + "]" * 200)
VALUES = [
    *(None, True, False, [], {}, "", "x", "\x00", -1, 0, 1, 3, 10**7, 2**31, 2**63, 10**30),
    *(-(10**30), 0.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf"), [None], [[]], [-1]),
    *([0] * 100, [10**6] * 3, [1] * 1000, {"a": {"b": 1}}, {"__class__": "os.system"}, DEEP),
    *("x" * 100_000, "QRDQN", "QRCVaR", "os:system", "__main__:Agent", "CartPole-v1", "mean"),
    *("downside/CliffWalk-v0", "canary:Id-v0", "cvar(0.1)", "mean + " * 5000 + "mean", "paper"),
    *("../../etc/passwd", "/dev/zero", "__import__('os').system('true')", "${HOME}", "%s%n"),
]
"""What stands for something else in a header."""


def altered(about: dict, draws: random.Random) -> tuple[dict, str]:
    """The header with an entry replaced, removed or added, and what was done."""
    about = copy.deepcopy(about)
    parent, key = draws.choice(list(_places(about)))
    kind = draws.choice(("replace", "replace", "replace", "remove", "add", "scale"))
    value = copy.deepcopy(draws.choice(VALUES))
    if kind == "remove":
        del parent[key]
    elif kind == "add" and isinstance(parent, dict):
        key = draws.choice(("extra", "env", "id", "network", "policy", "tensorboard_log", "seed"))
        parent[key] = value
    elif kind == "scale" and type(parent[key]) in (int, float):
        value = parent[key] * draws.choice((-1, 2, 10, 1000, 10**6))
        parent[key] = value
    else:
        parent[key] = value
    return about, f"{kind} {key} with {str(value)[:60]!r}"


def _places(value):
    """Every entry of a header; of a long list the first and last."""
    keys = list(value) if isinstance(value, dict) else sorted({0, len(value) - 1})
    for key in keys if value else ():
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def altered_arrays(arrays: dict, draws: random.Random) -> tuple[dict, str]:
    """The arrays with one of another type, shape, name or content, and what was done."""
    arrays = dict(arrays)
    name = draws.choice(sorted(arrays))
    array, kind = arrays[name], draws.choice(("nan", "type", "shape", "remove", "rename", "large"))
    if kind == "nan" and array.dtype.kind == "f":
        array = np.full_like(array, draws.choice((np.nan, np.inf, -np.inf)))
    elif kind == "type":
        array = array.astype(draws.choice(("float16", "float64", "int8", "uint64", "bool")))
    elif kind == "shape":
        array = draws.choice((array[None], array.ravel()[:1], np.concatenate([array.ravel()] * 2)))
    elif kind == "large" and array.dtype.kind in "iu":
        array = np.full_like(array, np.iinfo(array.dtype).max)
    arrays[name] = array
    if kind in ("remove", "rename"):
        del arrays[name]
    if kind == "rename":
        arrays[name + draws.choice(("x", ".networks", "[0]", "\x00"))] = array
    return arrays, f"{kind} of {name}"


def read_parts(path):
    """The header and the arrays of a checkpoint."""
    with safetensors.safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["about"]), arrays


def write_signed(path, about, arrays):
    """Writes a checkpoint with a digest that fits, whatever is in it."""
    write_text(path, json.dumps(about), arrays)


def write_text(path, text, arrays):
    """The same with any text in place of the header."""
    arrays = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    metadata = {"format": "downside", "about": text, "sha256": checkpoint._digest(arrays, text)}
    safetensors.numpy.save_file(arrays, path, metadata=metadata)
