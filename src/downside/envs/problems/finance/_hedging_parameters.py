"""What the parameters of the hedging problem must be."""

from typing import Any

from downside.envs._parameters import check_choice, check_flag, check_real, check_whole

_OF_HESTON = ("reversion", "long_variance", "vol_of_vol", "correlation", "initial_variance", "swap")


def check_hedging(env: Any, defaults: Any) -> None:
    """Raise for the first parameter of `env` that is wrong; `defaults` has the default values."""
    options, models = ("call", "put", "lookback"), ("gbm", "heston")
    check_choice("option", env.option, options, "A lookback pays by the highest price.")
    check_choice("model", env.model, models, "'heston' has a random volatility.")
    check_real("strike", env.strike, "100 is at the money.", above=0.0)
    check_real("initial_price", env.initial_price, "100 is the default.", above=0.0)
    check_real("maturity", env.maturity, "30/252 is 30 trading days.", above=0.0)
    check_whole("periods", env.periods, "30 is the default.", least=1)
    if env.premium is not None:
        check_real("premium", env.premium, "Pass None for the Black-Scholes price.")
    check_real("cost", env.cost, "0.001 is ten basis points.", least=0.0, below=1.0)
    check_real("fixed_cost", env.fixed_cost, "0 is none.", least=0.0)
    check_real("sigma", env.sigma, "0.2 is 20% a year.", least=0.0)
    check_real("reversion", env.reversion, "1.0 is the default.", above=0.0)
    check_real("long_variance", env.long_variance, "0.04 is 20% a year.", above=0.0)
    check_real("vol_of_vol", env.vol_of_vol, "2.0 is the default.", above=0.0)
    remedy = "The scheme needs a volatility that falls when prices rise, or does not care."
    check_real("correlation", env.correlation, remedy, least=-1.0, most=0.0)
    check_real("initial_variance", env.initial_variance, "0.04 is 20% a year.", least=0.0)
    check_flag("swap", env.swap)
    check_real("max_swaps", env.max_swaps, "5000 is the default.", above=0.0)
    _check_positions(env)
    _check_unused(env, defaults)


def _check_positions(env: Any) -> None:
    remedy = "Pass None for the range of a delta."
    for name in ("min_position", "max_position"):
        if getattr(env, name) is not None:
            check_real(name, getattr(env, name), remedy)
    lowest, highest = env.position_range
    if lowest >= highest:
        raise ValueError(
            f"`min_position` must be below `max_position`, got {lowest} and {highest}. {remedy}"
        )
    if env.num_positions is not None:
        check_whole("num_positions", env.num_positions, "None is for any.", least=2)
        if env.swap:
            raise ValueError(
                f"`num_positions` must be None with swap=True, got {env.num_positions}: positions "
                "to choose from are for one instrument."
            )


def _check_unused(env: Any, defaults: Any) -> None:
    # A parameter that changes nothing is a mistake the caller would never see.
    of_other = _OF_HESTON if env.model == "gbm" else ("sigma",)
    for name in (*of_other, *(() if env.swap else ("max_swaps",))):
        value, default = getattr(env, name), getattr(defaults, name)
        if value != default:
            other = "gbm" if env.model == "heston" else "heston"
            home = "swap=True" if name == "max_swaps" else f"model={other!r}"
            raise ValueError(
                f"`{name}` must be left at {default} here, where it changes nothing, got {value}. "
                f"It belongs to {home}."
            )
