"""State that a trial step changes, saved in host memory; tensors are restored in place.

Parameters, buffers, gradients, an optimizer's state and settings, whatever else has a ``state_dict``, and the random numbers.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any


class TrainingState:
    """The current state of models, optimizers, scalers, schedulers and generators.

    Raises TypeError for an object without a readable state.
    """

    def __init__(self, torch: Any, things: Iterable[Any]) -> None:
        self._torch = torch
        self._tensors: dict[int, tuple[Any, Any, Any, Any]] = {}  # id -> tensor, its copy, its gradient, the gradient's copy
        self._others: list[Callable[[], Any]] = []
        for thing in things:
            self._keep(thing)
        self._random = _random_numbers(torch)

    def restore(self) -> None:
        """Put everything back but the random numbers. Memory that is not needed is let go of first."""
        for tensor, _, grad, _ in self._tensors.values():
            if tensor.is_leaf and tensor.grad is not grad:
                tensor.grad = grad
        for again in self._others:
            again()
        with self._torch.no_grad():
            for tensor, values, grad, grad_values in self._tensors.values():
                tensor.copy_(values)
                if grad is not None:
                    grad.copy_(grad_values)

    def restore_random(self) -> None:
        """Put the random numbers back."""
        for again in self._random:
            again()

    def _keep(self, thing: Any) -> None:
        if hasattr(thing, "named_modules") and hasattr(thing, "named_buffers"):
            self._keep_module(thing)
        elif hasattr(thing, "param_groups") and hasattr(thing, "state"):
            self._keep_optimizer(thing)
        elif hasattr(thing, "get_state") and hasattr(thing, "set_state"):
            state = thing.get_state().clone()
            self._others.append(lambda: thing.set_state(state))
        elif hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
            state = copy.deepcopy(thing.state_dict())
            self._others.append(lambda: thing.load_state_dict(copy.deepcopy(state)))
            if isinstance(stages := getattr(thing, "_per_optimizer_states", None), dict):
                self._others.append(stages.clear)  # a GradScaler that ran out of memory between unscaling and its update
        else:
            raise TypeError(f"{type(thing).__name__} has no state that could be put back (no parameters, no state_dict).")

    def _keep_module(self, model: Any) -> None:
        for module in model.modules():
            own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            for _, tensor in own:
                self._keep_tensor(tensor)
            self._others.append(partial(_put_back, module, own, module.training))

    def _keep_optimizer(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._keep_tensor(parameter)
        self._others.append(self._contents(optimizer.state))
        for group in optimizer.param_groups:
            settings = {key: self._contents(value) for key, value in group.items() if key != "params"}
            self._others.append(partial(_settle, group, settings))

    def _keep_tensor(self, tensor: Any) -> None:
        if id(tensor) not in self._tensors:
            grad = tensor.grad if tensor.is_leaf else None
            self._tensors[id(tensor)] = (tensor, _copied(tensor), grad, _copied(grad) if grad is not None else None)

    def _contents(self, value: Any) -> Callable[[], Any]:
        """Return a function that restores ``value`` in place and returns it."""
        if isinstance(value, self._torch.Tensor):
            self._keep_tensor(value)
            return lambda: value
        if isinstance(value, dict):
            parts = {key: self._contents(part) for key, part in value.items()}

            def filled() -> Any:
                value.clear()
                value.update({key: part() for key, part in parts.items()})
                return value

            return filled
        if isinstance(value, list):
            items = [self._contents(part) for part in value]

            def listed() -> Any:
                value[:] = [item() for item in items]
                return value

            return listed
        plain = copy.deepcopy(value)
        return lambda: copy.deepcopy(plain)


def _copied(tensor: Any) -> Any:
    return tensor.detach().to("cpu", copy=True)


def _put_back(module: Any, own: list[tuple[str, Any]], mode: bool) -> None:
    for name, tensor in own:
        if getattr(module, name) is not tensor:
            setattr(module, name, tensor)
    module.training = mode


def _settle(group: dict[str, Any], settings: dict[str, Callable[[], Any]]) -> None:
    group.update({key: again() for key, again in settings.items()})


def _random_numbers(torch: Any) -> list[Callable[[], Any]]:
    """Return what puts the generators of Python, PyTorch, its GPUs and NumPy (where it is loaded) back."""
    of_python, of_host = random.getstate(), torch.get_rng_state()
    back: list[Callable[[], Any]] = [lambda: random.setstate(of_python), lambda: torch.set_rng_state(of_host)]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        of_gpus = torch.cuda.get_rng_state_all()
        back.append(lambda: torch.cuda.set_rng_state_all(of_gpus))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        of_numpy = numpy.random.get_state()
        back.append(lambda: numpy.random.set_state(of_numpy))
    return back
