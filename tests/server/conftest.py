"""What the modules with a server of their own share."""

from tests.step_trace import trace_file_fixture

trace_file = trace_file_fixture("module")
