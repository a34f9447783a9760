"""Least squares for a few dozen unknowns, without numpy (the package needs pydantic only)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


def least_squares(equations: Sequence[Mapping[Name, float]]) -> dict[Name, float]:
    """Solve ``sum(coefficient * unknown) = 1`` for each equation in the least-squares sense.

    Raises:
        ValueError: the equations leave some unknown undetermined.
    """
    names = list(dict.fromkeys(name for equation in equations for name in equation))
    place = {name: index for index, name in enumerate(names)}
    size = len(names)
    matrix = [[0.0] * (size + 1) for _ in names]
    for equation in equations:
        for name, value in equation.items():
            row = matrix[place[name]]
            row[size] += value
            for other, factor in equation.items():
                row[place[other]] += value * factor
    return dict(zip(names, _solve(matrix, names), strict=True))


def _solve(matrix: list[list[float]], names: Sequence[Hashable]) -> list[float]:
    size = len(matrix)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        if abs(matrix[pivot][column]) < 1e-12:
            raise ValueError(f"the measurements do not determine {names[column]}")
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        head = matrix[column]
        for row in range(column + 1, size):
            factor = matrix[row][column] / head[column]
            if factor:
                matrix[row] = [
                    value - factor * above for value, above in zip(matrix[row], head, strict=True)
                ]
    answer = [0.0] * size
    for row in range(size - 1, -1, -1):
        known = sum(matrix[row][column] * answer[column] for column in range(row + 1, size))
        answer[row] = (matrix[row][size] - known) / matrix[row][row]
    return answer
