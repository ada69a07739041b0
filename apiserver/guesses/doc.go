// Package guesses bounds how many wrong keys one client address may present. Past that bound nothing the address presents
// is looked at, good or bad, so that guessing costs the guesser time and nobody else anything. It knows this replica's
// requests only, and takes no round trip and a bounded memory.
package guesses
