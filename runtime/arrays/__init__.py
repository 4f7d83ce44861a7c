"""What callers hand over: array libraries, views of arrays, shared memory."""
