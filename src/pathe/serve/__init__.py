"""A server for one or several graphs: REST under /api/v1, and a page to explore them."""
