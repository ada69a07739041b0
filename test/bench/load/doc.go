// Package load asks an HTTP server the same thing over and over, on a fixed number of connections, each of which asks again as
// soon as it has its answer (a closed loop). It speaks just enough HTTP/1.1 for that, so that it costs the machine it
// shares with the server as little as possible.
package load
