package apikey

import "crypto/rand"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// randomBase62 returns n characters, each uniformly random. Bytes of 248 and above are drawn again,
// for taking them modulo 62 would favour the first characters of the alphabet.
func randomBase62(n int) string {
	const unbiased = 256 - 256%len(alphabet)
	out := make([]byte, 0, n)
	var pool [64]byte
	for {
		// crypto/rand.Read never fails: it ends the program when the system has no randomness.
		_, _ = rand.Read(pool[:])
		for _, b := range pool {
			if int(b) >= unbiased {
				continue
			}
			if out = append(out, alphabet[int(b)%len(alphabet)]); len(out) == n {
				return string(out)
			}
		}
	}
}

// base62 writes a checksum, padded with zeros.
func base62(v uint32) (digits [checkSize]byte) {
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = alphabet[v%uint32(len(alphabet))]
		v /= uint32(len(alphabet))
	}
	return digits
}

func isBase62(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
