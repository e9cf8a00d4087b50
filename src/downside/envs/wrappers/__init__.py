"""Wrappers for any Gymnasium environment: memory, history, risk as a reward."""
