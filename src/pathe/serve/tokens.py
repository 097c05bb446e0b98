"""Tokens of requests."""

from __future__ import annotations

import hmac

from fastapi import Request


def has_token(request: Request, token: str) -> bool:
    """Whether the request has the token; takes the same time for any wrong one."""
    given = request.headers.get("authorization", "")
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
