"""What is in this package, and how often was it used?"""

import collections
import json
import os
import pathlib
import sys

from . import guard


def status():
    for kernel in guard.SWAP["kernels"]:
        print(f"{kernel['operator']} {kernel['dtype']}: {kernel['certificate']['summary']}")
        print(f"  {kernel['gate']['summary']}")
        print(
            f"  in the place of {kernel['file']} of sglang {guard.SWAP['version']}, sha256 {kernel['sha256'][:16]}"
        )
        print(f"  switched {'on' if guard.switched_on(kernel['operator']) else 'off'} here")
    folder = os.environ.get("WARPSMITH_SGLANG_COUNTERS")
    if not folder:
        print("counters: none were kept. Set WARPSMITH_SGLANG_COUNTERS to a folder before the server starts.")
        return
    total, processes = collections.Counter(), 0
    for file in sorted(pathlib.Path(folder).glob(f"{guard.HERE.name}-*.json")):
        processes += 1
        for operator, types in json.loads(file.read_text()).items():
            for dtype, told in types.items():
                total.update({(operator, dtype, what): times for what, times in told.items()})
    print(f"counters of {processes} processes in {folder}:")
    for (operator, dtype, what), times in sorted(total.items()):
        print(f"  {operator} {dtype}: {what} {times}")


if __name__ == "__main__":
    if sys.argv[1:] != ["status"]:
        sys.exit(f"usage: python -m {guard.HERE.name} status")
    status()
