"""Steps of an application in Python: each prints what it gave, or why it failed, and the next one runs all the same."""

import json
import os
import sys
from collections.abc import Callable

HOST, PORT, DATABASE = "127.0.0.1", int(os.environ["PORT"]), os.environ["DATABASE"]

_steps: dict[str, list[Callable]] = {"first": [], "second": []}


def step(function: Callable) -> Callable:
    """A step before the server is restarted."""
    _steps["first"].append(function)
    return function


def after_restart(function: Callable) -> Callable:
    """A step after it."""
    _steps["second"].append(function)
    return function


def run() -> None:
    """Runs the steps of the phase that the command line names."""
    for function in _steps[sys.argv[1]]:
        name = function.__name__.replace("_", " ")
        try:
            print(json.dumps({"step": name, "value": function()}, default=str), flush=True)
        except Exception as error:  # noqa: BLE001: whatever it is, it is what the step gave
            reason = str(error).strip().splitlines() or [type(error).__name__]
            print(json.dumps({"step": name, "error": f"{type(error).__name__}: {reason[0][:240]}"}), flush=True)
