"""Jinja templates: whole kernels that read as CUDA, and the Python and Markdown that go with them."""
