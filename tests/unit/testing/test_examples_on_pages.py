"""The runner of the documentation's examples fails where an example fails, or prints something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.guides import blocks_of, run_page

PAGE = """# A page

```python
x = 1
print("x is", x)
```

```text
x is 1
```

Words between a block and its output make it another block.

```python no-run
x = undefined
```

```python
# file: jobs/helper.py
def double(n):
    return 2 * n
```

```python
from jobs.helper import double
x = double(x)

def test_it(tmp_path):
    print("tested", x, tmp_path.exists())
```

```text
tested 2 True
```

```sh
false
```

```python raises
import lockstep as ls
ls.Job("Not A Name")
```
"""


def _run(text: str, folder: Path) -> int:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return run_page(page, folder, {"tmp_path": folder})


def test_the_blocks_of_a_page_run_in_one_namespace(tmp_path: Path) -> None:
    assert _run(PAGE, tmp_path) == 4


def test_a_page_twice_imports_its_files_twice(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        _run(f"```python\n# file: helper.py\nn = {number}\n```\n\n```python\nassert n == {number}\n```\n", folder)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("x is 1\n", "x is 2\n", AssertionError),
        ("tested 2 True", "tested", AssertionError),
        ("2 * n", "3 * n", AssertionError),
        ("x = 1\n", "x = unknown\n", NameError),
        ('ls.Job("Not A Name")', 'ls.Job("a-name")', AssertionError),
        ("python raises", "python", Exception),
    ],
)
def test_a_wrong_example_fails(old: str, new: str, error: type[Exception], tmp_path: Path) -> None:
    assert old in PAGE
    with pytest.raises(error):
        _run(PAGE.replace(old, new, 1), tmp_path)


def test_a_traceback_has_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _run("# Title\n\ntext\n\n```python\nx = 1\ny = x / 0\n```\n", tmp_path)
    assert caught.traceback[-1].lineno + 1 == 7


def test_output_belongs_to_the_block_right_before_it() -> None:
    first, second, third, *_ = blocks_of(PAGE)
    assert (first.expected, second.expected, third.expected) == ("x is 1\n", None, None)
    assert (first.line, second.is_run) == (3, False)
