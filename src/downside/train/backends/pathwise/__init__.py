"""The backend of agents that differentiate whole simulated episodes."""
