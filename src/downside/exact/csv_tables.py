"""Finite problems as CSV files: one row for each transition, as the literature publishes them."""

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from downside._files import write_text

COLUMNS = ("idstatefrom", "idaction", "idstateto", "probability", "reward")
_SUM_TOLERANCE = 1e-6


class Row(NamedTuple):
    """One transition of a file."""

    line: int
    state: int
    action: int
    leads_to: int
    probability: float
    reward: float


def read_transitions(path: str | Path) -> tuple[dict[str, Any], int]:
    """The arguments of a `FiniteMDP` in a file, without discounting, and the first id.

    States and actions are numbered from 0 or from 1, each as the file has it. Repeated rows add up
    if they pay the same and stay apart otherwise; an action without rows in a state is not allowed
    there.
    """
    rows = list(_rows(path))
    if not rows:
        raise ValueError(f"{path} must hold at least one transition, got none below the header.")
    first = min(min(row.state, row.leads_to) for row in rows)
    first_action = min(row.action for row in rows)
    for name, lowest in (("state", first), ("action", first_action)):
        if lowest not in (0, 1):
            raise ValueError(
                f"{path}: {name} ids must begin with 0 or 1, got {lowest} as the smallest one. "
                "Number them without a gap."
            )
    states = 1 + max(max(row.state, row.leads_to) for row in rows) - first
    actions = 1 + max(row.action for row in rows) - first_action
    merged: dict[tuple[int, int], dict[tuple[int, float], float]] = {}
    last_line: dict[tuple[int, int], int] = {}
    for row in rows:
        pair = row.state - first, row.action - first_action
        outcomes = merged.setdefault(pair, {})
        outcome = row.leads_to - first, row.reward
        outcomes[outcome] = outcomes.get(outcome, 0.0) + row.probability
        last_line[pair] = row.line
    known = {state for state, _ in merged}
    for row in rows:
        if row.leads_to - first not in known:
            raise ValueError(
                f"{path}, line {row.line}: it leads to state {row.leads_to}, which has no row of "
                "its own. Give it an action; if the episode is over there, one that stays and "
                "pays 0."
            )
    for (state, action), outcomes in merged.items():
        total = math.fsum(outcomes.values())
        if abs(total - 1.0) > _SUM_TOLERANCE:
            raise ValueError(
                f"{path}, line {last_line[state, action]}: the probabilities of action "
                f"{action + first_action} in state {state + first} must sum to 1, got {total:.8g}. "
                "Add the missing rows, or divide by the sum."
            )
    return _arrays(merged, states, actions), first


def _arrays(
    merged: dict[tuple[int, int], dict[tuple[int, float], float]], states: int, actions: int
) -> dict[str, Any]:
    shape = (states, actions, max(len(outcomes) for outcomes in merged.values()))
    chances, rewards = np.zeros(shape), np.zeros(shape)
    leads_to, mask = np.zeros(shape, dtype=int), np.zeros(shape[:2], dtype=bool)
    for pair, outcomes in merged.items():
        mask[pair] = True
        for k, ((state, reward), probability) in enumerate(outcomes.items()):
            chances[(*pair, k)], rewards[(*pair, k)] = probability, reward
            leads_to[(*pair, k)] = state
    return {
        "probabilities": chances,
        "rewards": rewards,
        "next_states": leads_to,
        "action_mask": mask,
    }


def _rows(path: str | Path) -> Iterable[Row]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"`path` must be a CSV file of transitions, got {str(path)!r}, which does not exist."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"`path` must be a readable CSV file, got {str(path)!r}: {error}"
        ) from error
    lines = csv.reader(text.splitlines())
    header = [name.strip().lower() for name in next(lines, [])]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ValueError(
            f"{path}, line 1: the header must name {','.join(COLUMNS)}, got {','.join(header)!r} "
            f"without {', '.join(missing)}."
        )
    places = [header.index(name) for name in COLUMNS]
    for fields in lines:
        line = lines.line_num
        if not any(field.strip() for field in fields):
            continue
        if len(fields) <= max(places):
            raise ValueError(
                f"{path}, line {line}: it must have {len(header)} fields, got {len(fields)}."
            )
        state, action, leads_to, probability, reward = (fields[place] for place in places)
        row = Row(
            line,
            _id(state, COLUMNS[0], path, line),
            _id(action, COLUMNS[1], path, line),
            _id(leads_to, COLUMNS[2], path, line),
            _number(probability, COLUMNS[3], path, line),
            _number(reward, COLUMNS[4], path, line),
        )
        if row.probability < 0.0 or row.probability > 1.0 + _SUM_TOLERANCE:
            raise ValueError(
                f"{path}, line {line}: the probability must be in [0, 1], got {row.probability:g}. "
                "Counts are to be divided by their sum."
            )
        yield row


def _id(text: str, column: str, path: str | Path, line: int) -> int:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer() or number < 0:
        raise ValueError(
            f"{path}, line {line}: `{column}` must be a whole number of at least 0, got {text!r}."
        )
    return int(number)


def _number(text: str, column: str, path: str | Path, line: int) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{path}, line {line}: `{column}` must be a finite number, got {text!r}.")
    return number


def write_transitions(path: str | Path, mdp: Any, *, first: int = 0) -> None:
    """Writes the transitions of a problem; ids begin with `first`.

    A state in which the episode is over gets one action, which stays there and pays 0.
    """
    if first not in (0, 1):
        raise ValueError(f"`first` must be 0 or 1, the id of the first state, got {first!r}.")
    inner = mdp.ends & ~mdp.terminal[mdp.next_states] & (mdp.probabilities > 0)
    if inner.any():
        state, action, _ = np.argwhere(inner)[0]
        raise ValueError(
            f"`mdp` ends an episode on the way to a state that is not terminal (action {action} in "
            f"state {state}), which the format cannot say. Lead there to a terminal state."
        )
    lines = [",".join(COLUMNS)]
    for state in range(mdp.num_states):
        if mdp.terminal[state]:
            lines.append(f"{state + first},{first},{state + first},1.0,0.0")
        for action, outcome in np.argwhere(mdp.probabilities[state] > 0):
            at = state, action, outcome
            ids = state + first, action + first, mdp.next_states[at] + first
            numbers = float(mdp.probabilities[at]), float(mdp.rewards[at])
            lines.append(",".join([*map(str, ids), *map(repr, numbers)]))
    write_text(Path(path), "\n".join(lines) + "\n")
