// Package leaks looks for goroutines that the tests of a package have left behind, after the last of them.
package leaks
