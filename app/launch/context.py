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
        f"{recipe.title} needs a context of {need} tokens: its first prompt alone is about "
        f"{recipe.first_prompt}, and answers, files and tool results come on top. {found.model} "
        f"has {found.context} here. {remedy}, or start the agent all the same with --anyway."
    )
