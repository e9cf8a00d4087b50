import dataclasses

import numpy as np
import pytest

import downside as ds
from downside.agents import DQN, PRESETS, Settings, settings
from downside.agents.settings import PAPER

from .. import untyped


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantiles": 0}, "`quantiles` must be a whole number >= 1, got 0"),
        ({"num_envs": True}, "`num_envs` must be a whole number >= 1, got True"),
        ({"outer_episodes": 1}, "`outer_episodes` must be a whole number >= 2, got 1"),
        ({"near_greedy": -1}, "`near_greedy` must be a whole number >= 0, got -1"),
        ({"shifts": 4}, "`shifts` must be odd, so that no shift is among them; got 4"),
        ({"gamma": 0.0}, r"`gamma` must be a number in \(0, 1\], got 0\.0"),
        ({"gamma": 1.01}, r"`gamma` must be a number in \(0, 1\], got 1\.01"),
        ({"kappa": -0.1}, r"`kappa` must be a number in \[0, inf\), got -0\.1"),
        ({"learning_rate": np.nan}, r"`learning_rate` must be a number in \(0, inf\), got nan"),
        ({"outer_rate": 0.0}, r"`outer_rate` must be a number in \(0, 1\], got 0\.0"),
        ({"hidden": (16, 0)}, r"`hidden` must be widths of layers.*got \(16, 0\)"),
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
        settings("default", changes, {})


def test_a_value_of_another_type_is_converted_or_refused_in_the_same_words():
    expected = {
        "quantiles=2.5": "`quantiles` must be a whole number >= 1, got 2.5.",
        "batch_size=math.inf": "`batch_size` must be a whole number >= 1, got inf.",
        "batch_size=math.nan": "`batch_size` must be a whole number >= 1, got nan.",
        "gamma='high'": "`gamma` must be a number in (0, 1], got 'high'.",
        "relabel=True": "`relabel` must be a number in [0, inf), got True.",
        "critic='quantile'": "`critic` must be one of utility, quantiles, got 'quantile'. "
        "Did you mean 'quantiles'?",
        "optimiser='sgd'": "`optimiser` must be one of muon, adam, got 'sgd'.",
        "outer=None": "`outer` must be one of simulated, lived, learned, got None.",
        "hidden=128": "`hidden` must be widths of layers, e.g. (128, 128, 128), got 128.",
        "hidden=(16, 2.0)": "`hidden` must be widths of layers, e.g. (128, 128, 128), "
        "got (16, 2.0).",
        "normalise=1": "`normalise` must be True or False, got 1.",
    }
    made = "Settings(hidden=[8, 4], quantiles=5.0, kappa=np.float32(0.5))"
    converted = f"({made}.hidden, {made}.quantiles, {made}.kappa)"
    said = untyped.answers(
        "import math\nimport numpy as np\nfrom downside.agents import Settings",
        [*(f"Settings({change})" for change in expected), converted],
    )
    assert said.pop(converted) == "no error: ((8, 4), 5, 0.5)"
    assert list(said.values()) == list(expected.values())


def test_settings_are_a_key_of_compiled_programs():
    assert hash(Settings()) == hash(dataclasses.replace(Settings()))


def test_no_hidden_layers_are_allowed():
    assert settings("default", {"hidden": ()}, {}).hidden == ()


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError, match="kappa"):
        Settings().kappa = 1.0  # pyright: ignore[reportAttributeAccessIssue]


def test_an_unknown_setting_is_refused_with_the_closest_name():
    with pytest.raises(TypeError, match=r"no setting `learnin_rate`\. Did you mean 'learning_rate"):
        settings("default", {"learnin_rate": 0.1}, {})
    with pytest.raises(TypeError, match=r"no setting `zzz`\. The settings are: gamma, hidden"):
        settings("default", {"zzz": 0.1}, {})


def test_an_unknown_preset_is_refused_with_the_closest_name():
    with pytest.raises(
        ValueError, match=r"one of default, paper, got 'papers'\. Did you mean 'pape"
    ):
        settings("papers", {}, {})


def test_the_presets_are_valid_and_changes_come_on_top():
    assert settings("default", {}, {}) == Settings()
    paper = settings("paper", {"kappa": 0.5}, {})
    assert paper == Settings(**{**PAPER, "kappa": 0.5})
    # What the paper states: appendix "Details of the Environments".
    assert (paper.quantiles, paper.batch_size, paper.gamma) == (50, 256, 0.99)
    assert paper.total_timesteps == 500_000
    assert set(PRESETS) == {"default", "paper"}


def test_settings_that_an_algorithm_needs_cannot_be_changed():
    with pytest.raises(
        ValueError, match="`critic` must be 'quantiles' for this agent, got 'utilit"
    ):
        settings("default", {"critic": "utility"}, DQN.fixed)
    with pytest.raises(
        ValueError, match=r"`shifts` must be 1 for this agent, got 3\. Leave it out"
    ):
        ds.QRiCVaR("downside/MeanReversion-v0", risk="cvar(0.5)", shifts=3)
    # Saying what holds anyway is no change.
    assert settings("default", {"critic": "quantiles"}, DQN.fixed).shifts == 1


def test_branches_counts_the_actions_that_are_simulated():
    assert settings("default", {"near_greedy": 5, "random_actions": 2}, {}).branches == 7
    assert settings("default", {"near_greedy": 0, "random_actions": 2}, {}).branches == 0
