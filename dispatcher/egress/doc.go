// Package egress opens the connections that go to addresses merchants chose. It refuses every address
// that is not of the public internet, at the moment of the dial and after name resolution, so that a
// name that changes its answer, or a URL that spells an address in an odd way, reaches nothing inside.
package egress
