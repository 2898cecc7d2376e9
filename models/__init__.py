"""What a model is: names, files, fit, templates, dialects."""
