"""The loop of training around the driver: callbacks, log, progress bar and interruption."""

from typing import TYPE_CHECKING, Any

from downside.train.log import Log
from downside.train.monitor import Interruption, TrainingBar

if TYPE_CHECKING:
    from downside.train.agent import Agent


def go_on_training(
    agent: "Agent", callbacks: list[Any], log_interval: int, tb_log_name: str, progress_bar: bool
) -> None:
    """Trains to the end that is planned, or until a callback or a signal ends it.

    The arguments are those of `Agent.resume`.
    """
    driver = agent._driver
    spec = driver.planned()
    log = Log(
        agent.tensorboard_log,
        tb_log_name,
        str(agent.risk),
        history=agent.history,
        interval=max(1, log_interval),
        verbose=agent.verbose,
    )
    bar = TrainingBar(f"{agent.name} {agent.risk}", disable=not progress_bar)
    with Interruption() as interruption, log, bar:
        for each in callbacks:
            each.on_start(agent)
        try:
            for done, total in driver.chunks():
                agent.targets = {}  # they belong to the policy before
                if agent._adaptation is not None and len(agent.history) == 1:
                    agent.history[0]["adapted"] = agent._adaptation
                bar.update(done, total, agent.history[-1]["best"])
                go_on = [each.on_step(agent) for each in callbacks]
                if len(agent.history) % max(1, log_interval) == 0:
                    log.write(agent.history[-1])
                if interruption.signal is not None:
                    raise interruption.error()
                if any(answer is False for answer in go_on):
                    break
            if spec.fit_chunks > driver.fitted:
                bar.say("learning the return distribution of the policy")
            for _ in driver.fit():
                if interruption.signal is not None:
                    raise interruption.error()
        finally:
            if agent.history:
                for each in callbacks:
                    each.on_end(agent)
