"""The commands of `skuda`, a module each, and what they share.

generate, check, catalog (`list`), show, new, doctor, cache: `add_parser(subparsers)` declares a command's
arguments and sets `handler`, a function from the arguments to the exit status. Nothing here decides what a
generated file says.
"""
