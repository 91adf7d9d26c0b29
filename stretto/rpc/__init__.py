"""The streams between processes: records, codecs, servers, dialling."""

import os

# Read when gRPC starts. What is forked beside it (a ledger server, a test's processes) runs another
# program at once and never calls gRPC; its handlers would do nothing but say that they were skipped
# because a thread of ours is in a call, which is always so.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
