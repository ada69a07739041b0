// Package clientaddr decides which address a request comes from. X-Forwarded-For is written by
// anyone, so it is believed only as far as trusted proxies have passed it on.
package clientaddr
