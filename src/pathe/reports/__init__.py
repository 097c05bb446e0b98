"""Plots and terminal tables."""
