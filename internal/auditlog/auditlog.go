// Package auditlog writes the audit log: one line for each change of a key or a signing secret. docs/reference/audit.md describes the fields.
package auditlog

import (
	"context"
	"log/slog"
	"time"
)

// Change is what happened to a key or a signing secret.
type Change string

// The changes.
const (
	Issued        Change = "issued"         // a first key
	Rotated       Change = "rotated"        // another key took its place
	Disabled      Change = "disabled"       // it is refused from now on
	Enabled       Change = "enabled"        // it is accepted again
	Expiry        Change = "expiry"         // its end is another one
	Expired       Change = "expired"        // its end has come
	Permissions   Change = "permissions"    // what it may do is something else
	Allowlist     Change = "allowlist"      // other addresses may use it
	Superseded    Change = "superseded"     // its record was restored from a backup, and a newer key exists: what the record has is refused
	Deleted       Change = "deleted"        // its ApiKey is gone: it is refused permanently
	SigningSecret Change = "signing secret" // the webhook of a merchant has another one, or none
)

// By says who made a change, as far as the service knows.
type By string

// The ones who change keys.
const (
	Key      By = "key"      // the holder of the key, over HTTP
	Person   By = "person"   // a person, by an account on the internal port
	Spec     By = "spec"     // who wrote the object; the audit log of Kubernetes says who that was
	Schedule By = "schedule" // spec.rotation.everySeconds, or spec.expiresAt
	Service  By = "service"  // the operator, because what was published is lost
)

// Origin is who made a change, and by which request.
type Origin struct {
	By By
	// Account is the Kubernetes account that asked on the internal port, and Actor the person for whom it did, in its words.
	Account, Actor string
	// Address is the client's.
	Address string
	// RequestID is the X-Request-Id of the response.
	RequestID string
}

// Line is one line. What is empty is left out. It has no key, no digest and no body, and nothing that a caller could choose freely but
// Actor and RequestID, which are printable and short.
type Line struct {
	Origin

	Change Change
	// To is the value after a change of a setting.
	To string
	// Cause is that of a rotation, in the words of status.lastRotation.
	Cause string
	// Namespace and Name are those of the ApiKey; of a signing secret, of the Merchant.
	Namespace, Name string
	MerchantID      string
	// KeyID and Generation are those of the key after the change. A signing secret has neither.
	KeyID      string
	Generation int64
	// ChangedAt is the time of the change; zero: unknown.
	ChangedAt time.Time
}

// Log writes the audit log.
type Log struct{ logger *slog.Logger }

// New returns the audit log among the lines of a logger. Its lines are written whatever the level of that logger.
func New(logger *slog.Logger) Log {
	return Log{slog.New(everyLevel{logger.Handler()}).With("logger", "audit")}
}

// Write writes lines before it returns: a process that is killed after that has written them.
func (l Log) Write(ctx context.Context, lines ...Line) {
	for _, line := range lines {
		l.logger.LogAttrs(ctx, slog.LevelInfo, "a key was changed", line.attributes()...)
	}
}

func (l Line) attributes() []slog.Attr {
	attributes := []slog.Attr{slog.String("change", string(l.Change))}
	for _, field := range []struct{ name, value string }{
		{"to", l.To}, {"by", string(l.By)}, {"cause", l.Cause},
		{"namespace", l.Namespace}, {"name", l.Name}, {"merchantID", l.MerchantID}, {"keyID", l.KeyID},
		{"account", l.Account}, {"actor", l.Actor}, {"address", l.Address}, {"requestID", l.RequestID},
	} {
		if field.value != "" {
			attributes = append(attributes, slog.String(field.name, field.value))
		}
	}
	if l.Generation > 0 {
		attributes = append(attributes, slog.Int64("generation", l.Generation))
	}
	if !l.ChangedAt.IsZero() {
		attributes = append(attributes, slog.Time("changedAt", l.ChangedAt.UTC()))
	}
	return attributes
}

// everyLevel lets every level pass.
type everyLevel struct{ slog.Handler }

// Enabled is always true.
func (everyLevel) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs keeps that for a logger with attributes.
func (h everyLevel) WithAttrs(attrs []slog.Attr) slog.Handler {
	return everyLevel{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps that for a logger with a group.
func (h everyLevel) WithGroup(name string) slog.Handler { return everyLevel{h.Handler.WithGroup(name)} }
