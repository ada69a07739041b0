// Package tracing owns the spans of the data plane: one for a request, one for a script in Redis, one for an attempt to
// deliver an event. It decides what is in them, which is why nothing else makes spans: never a key, an id of a session, an
// address, a path or a URL. It is off unless the OTEL_* variables say where spans go, and then costs nothing.
package tracing
