// Package redistest runs a real redis-server for a test, or whatever server REDIS_SERVER names: its own process on its own
// loopback port, without persistence, that the test can stop, start again and freeze. It fails, and never skips, when
// there is no such server, for a test that did not run has promised nothing.
package redistest
