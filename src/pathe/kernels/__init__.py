"""Compiled versions of performance-critical functions; `dispatch` picks the one for a device."""
