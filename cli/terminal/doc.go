// Package terminal is how commands talk with the person who runs them: arguments and keys that they read, errors with a hint and an exit code,
// the formats of -o, tables, and the escaping of text that somebody else wrote.
package terminal
