"""Whether a model's context is enough for an agent, and what is said where it is not."""

from app.launch.base import Recipe
from app.launch.finding import Found
from models.errors import ContextTooSmall


def check_context(recipe: Recipe, found: Found) -> None:
    """Pass where the context is enough or unknown. Raises ContextTooSmall."""
    need = recipe.least_context
    if found.context is None or found.context >= need:
        return
    if found.trained is not None and found.trained < need:
        remedy = "No setting makes it longer, so take a model with a longer context"
    else:
        remedy = f"Serve it with more: `runner serve {found.model} --ctx {need}`"
    raise ContextTooSmall(
        f"{recipe.title} needs a context of {need} tokens, and {found.model} has {found.context} here: its "
        f"first prompt alone is about {recipe.first_prompt} tokens, and answers, files and tool "
        f"results come on top. {remedy}, or start it all the same with --anyway."
    )
