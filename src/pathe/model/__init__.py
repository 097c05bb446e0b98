"""The model and its parts, the `Scorer` that runs it, and the model folder."""
