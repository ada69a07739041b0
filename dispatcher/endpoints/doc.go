// Package endpoints knows where each merchant's events go and what signs them, from the published
// objects, and hears of rotated keys. It sends nothing and keeps nothing but this index.
package endpoints
