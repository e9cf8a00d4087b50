"""A run of a study: what decides its result, in plain types, and a hash of that."""

import dataclasses
import functools
import hashlib
import importlib
import json
from collections.abc import Mapping
from typing import Any

from downside.risk import parse
from downside.runs import run_folder
from downside.train import Agent
from downside.train.checkpoints.loading import agents_by_name

_SEED = "the seed of a run"
"""Stands for the seed where its place is looked for."""
_MAX_NAME = 200
"""Characters of a folder's name before the key; file systems allow 255 in all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run of a study."""

    env: str
    """The environment's id. A module before a colon is imported first."""
    parameters: Mapping[str, Any]
    """Parameters of the environment; all of them if it is written in JAX."""
    agent: str
    """qrsrm, qrcvar, qricvar, qrdqn or pgsrm."""
    preset: str
    """The preset that `settings` come from."""
    settings: Mapping[str, Any]
    """All settings of the agent."""
    risk: str
    """The measure, as text."""
    seed: int
    total_timesteps: int
    """Environment steps of the run."""
    episodes: int
    """Fresh episodes of the evaluation. Not part of the key."""
    callback: str | None = None
    """A `ds.Callback` for the run, as `package.module:Class`."""

    @functools.cached_property
    def key(self) -> str:
        """A hash of the configuration: the same run always has the same key."""
        return self._hash(self.seed)

    @functools.cached_property
    def group_key(self) -> str:
        """As `key`, the same for all seeds."""
        return self._hash(None)

    def with_seed(self, seed: int) -> "RunSpec":
        """The same run with another seed; what does not depend on it is not computed again."""
        other = dataclasses.replace(self, seed=seed)
        for name in ("_template", "group", "group_key"):
            other.__dict__[name] = getattr(self, name)
        return other

    def _hash(self, seed: int | None) -> str:
        before, after = self._template
        return hashlib.sha256(f"{before}{json.dumps(seed)}{after}".encode()).hexdigest()[:12]

    @functools.cached_property
    def _template(self) -> tuple[str, str]:
        """What is hashed, before and after the seed."""
        config = {**dataclasses.asdict(self), "seed": _SEED}
        del config["preset"]  # its settings are in the hash
        del config["episodes"]  # a finished agent can play more of them
        del config["settings"]["total_timesteps"]  # a default that `total_timesteps` replaces
        if self.callback is None:
            del config["callback"]  # so that keys from before there were callbacks stay
        text = json.dumps(config, sort_keys=True, separators=(",", ":"))
        before, _, after = text.partition(f'"seed":"{_SEED}"')
        return f'{before}"seed":', after

    @functools.cached_property
    def group(self) -> str:
        """The same for all runs that differ in their seed alone."""
        return json.dumps({**dataclasses.asdict(self), "seed": None}, sort_keys=True)

    @property
    def name(self) -> str:
        """The name of its folder: readable, at most 255 characters, and ending in the key."""
        readable = f"{_readable(self.env, self.agent, self.risk)}{self.seed}"
        return f"{readable[:_MAX_NAME]}__{self.key}"

    @property
    def bare_id(self) -> str:
        """The environment's id without its module."""
        return self.env.rpartition(":")[2]

    def make_agent(self) -> Agent:
        """The agent, before training. Its files remember the module of the environment."""
        return agents_by_name()[self.agent](
            self.env,
            risk=self.risk,
            preset=self.preset,
            seed=self.seed,
            env_kwargs=self.parameters,
            **self.settings,
        )

    def make_callback(self) -> Any:
        """A new callback, or None."""
        return None if self.callback is None else import_name(self.callback)()


@functools.lru_cache
def _readable(env: str, agent: str, risk: str) -> str:
    """The name of a run's folder up to its seed."""
    return run_folder(env, agent, parse(risk), 0).name.removesuffix("0")


def import_name(path: str) -> Any:
    """The object that `package.module:name` stands for."""
    module, colon, name = path.partition(":")
    if not colon or not name:
        raise ValueError(f"`callback` must be given as package.module:Class, got {path!r}.")
    return getattr(importlib.import_module(module), name)
