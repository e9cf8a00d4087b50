"""Agents in files: writing, checking and reading them."""
