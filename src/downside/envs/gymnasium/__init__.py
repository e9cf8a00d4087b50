"""Our environments as those of Gymnasium, and those of Gymnasium for our agents."""
