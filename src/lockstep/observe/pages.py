"""What the reports share: the frame of a page, how it looks, and the machine it was made on."""

from __future__ import annotations

import os
import platform
from html import escape
from importlib.metadata import version
from string import Template

import psutil

from lockstep.machine import find_java

_STYLE = """\
  body { font: 16px/1.55 system-ui, sans-serif; color: #1f2937; background: #fafaf9; margin: 0 }
  main { margin: 0 auto; padding: 2.5rem 1.25rem 4rem }
  h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem }
  h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem }
  p { margin: .6rem 0 }
  .verdict { display: inline-block; padding: .3rem .8rem; border-radius: .4rem; font-weight: 600; margin: .6rem 0 }
  .good { background: #d1fae5; color: #065f46 } .bad { background: #fee2e2; color: #991b1b }
  figure { margin: 1.2rem 0; padding: 1rem; background: #fff; border: 1px solid #e5e7eb; border-radius: .6rem }
  figure svg { width: 100%; height: auto; display: block }
  .scroll { overflow-x: auto }
  table { border-collapse: collapse; background: #fff; font-variant-numeric: tabular-nums }
  th, td { border-bottom: 1px solid #e5e7eb }
  pre { background: #fff; border: 1px solid #e5e7eb; border-radius: .6rem; padding: 1rem; overflow-x: auto }
  footer { color: #6b7280; font-size: .85rem; margin-top: 2.5rem }
"""
"""Of every report; each adds what is its own after it."""
_PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
$style</style>
</head>
<body><main>
$body<footer>$machine<br>$made</footer>
</main></body>
</html>
""")


def page(title: str, body: str, made: str, style: str) -> str:
    """A page that needs nothing else. ``body`` and ``style`` are as they stand in it; ``made``: when, and by what."""
    return _PAGE.substitute(
        title=escape(title), style=_STYLE + style, body=body, machine=escape(machine_text()), made=escape(made)
    )


def machine_text() -> str:
    """What it ran on, in one line."""
    memory_gb = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {platform.machine()}; "
        f"Lockstep {version('lockstep')}, PySpark {version('pyspark')}, Java {find_java().version}, "
        f"Python {platform.python_version()}"
    )
