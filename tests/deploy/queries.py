"""Queries of deploy/prometheus and deploy/grafana, as Prometheus can run them one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/rules"
DASHBOARD = ROOT / "deploy/grafana/dashboards/infeed.json"

_COMPARISON = re.compile(r"\s(?:==|!=|>=|<=|>|<)\s")
"""A comparison of an alert, which has spaces around it; a matcher of labels has none."""

_ABSENT = re.compile(r"absent\((.*)\)")
"""An alert on what is missing, which has no result while all is well."""

_VARIABLES = {"$job": "infeed", "$namespace": ".*", "$pipeline": ".*", "$__rate_interval": "30s"}
"""Values of the dashboard's variables."""


def rules() -> list[dict[str, Any]]:
    """Returns all recording rules and alerts."""
    return [
        rule
        for file in sorted(RULES.glob("*.yaml"))
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def panels() -> list[dict[str, Any]]:
    """Returns the panels of the dashboard that have queries."""
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if "targets" in panel]


def queries() -> Iterator[tuple[str, str]]:
    """Yields a name and an expression that must have a result: an alert's without its threshold."""
    for rule in rules():
        if "record" in rule:
            yield rule["record"], rule["expr"]
            continue
        for number, side in enumerate(_COMPARISON.split(rule["expr"])):
            if not re.fullmatch(r"\s*[\d.e]+\s*", side):
                yield f"{rule['alert']} {number}", _ABSENT.sub(r"\1", side)
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in _VARIABLES.items():
                expression = expression.replace(variable, value)
            yield f"{panel['title']} {target['refId']}", expression
