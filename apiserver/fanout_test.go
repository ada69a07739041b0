package apiserver_test

import (
	"context"
	"errors"
	"log/slog"
)

// fanOut hands each entry to two handlers, each with its own level: the harness wants all, and a test what people would see.
type fanOut struct{ all, seen slog.Handler }

func (f fanOut) Enabled(ctx context.Context, level slog.Level) bool {
	return f.all.Enabled(ctx, level) || f.seen.Enabled(ctx, level)
}

func (f fanOut) Handle(ctx context.Context, record slog.Record) error {
	err := f.all.Handle(ctx, record)
	if f.seen.Enabled(ctx, record.Level) {
		err = errors.Join(err, f.seen.Handle(ctx, record))
	}
	return err
}

func (f fanOut) WithAttrs(attributes []slog.Attr) slog.Handler {
	return fanOut{f.all.WithAttrs(attributes), f.seen.WithAttrs(attributes)}
}

func (f fanOut) WithGroup(name string) slog.Handler {
	return fanOut{f.all.WithGroup(name), f.seen.WithGroup(name)}
}
