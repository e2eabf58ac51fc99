from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import PlanError
from lockstep.plan.schema import Schema, parse_schema

ALIASES = {
    "tinyint": ["tinyint", "byte", "TINYINT"],
    "smallint": ["smallint", "short"],
    "int": ["int", "integer", "Integer"],
    "bigint": ["bigint", "long"],
    "float": ["float", "real"],
    "double": ["double"],
    "boolean": ["boolean", "bool"],
    "string": ["string", "str"],
    "timestamp": ["timestamp"],
    "timestamp_ntz": ["timestamp_ntz"],
    "date": ["date"],
    "binary": ["binary"],
    "decimal(10,0)": ["decimal", "dec", "numeric", "decimal(10)"],
    "decimal(12,2)": ["decimal(12,2)", "NUMERIC( 12 , 2 )"],
}

simple = st.sampled_from([(normal, spelled) for normal, many in ALIASES.items() for spelled in many])


def nested(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    return st.one_of(
        inner.map(lambda t: (f"array<{t[0]}>", f"ARRAY < {t[1]} >")),
        st.tuples(inner, inner).map(lambda p: (f"map<{p[0][0]},{p[1][0]}>", f"map<{p[0][1]}, {p[1][1]}>")),
        st.tuples(inner, inner).map(
            lambda p: (f"struct<a:{p[0][0]},`b c`:{p[1][0]}>", f"struct<a: {p[0][1]} NOT NULL, `b c` {p[1][1]}>")
        ),
    )


@given(st.lists(st.recursive(simple, nested, max_leaves=5), min_size=1, max_size=4), st.booleans())
def test_every_spelling_of_a_type_is_read_as_its_normal_form(types: list[tuple[str, str]], colon: bool) -> None:
    text = ", ".join(f"f{i}{':' if colon else ''} {spelled}" for i, (_, spelled) in enumerate(types))
    schema = parse_schema(text)
    assert [field.type for field in schema.fields] == [normal for normal, _ in types]
    assert parse_schema(schema.ddl()) == schema
    assert Schema.from_json(schema.to_json()) == schema


def test_a_name_that_is_no_plain_word_is_quoted_in_ddl() -> None:
    assert parse_schema("`first ``name` string, b int").ddl() == "`first ``name` string, b int"


@pytest.mark.parametrize(
    ("text", "fact", "caret_at"),
    [
        ("user strin, ok boolean", '"strin" is not a type', 5),
        ("user string ok boolean", 'expected "," or the end, found "ok"', 12),
        ("user string,", "expected the name of a field", 12),
        ("tags array<string", 'expected ">"', 17),
        ("user", "expected a type", 4),
        ("a int, gap interval", 'the type "interval" cannot be used in a stream', 11),
        ("v variant", 'the type "variant" cannot be used in a stream', 2),
        ("p decimal(50,2)", "a decimal(50,2) is not possible", 2),
        ("a int; b int", '";" is not expected here', 5),
    ],
)
def test_an_error_points_at_the_place(text: str, fact: str, caret_at: int) -> None:
    with pytest.raises(PlanError) as caught:
        parse_schema(text)
    assert caught.value.code == "LS0105"
    assert caught.value.fact == fact
    assert caught.value.why == f"{text}\n{' ' * caret_at}^"


def test_an_unknown_type_lists_those_there_are_and_the_nearest() -> None:
    with pytest.raises(PlanError, match=r'did you mean "timestamp"\? The types are: string, boolean') as caught:
        parse_schema("at timestmp")
    assert "array<T>" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "code"), [("__mark int", "LS0106"), ("a int, a string", "LS0132"), ("a int, A int", "LS0132")]
)
def test_reserved_and_repeated_names_are_refused(text: str, code: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_schema(text)
    assert caught.value.code == code


@pytest.mark.parametrize("value", ["", "   ", None, ["user"]])
def test_what_is_no_schema_at_all_is_explained(value: object) -> None:
    with pytest.raises(PlanError) as caught:
        parse_schema(value)  # type: ignore[arg-type]
    assert caught.value.code == "LS0105"


def test_type_of_an_unknown_field_lists_the_fields() -> None:
    with pytest.raises(PlanError, match='did you mean "user"') as caught:
        parse_schema("user string, ok boolean").type_of("usr")
    assert caught.value.code == "LS0107"
