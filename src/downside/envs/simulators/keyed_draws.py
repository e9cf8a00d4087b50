"""NumPy's random numbers for the keys of a compiled program."""

import hashlib
from collections.abc import Callable

import numpy as np


def draw_for_keys(
    purpose: bytes, keys: np.ndarray, draw: Callable, count: int | None = None
) -> list[np.ndarray]:
    """What `draw` gives for each key, `count` times if there is a count.

    Keys along the last axis share a generator, which is seeded with all of them; what stands along
    the axes before them does not depend on one another. So a batch of agents draws what each of
    them would draw alone, and candidates that are compared meet the same noise.
    """
    lead = keys.shape[:-1]
    slices = np.ascontiguousarray(keys).reshape(-1, lead[-1] if lead else 1, keys.shape[-1])
    rows = slices.shape[1] * (count or 1)
    drawn: dict[bytes, list[np.ndarray]] = {}
    parts = []
    for block in slices:
        digest = hashlib.blake2b(purpose + block.tobytes(), digest_size=16).digest()
        if digest not in drawn:
            generator = np.random.default_rng(int.from_bytes(digest, "little"))
            drawn[digest] = draw(generator, rows)
        parts.append(drawn[digest])
    shape = lead if count is None else (*lead, count)
    return [
        np.stack(arrays).reshape((*shape, *arrays[0].shape[1:]))
        for arrays in zip(*parts, strict=True)
    ]
