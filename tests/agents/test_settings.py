import dataclasses

import numpy as np
import pytest

from downside.agents import (
    GymnasiumSettings,
    PathwiseSettings,
    QuantileSettings,
    Settings,
    SimulatorSettings,
)
from downside.agents._fields import docstrings

from .. import untyped

KINDS = (SimulatorSettings, GymnasiumSettings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantiles": 0}, "`quantiles` must be a whole number >= 1, got 0"),
        ({"num_envs": True}, "`num_envs` must be a whole number >= 1, got True"),
        ({"outer_episodes": 1}, "`outer_episodes` must be a whole number >= 2, got 1"),
        ({"top_actions": -1}, "`top_actions` must be a whole number >= 0, got -1"),
        ({"shifts": 4}, "`shifts` must be odd, so that no shift is among them; got 4"),
        ({"gamma": 0.0}, r"`gamma` must be a number in \(0, 1\], got 0\.0"),
        ({"gamma": 1.01}, r"`gamma` must be a number in \(0, 1\], got 1\.01"),
        ({"kappa": -0.1}, r"`kappa` must be a number in \[0, inf\), got -0\.1"),
        ({"learning_rate": np.nan}, r"`learning_rate` must be a number in \(0, inf\), got nan"),
        ({"outer_rate": 0.0}, r"`outer_rate` must be a number in \(0, 1\], got 0\.0"),
        ({"hidden_sizes": (16, 0)}, r"`hidden_sizes` must be widths of layers.*got \(16, 0\)"),
        (
            {"updates_per_step": 4, "outer_interval": 10},
            r"`outer_interval` must be a multiple of `updates_per_step` \(4\), got 10",
        ),
        (
            {"num_envs": 64, "buffer_size": 63},
            "`buffer_size` must hold at least one step of all 64 environments, got 63",
        ),
    ],
    ids=str,
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(changes, message):
    with pytest.raises(ValueError, match=message):
        SimulatorSettings(**changes)


@pytest.mark.slow
def test_a_value_of_another_type_is_converted_or_refused_in_the_same_words():
    expected = {
        "quantiles=2.5": "`quantiles` must be a whole number >= 1, got 2.5.",
        "batch_size=math.inf": "`batch_size` must be a whole number >= 1, got inf.",
        "batch_size=math.nan": "`batch_size` must be a whole number >= 1, got nan.",
        "gamma='high'": "`gamma` must be a number in (0, 1], got 'high'.",
        "memory_noise=True": "`memory_noise` must be a number in [0, inf), got True.",
        "critic='quantile'": "`critic` must be one of utility, quantiles, got 'quantile'. "
        "Did you mean 'quantiles'?",
        "optimiser='sgd'": "`optimiser` must be one of muon, adam, got 'sgd'.",
        "outer=None": "`outer` must be one of simulated, learned, got None.",
        "hidden_sizes=128": "`hidden_sizes` must be widths of layers, e.g. "
        "(128, 128, 128), got 128.",
        "hidden_sizes=(16, 2.0)": "`hidden_sizes` must be widths of layers, e.g. "
        "(128, 128, 128), got (16, 2.0).",
        "normalise=1": "`normalise` must be True or False, got 1.",
    }
    made = "SimulatorSettings(hidden_sizes=[8, 4], quantiles=5.0, kappa=np.float32(0.5))"
    converted = f"({made}.hidden_sizes, {made}.quantiles, {made}.kappa)"
    replies = untyped.answers(
        "import math\nimport numpy as np\nfrom downside.agents import SimulatorSettings",
        [*(f"SimulatorSettings({change})" for change in expected), converted],
    )
    assert replies.pop(converted) == "no error: ((8, 4), 5, 0.5)"
    assert list(replies.values()) == list(expected.values())


@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_a_key_of_compiled_programs(kind):
    assert hash(kind()) == hash(dataclasses.replace(kind()))
    assert kind() != dataclasses.replace(kind(), kappa=0.5)


def test_no_hidden_layers_are_allowed():
    assert SimulatorSettings(hidden_sizes=()).hidden_sizes == ()


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError, match="kappa"):
        SimulatorSettings().kappa = 1.0  # pyright: ignore[reportAttributeAccessIssue]


def test_a_setting_is_for_all_environments_or_for_one_kind():
    ours, theirs = ({field.name for field in dataclasses.fields(kind)} for kind in KINDS)
    assert ours & theirs == {field.name for field in dataclasses.fields(QuantileSettings)}


def test_what_all_agents_have_is_what_actors_and_the_qr_agents_share():
    actors, others = (
        {field.name for field in dataclasses.fields(kind)}
        for kind in (PathwiseSettings, QuantileSettings)
    )
    shared = {field.name for field in dataclasses.fields(Settings)}
    # AC-SRM judges its policy in the episodes that it learns from, and has no such setting.
    assert actors & others == shared | {"outer_episodes"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_has_a_docstring_and_a_range_that_its_default_obeys(kind):
    texts = docstrings(kind)
    for field in dataclasses.fields(kind):
        assert texts[field.name].endswith(".")
        assert field.metadata["range"]
        assert field.metadata["check"](field.name, field.default) == field.default
    # A docstring is that of its field, as one line.
    assert texts["gamma"] == "Discount factor γ."
    assert texts["update_interval"] == "Steps of all environments between two rounds of updates."


def test_branches_counts_the_actions_that_are_simulated():
    assert SimulatorSettings(top_actions=5, random_actions=2).branches == 7
    assert SimulatorSettings(top_actions=0, random_actions=2).branches == 0
