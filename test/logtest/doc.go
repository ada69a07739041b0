// Package logtest keeps what the code under test logs, from all its goroutines, so that a test can
// look for what must be there and for what must never be: a key.
package logtest
