package dispatcher

import (
	"crypto/rand"
	"encoding/binary"
)

// drawLot returns a random number in [0,1).
func drawLot() float64 {
	const digits = 53 // of a float64
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails: without randomness it ends the program
	return float64(binary.BigEndian.Uint64(bits[:])>>(64-digits)) / (1 << digits)
}
