"""The learner, its batches and losses, default settings, and the run folder."""
