"""The backend of agents that learn from episodes of their present policy."""
