"""Whether a model's context is enough for an agent, and what is said where it is not."""

from app.launch.base import Recipe
from models.errors import ContextTooSmall


def check_context(
    recipe: Recipe, model: str, context: int | None, trained: int | None = None
) -> None:
    """Pass where the context is enough or unknown. Lengths are in tokens; `trained` is what the
    model could have. Raises ContextTooSmall."""
    need = recipe.least_context
    if context is None or context >= need:
        return
    if trained is not None and trained < need:
        remedy = "No setting makes it longer, so take a model with a longer context"
    else:
        remedy = f"Serve it with more: `runner serve {model} --ctx {need}`"
    raise ContextTooSmall(
        f"{recipe.title} needs a context of {need} tokens, and {model} has {context} here: its "
        f"first prompt alone is about {recipe.first_prompt} tokens, and answers, files and tool "
        f"results come on top. {remedy}, or start it all the same with --anyway."
    )
