"""Clauses of SQL that a stream does not have, each with the reason and what to write instead."""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

from lockstep.api.sql.locations import QueryText


class _Clause(NamedTuple):
    words: str
    why: str
    hint: str


_NO_END = "a stream has no end, so it cannot be sorted."
_SORT_LATER = "sort what you read from the sink."
_FIRST = "a stream has no end: which records come first depends on timing."
_REFUSED: dict[str, _Clause] = {
    "distinct": _Clause(
        "DISTINCT",
        "every value ever seen would have to be kept.",
        ".distinct(within=\"1 hour\") on the stream, or GROUP BY window(at, '1 hour') and the columns.",
    ),
    "order": _Clause("ORDER BY", _NO_END, _SORT_LATER),
    "sort": _Clause("SORT BY", _NO_END, _SORT_LATER),
    "cluster": _Clause("CLUSTER BY", _NO_END, _SORT_LATER),
    "distribute": _Clause("DISTRIBUTE BY", "where records are computed is Spark's business.", "leave it out."),
    "limit": _Clause("LIMIT", _FIRST, "WHERE with a condition, or limit what you read from the sink."),
    "offset": _Clause("OFFSET", _FIRST, "WHERE with a condition, or limit what you read from the sink."),
    "qualify": _Clause(
        "QUALIFY",
        "rows before and after are not known while a stream runs.",
        "GROUP BY window(at, '1 minute') and HAVING.",
    ),
    "windows": _Clause(
        "WINDOW", "rows before and after are not known while a stream runs.", "GROUP BY window(at, '1 minute')."
    ),
    "sample": _Clause(
        "TABLESAMPLE", "a sample would differ between replicas.", "WHERE pmod(xxhash64(user), 100) < 7 keeps 7 %."
    ),
    "hint": _Clause("/*+ ... */", "how a query is computed is Spark's business.", "leave it out."),
    "pivots": _Clause(
        "PIVOT", "its columns would depend on the records.", "sum(CASE WHEN ... THEN ... END) for each column."
    ),
    "into": _Clause("INTO", "a query makes a stream.", 'job.sql(...).to(ls.files("out/result")).'),
}
_KNOWN = frozenset(
    {
        *("with_", "expressions", "from_", "joins", "where", "group", "having"),
        *("this", "alias", "expression", "by_name", "laterals", "db", "catalog"),
    }
)
_GROUPS = {
    "rollup": "ROLLUP",
    "cube": "CUBE",
    "grouping_sets": "GROUPING SETS",
    "all": "GROUP BY ALL",
    "totals": "TOTALS",
}


def check_clauses(node: exp.Expression, query: QueryText) -> None:
    """Refuse the clauses of a query or of a table that a stream does not have (LS0233)."""
    for name, value in node.args.items():
        if name in _KNOWN or not value or (name == "distinct" and isinstance(node, exp.SetOperation)):
            continue
        part = value[0] if isinstance(value, list) else value
        clause = _REFUSED.get(name, _Clause(name.strip("_").upper(), "it has no meaning here.", "leave it out."))
        inside = part if isinstance(part, exp.Expression) else node
        if name == "distinct" and isinstance(node, exp.Select):
            inside = node.expressions[0]
        raise query.error(
            "LS0233",
            f"{clause.words} cannot be used in a stream",
            query.keyword(clause.words, inside),
            why=clause.why,
            hint=clause.hint,
        )
    if isinstance(node, exp.SetOperation):
        _check_union(node, query)
    if isinstance(node, exp.Select) and node.args.get("group") is not None:
        _check_group(node.args["group"], query)


def _check_union(node: exp.SetOperation, query: QueryText) -> None:
    word = type(node).__name__.upper()
    if word == "UNION" and not node.args.get("distinct"):
        return
    raise query.error(
        "LS0233",
        f"{word} cannot be used in a stream",
        query.keyword(word, node.expression),
        why="every record ever seen would have to be kept."
        if word != "UNION"
        else "without ALL it drops records seen before.",
        hint="UNION ALL, or JOIN ... ON ... with a time bound.",
    )


def _check_group(group: exp.Group, query: QueryText) -> None:
    inside = {type(key).__name__.lower() for key in group.expressions}
    for name, words in _GROUPS.items():
        if group.args.get(name) or name.replace("_", "") in inside:
            raise query.error(
                "LS0233",
                f"{words} cannot be used in a stream",
                query.keyword(words, group),
                hint="write the keys one by one.",
            )
