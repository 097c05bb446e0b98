"""Errors, files, settings, hardware, random numbers and small shared types."""
