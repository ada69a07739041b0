// Package pages checks what the documentation refers to: links lead somewhere, and the tests, files and make targets that
// pages name are there. A security model that cites a test nobody runs any more is worse than none.
package pages
