"""The documentation site: what mkdocs.yml needs beyond MkDocs, and the pictures."""
