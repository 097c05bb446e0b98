"""Fonts for the names in a picture: the usual one, and others for characters that it lacks."""

from __future__ import annotations

USUAL = "DejaVu Sans"  # comes with matplotlib
BOXES = "Last Resort"  # comes with matplotlib, too, and has a box for every character
SHOWN = 10  # characters named if no font has them


def fonts_for(text: str) -> tuple[list[str], str]:
    """Returns font families that together have the characters of a text, and those that none has.

    Installed fonts are tried in the order of their names until nothing is missing.
    """
    from matplotlib.font_manager import fontManager, get_font

    wanted = {c for c in text if c.isprintable() and not c.isspace()}
    families = [USUAL]
    files = {font.name: font.fname for font in reversed(fontManager.ttflist)}
    files = {name: file for name, file in files.items() if not name.startswith(BOXES)}
    for family in (USUAL, *sorted(files)):
        if not wanted:
            break
        try:
            font = get_font(files[family])
        except (KeyError, OSError, RuntimeError):
            continue
        found = {c for c in wanted if font.get_char_index(ord(c))}
        if found and family not in families:
            families.append(family)
        wanted -= found
    lacking = sorted(wanted)
    more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
    return families, " ".join(lacking[:SHOWN]) + more
