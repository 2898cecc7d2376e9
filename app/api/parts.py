"""Reading JSON of no fixed shape; every refusal names the part."""

from typing import Any, cast

from models.errors import RequestInvalid

JSON = dict[str, Any]
TEXT: JSON = {"type": "string"}
CONTENT: JSON = {
    "anyOf": [TEXT, {"type": "array", "items": {"type": ["object", "string"]}}, {"type": "null"}],
    "description": "text, or a list of parts that hold text",
}
_NOT_TEXT = {
    *("image_url", "image", "input_image", "computer_screenshot", "video_url"),
    *("input_audio", "audio", "file", "input_file"),
}


def object_at(value: Any, path: str) -> JSON:
    """An object. Raises RequestInvalid."""
    if not isinstance(value, dict):
        raise RequestInvalid(f"{path} must be an object.", path)
    return cast(JSON, value)


def string_at(value: Any, path: str) -> str:
    """A string. Raises RequestInvalid."""
    if not isinstance(value, str):
        raise RequestInvalid(f"{path} must be a string.", path)
    return value


def optional_string(fields: JSON, key: str, path: str) -> str | None:
    """A field that may be left out or null. Raises RequestInvalid."""
    value = fields.get(key)
    return None if value is None else string_at(value, f"{path}.{key}")


def text_at(content: Any, path: str) -> str:
    """A string, or a list of parts that hold text. Raises RequestInvalid."""
    match content:
        case str():
            return content
        case list():
            parts = cast(list[Any], content)
            return "\n".join(_part(part, f"{path}.{i}") for i, part in enumerate(parts))
        case None:
            raise RequestInvalid(f"{path} is required.", path)
        case _:
            raise RequestInvalid(f"{path} must be a string or a list of parts.", path)


def _part(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    part = object_at(value, path)
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return string_at(part.get("text"), f"{path}.text")
        case "refusal":
            return string_at(part.get("refusal"), f"{path}.refusal")
        case str() as kind if kind in _NOT_TEXT:
            raise RequestInvalid(
                f"{path} is of type {kind}: only text is taken, no images, audio or files.",
                path,
            )
        case _:
            raise RequestInvalid(f"{path}.type must be text.", f"{path}.type")
