package payments

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// longFeed has many batches.
type longFeed struct {
	Store

	batches int
}

// ReadEnded returns the next batch.
func (f *longFeed) ReadEnded(context.Context, store.Account, store.EndedQuery) (page store.EndedPage, err error) {
	if f.batches--; f.batches > 0 {
		page.Next = feed.EntryID{Millis: uint64(f.batches)}
	}
	return page, nil
}

// slowReader takes each batch shortly before the connection would time out.
type slowReader struct {
	*httptest.ResponseRecorder

	deadline time.Time
}

// SetWriteDeadline is a method of a connection.
func (r *slowReader) SetWriteDeadline(at time.Time) error {
	r.deadline = at
	return nil
}

// FlushError waits until the client has read.
func (r *slowReader) FlushError() error {
	<-time.After(exportTimeout - time.Second)
	if time.Now().After(r.deadline) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Somebody who reads slowly has a place of a download for ten minutes, however long the file is.
func TestExport_SlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newDownloads(t, &longFeed{batches: 1000})
		began := time.Now()
		defer func() {
			err, _ := recover().(error)
			if took := time.Since(began); !errors.Is(err, http.ErrAbortHandler) || took < downloadTimeout || took > downloadTimeout+3*exportTimeout {
				t.Errorf("the download ended after %v: %v", took, err)
			}
		}()
		t.Error("a download of hours is complete:", h.Export(&slowReader{ResponseRecorder: httptest.NewRecorder()}, newDownload(t.Context())))
	})
}
