"""Makes reference/settings.md from the code: `python docs/settings.py`."""

from pathlib import Path

from downside.agents import (
    SRM,
    GymnasiumSettings,
    LivedSRM,
    OnPolicySettings,
    PathwiseSettings,
    QuantileSettings,
    Settings,
    SimulatorSettings,
)
from downside.agents._fields import docstrings
from downside.train.backends.gymnasium.adapting import AN_EXAMPLE
from downside.train.config import resolve

PAGE = Path(__file__).parent / "reference" / "settings.md"
TITLES = {
    Settings: "All agents",
    QuantileSettings: "QR agents",
    SimulatorSettings: "QR agents in environments written in JAX",
    GymnasiumSettings: "QR agents in other Gymnasium environments",
    PathwiseSettings: "PG-SRM",
    OnPolicySettings: "AC-SRM",
}


def page() -> str:
    """The text of the page."""
    jax, gym = (
        resolve(SRM, kind, "default", {}) for kind in (SimulatorSettings, GymnasiumSettings)
    )
    short = resolve(SRM, GymnasiumSettings, "default", {}, warm_up=AN_EXAMPLE)
    paper = {
        kind: resolve(SRM, kind, "paper", {}) for kind in (SimulatorSettings, GymnasiumSettings)
    }
    actor, critic = PathwiseSettings(), OnPolicySettings()
    short_critic = resolve(LivedSRM, OnPolicySettings, "default", {}, warm_up=AN_EXAMPLE)
    everywhere = [
        ("JAX", jax),
        ("Gymnasium", gym),
        ("short episodes", short),
        ("paper", paper[SimulatorSettings]),
    ]
    lines = [
        "# Settings",
        "",
        "Every setting of QR-SRM with its default, its value in the preset `paper` and its range;",
        "and those of PG-SRM and AC-SRM.",
        "Pass it by name, `ds.QRSRM(env, risk=risk, batch_size=512)`, or as a flag,",
        "`--batch-size 512`. `downside train ENV --help` shows what an environment gets.",
        "Short episodes: Gymnasium environments in which all episodes are short, as the",
        "warm-up shows; a run of another length than `total_timesteps` has about as many updates.",
        "This page is made from the code by `python docs/settings.py`.",
    ]
    for kind, title in TITLES.items():
        columns = {
            Settings: [*everywhere, ("PG-SRM", actor), ("AC-SRM", critic)],
            QuantileSettings: everywhere,
            SimulatorSettings: [("default", jax), ("paper", paper[SimulatorSettings])],
            GymnasiumSettings: [
                ("default", gym),
                ("short episodes", short),
                ("paper", paper[GymnasiumSettings]),
            ],
            PathwiseSettings: [("default", actor)],
            OnPolicySettings: [("default", critic), ("short episodes", short_critic)],
        }[kind]
        inherited = getattr(kind.__base__, "__dataclass_fields__", {})
        names = [name for name in kind.__dataclass_fields__ if name not in inherited]
        texts = docstrings(kind)
        heads = [head for head, _ in columns]
        lines += ["", f"## {title}", "", f"| setting | {' | '.join(heads)} | range | |"]
        lines.append("| --- " * (len(heads) + 3) + "|")
        for name in names:
            values = " | ".join(str(getattr(settings, name)) for _, settings in columns)
            allowed = kind.__dataclass_fields__[name].metadata["range"]
            lines.append(f"| `{name}` | {values} | {allowed} | {texts[name]} |")
    lines += [
        "",
        "With a single environment that is passed in, `update_interval` is 4 and",
        "`updates_per_step` is 1: as many updates for each step as with eight. QR-DQN,",
        "QR-iCVaR and QR-CVaR differ in a few defaults; `--help` shows them.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
