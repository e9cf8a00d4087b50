"""What expressions answer in a plain interpreter, without the type checks the tests switch on."""

import json
import subprocess
import sys

_SCRIPT = """
import json, sys
{imports}
said = {{}}
for case in json.load(sys.stdin):
    try:
        said[case] = f"no error: {{eval(case)!r}}"
    except Exception as error:
        said[case] = str(error)
json.dump(said, sys.stdout)
"""


def answers(imports: str, cases: list[str]) -> dict[str, str]:
    """The error message of each expression, or `no error: ...`."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(imports=imports)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
