"""What is said of wrong arguments."""

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from philorag.wire import explain


def _not_bad(value: str) -> str:
    if value == "bad":
        raise ValueError("must not be bad")
    return value


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(max_length=5)]
    number: Annotated[int, Field(ge=3)] = 7


class Range(BaseModel):
    start: Annotated[str, Field(pattern=r"^\d{4}$", examples=["1781"])] | None = None


Number = Annotated[int, Field(ge=1)] | Annotated[str, Field(pattern="^[1-9]$", examples=["4"])]


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    query: Annotated[str, Field(min_length=1, max_length=10, examples=["virtue"]), AfterValidator(_not_bad)] = "x"
    document: Number | None = None
    sort: Literal["up", "down"] = "up"
    deep: bool = False
    least: Annotated[float, Field(ge=0.5, le=1)] | None = None
    anything: dict[str, Any] | None = None
    parts: list[Part] | None = None
    part: Part | None = None
    dates: Range | None = None
    text: Annotated[str, Field(max_length=100)] | None = None


SCHEMA = Arguments.model_json_schema()


def explained(schema: Any = SCHEMA, model: Any = Arguments, **given: Any) -> Any:
    with pytest.raises(ValidationError) as invalid:
        TypeAdapter(model).validate_python(given)
    return explain(invalid.value, schema)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"querry": "a"}, "Unknown argument `querry`. Did you mean `query`?"),
        ({"part": {"text": "a", "nummer": 5}}, "Unknown argument `part.nummer`. Did you mean `number`?"),
        ({"part": {"text": "a", "zzz": 5}}, "Unknown argument `part.zzz`. Known: number, text."),
        ({"part": {}}, 'The argument `part.text` is missing. Give for example "text".'),
        ({"query": ""}, '`query`: String should have at least 1 character; got "". Give for example "virtue".'),
        ({"query": "bad"}, '`query`: must not be bad; got "bad". Give for example "virtue".'),
        (
            {"sort": "sideways"},
            "`sort`: Input should be 'up' or 'down'; got \"sideways\". Give for example \"up\".",
        ),
        ({"deep": "yes"}, '`deep`: Input should be a valid boolean; got "yes". Give for example false.'),
        ({"least": 2.0}, "`least`: Input should be less than or equal to 1; got 2.0. Give for example 0.5."),
        ({"anything": "x"}, '`anything`: Input should be a valid dictionary; got "x". Give for example {}.'),
        (
            {"parts": [{"text": "a", "number": 1}]},
            "`parts[0].number`: Input should be greater than or equal to 3; got 1. Give for example 7.",
        ),
        ({"parts": "a"}, '`parts`: Input should be a valid list; got "a". Give for example [{"text": "text"}].'),
        (
            {"part": 3},
            '`part`: Input should be a valid dictionary or instance of Part; got 3. Give for example {"text": "text"}.',
        ),
        (
            {"dates": {"start": "long ago"}},
            '`dates.start`: String should match pattern \'^\\d{4}$\'; got "long ago". Give for example "1781".',
        ),
        ({"text": 5}, '`text`: Input should be a valid string; got 5. Give for example "text".'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_problem_names_the_argument_the_value_and_an_example(given, message):
    """A refusal is a sentence: which argument, what is wrong with its value, and what would be accepted."""
    assert explained(**given).message == message


@pytest.mark.parametrize("given", [{"document": "abc"}, {"document": 1.5}, {"document": [1]}, {"document": 0}])
def test_a_union_is_one_problem(given):
    """An argument with several spellings is named once, with one example, however wrong it is."""
    error = explained(**given)
    assert error.message.startswith("`document`: ")
    assert error.message.endswith('Give for example "4".')
    assert error.message.count("document") == 1


def test_of_a_union_the_nearest_problem_is_told():
    """A text that is no number is told the pattern, not that it is no integer."""
    assert "match pattern" in explained(document="abc").message


def test_details_repeat_argument_problem_and_example():
    """A program finds in the details what the message says."""
    assert explained(parts=[{"text": "a", "number": 1}]).details == {
        "argument": "parts[0].number",
        "problem": "Input should be greater than or equal to 3",
        "example": 7,
    }


def test_every_example_is_accepted():
    """The example of each argument passes the argument's own validation."""
    for name in Arguments.model_fields:
        example = explained(**{name: object()}).details["example"]
        Arguments.model_validate_json(json.dumps({name: example}))


def test_long_values_are_not_echoed():
    """A value over 40 characters is not repeated."""
    error = explained(query="secret " * 10)
    assert "secret" not in error.message + json.dumps(error.details)


def test_objects_are_not_echoed():
    """A value that is an object or a list is not repeated."""
    assert "secret" not in explained(text={"secret": 1}).message


def test_three_problems_are_told_and_the_rest_counted():
    """Of many problems three are told."""
    error = explained(query=1, sort=1, deep=1, text=1, part=1)
    assert error.message.endswith("(2 more problems.)")
    assert error.message.count("Give for example") == 3


def test_nothing_of_pydantic_s_site_is_told():
    """No URL of a library is in a refusal."""
    assert "http" not in explained(query=1, part={"x": 1}).message


def test_lengths_of_texts_are_in_characters():
    """A text that a later validator measured is measured in characters, not items."""
    text = Annotated[str, AfterValidator(_not_bad), Field(max_length=3)]
    with pytest.raises(ValidationError) as invalid:
        TypeAdapter(dict[str, text]).validate_python({"a": "abcd"})
    assert "must have at most 3 characters; it has 4" in explain(invalid.value, {}).message


def test_a_schema_that_says_nothing_gives_no_wrong_example():
    """Where the schema doesn't know the argument, its example is null."""
    assert explained(schema={}, query=1).details["example"] is None
