#!/usr/bin/python3
"""Prints the first Python example of a Markdown file."""

import re
import sys
from pathlib import Path

print(re.search(r"```python\n(.*?)```", Path(sys.argv[1]).read_text(), flags=re.S).group(1))
