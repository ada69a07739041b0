// Package jitter spreads over time what many replicas or many clients would do at once. It is a package because everybody waits.
package jitter

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// Fraction returns a random number in [0,1).
func Fraction() float64 {
	const digits = 53 // of a float64
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails: without randomness it ends the program
	return float64(binary.BigEndian.Uint64(bits[:])>>(64-digits)) / (1 << digits)
}

// UpTo returns a time in [0,d).
func UpTo(d time.Duration) time.Duration { return time.Duration(Fraction() * float64(d)) }

// Add returns a time between d and 1.2 d. The fraction is in [0,1).
func Add(d time.Duration, fraction float64) time.Duration {
	const most = 0.2
	return d + time.Duration(float64(d)*most*fraction)
}
