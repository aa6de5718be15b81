"""As much of pytest as a validation asks of it, where it is not installed: functions called test_*, plug-ins, a report."""

import importlib
import importlib.util
import sys
import traceback
from xml.etree import ElementTree


def main(arguments):
    plugins = [after for before, after in zip(arguments, arguments[1:]) if before == "-p" and ":" not in after]
    for plugin in plugins:
        importlib.import_module(plugin).pytest_load_initial_conftests()
    report = next(word.split("=", 1)[1] for word in arguments if word.startswith("--junitxml="))
    spec = importlib.util.spec_from_file_location("tests_of_one_file", arguments[-1])
    module, suite = importlib.util.module_from_spec(spec), ElementTree.Element("testsuite")
    tests = [(spec.name, lambda: spec.loader.exec_module(module))]
    for name, test in tests:
        case = ElementTree.Element("testcase", classname=arguments[-1], name=name)
        try:
            test()
            if name == spec.name:
                tests += [(name, test) for name, test in vars(module).items() if name.startswith("test_")]
                continue
        except Exception:
            traceback.print_exc()
            ElementTree.SubElement(case, "failure")
        suite.append(case)
    ElementTree.ElementTree(suite).write(report)
    failed = sum(len(case) for case in suite)
    print(f"{failed} failed of {len(suite)}")
    return 1 if failed else 0 if len(suite) else 5


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
