"""TensorFlow Serving's JSON of classification and regression.

    {"context": {…}, "examples": [{name: value, …}, …]}

An export has no signature for it (see example_signatures). So the values need
no conversion: whatever they are, the signature is refused.
"""

from t2t_repro.server import json_body, request_errors

# rapidjson's names; those of booleans are their values.
_TYPES = {
    type(None): "Null",
    list: "Array",
    str: "String",
    int: "Number",
    float: "Number",
}


def read_signature(body: bytes) -> str:
    """Return the name of the signature; check that the examples are objects.

    Raises:
        RequestError: the body or an example has another form.
    """
    signature, content = json_body.parse(body, ("context", "examples"))
    if "context" in content:
        _check_example(content["context"])
    if "examples" not in content:
        # TensorFlow Serving names classify for regress, too.
        raise request_errors.invalid(
            "When method is classify, key 'examples' is expected and was not "
            "found"
        )
    examples = content["examples"]
    if not isinstance(examples, list):
        raise request_errors.invalid(
            "Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise request_errors.invalid("'examples' value is an empty array")
    for example in examples:
        _check_example(example)
    return signature


def _check_example(value):
    if not isinstance(value, dict):
        kind = _TYPES.get(type(value), str(value))
        raise request_errors.invalid(
            f"Example must be JSON object but got JSON {kind}"
        )
