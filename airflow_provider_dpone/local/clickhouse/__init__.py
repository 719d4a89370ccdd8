"""The local ClickHouse server: the embedded engine behind HTTP and native endpoints, for development and tests.

It keeps principals, quotas, the process list and the query log itself, because the embedded engine has none of them.
It is no ClickHouse server: everything it does not know is answered with NOT_IMPLEMENTED.
"""
