"""Tables as HTML."""

from __future__ import annotations

from pathe.core.html import ROWS, Percent, line, table, title


def test_text_is_escaped_wherever_it_is() -> None:
    bad = "<script>\"'&"
    for made in (table((bad,), [(bad,)]), title(bad, bad), line(bad), table(("a",), [([bad],)])):
        assert "<script>" not in made
        assert "&lt;script&gt;&quot;&#x27;&amp;" in made


def test_cells_by_kind() -> None:
    made = table(("n", "x", "p", "t", "f", "b"), [(1234, 0.5, Percent(0.123), "a", None, True)])
    for cell in ("1,234", "0.500", "12.3 %", ">a<", "><", "yes"):
        assert cell in made
    assert made.count("text-align:right") == 6  # three numbers and their titles


def test_long_tables_are_cut() -> None:
    made = table(("n",), [(i,) for i in range(ROWS + 7)])
    assert made.count("<tr>") == ROWS + 1
    assert "and 7 more" in made
    assert "<tr>" not in table((), [])
