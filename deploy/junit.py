"""Prints 'passed failed skipped' of a JUnit report (pytest's or Meson's)."""
import sys
import xml.etree.ElementTree

passed = failed = skipped = 0
for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
    if case.find("failure") is not None or case.find("error") is not None:
        failed += 1
    elif case.find("skipped") is not None:
        skipped += 1
    else:
        passed += 1
if passed + failed + skipped == 0:
    sys.exit("no test in the report")
print(passed, failed, skipped)
